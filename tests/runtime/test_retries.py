"""A store that doesn't answer is asked a few times, well spaced, until the lease is lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lessor.core.ops import Renew, Unknown
from lessor.errors import StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.faults import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lessor import Client
    from lessor.core.ops import Op, Outcome

LONG = 20.0


class Silent(FaultyStore):
    """Takes all the time that a renewal may take, and says nothing."""

    renewals = 0

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        if not any(isinstance(op, Renew) for op in ops):
            return super().apply(ops, timeout=timeout)
        self.renewals += 1
        threading.Event().wait(timeout)
        return [Unknown(StoreUnavailable("silent", "no answer"))] * len(ops)


def test_a_silent_store_is_asked_a_few_times(memory_url: str, open_client: Callable[..., Client]) -> None:
    silent = Silent(open_store(memory_url, SYSTEM))
    lease = open_client(silent).acquire("job", ttl=0.6)
    assert lease.lost.wait(LONG)
    assert lease.loss == "expired"
    assert 1 <= silent.renewals <= 6
