"""A store that doesn't answer for one resource costs no other lease its life."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lessor import StoreUnavailable
from lessor.core.holder import State
from lessor.core.ops import Release, Renew, Unknown
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing import FaultyStore
from lessor.testing.conformance.base import PATIENCE, pass_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lessor import Client
    from lessor.core.ops import Op, Outcome

SHORT_TTL = 0.5
LONG_TTL = 6.0


class HangingStore(FaultyStore):
    """Doesn't answer such operations at all, for as long as the caller waits."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url, SYSTEM))
        self.hung = threading.Event()
        self.over = threading.Event()

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        if any(self.matching(op) for op in ops) and not self.over.is_set():
            self.hung.set()
            self.over.wait(timeout)
            return [Unknown(StoreUnavailable("hanging", "no answer"))] * len(ops)
        return super().apply(ops, timeout=timeout)


@pytest.fixture
def store(url: str) -> Iterator[HangingStore]:
    store = HangingStore(url)
    yield store
    store.over.set()
    store.close()


@pytest.fixture
def hanging(store: HangingStore, open_client: Callable[..., Client]) -> Iterator[Client]:
    """Return a client of the store, which answers again before the client is closed."""
    yield open_client(store, timeout=0.2)
    store.over.set()


def test_renewals_that_hang_cost_no_lease_of_a_short_ttl_its_life(store: HangingStore, hanging: Client) -> None:
    store.matching = lambda op: op.resource == "slow" and isinstance(op, Renew)
    slow = hanging.acquire("slow", ttl=LONG_TTL)
    hanging._engine.keeper.renew_soon(slow)
    assert store.hung.wait(PATIENCE)
    survives(hanging)


def test_disposals_that_hang_cost_no_lease_of_a_short_ttl_its_life(store: HangingStore, hanging: Client) -> None:
    store.matching = lambda op: op.resource == "slow" and isinstance(op, Release)
    slow = hanging.acquire("slow", ttl=60)
    with pytest.raises(StoreUnavailable):
        slow.release()
    store.hung.clear()
    assert store.hung.wait(PATIENCE), "the background should try again"
    survives(hanging)


def survives(client: Client) -> None:
    """Hold a lease for twice its TTL."""
    lost = threading.Event()
    lease = client.acquire("fast", ttl=SHORT_TTL)
    lease.on_lost(lambda _lease: lost.set())
    pass_time(2 * SHORT_TTL)
    assert lease.state is State.HELD
    lease.check()
    assert not lost.is_set()
