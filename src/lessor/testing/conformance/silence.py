"""A store that stands still: every call ends by its timeout."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.ops import Acquire, Renew, Unknown
from lessor.errors import StoreUnavailable
from lessor.testing.conformance.base import PATIENCE, Case, Thread, new_id, ns, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.core.ops import Op
    from lessor.stores.base import Store
    from lessor.testing.harness import Harness

SHORT = 0.3
"""Seconds that a call to a store that stands still is given."""
EVERY = 0.01
"""Seconds between two signals."""

OPS: dict[str, Op] = {
    "acquire": Acquire("job", new_id(), "somebody", ns(30)),
    "renew": Renew("job", new_id(), 1, ns(30)),
}


class Silence(Case):
    """One deadline for each call, whatever interrupts it."""

    @pytest.mark.parametrize("op", OPS)
    def test_signals_do_not_prolong_a_request(self, lab: Harness, store: Store, op: str) -> None:
        """A profiler, or a timer, interrupts each wait long before its end."""
        _require_hanging(lab)
        taken(store, "other", 30)  # there is a connection
        with lab.hanging(), _signals():
            [outcome] = _interrupted(lambda: store.apply([OPS[op]], timeout=SHORT))
        assert isinstance(outcome, Unknown)

    def test_signals_do_not_prolong_a_question(self, lab: Harness, store: Store) -> None:
        _require_hanging(lab)
        taken(store, "other", 30)
        with lab.hanging(), _signals(), contextlib.suppress(StoreUnavailable):
            _interrupted(lambda: store.read(["job"], timeout=SHORT))

    def test_signals_do_not_prolong_the_first_request(self, lab: Harness, store: Store) -> None:
        """There is no connection yet."""
        _require_hanging(lab)
        taken(store, "other", 30)
        fresh = lab.open()
        try:
            with lab.hanging(), _signals():
                [outcome] = _interrupted(lambda: fresh.apply([OPS["acquire"]], timeout=SHORT))
            assert isinstance(outcome, Unknown)
        finally:
            fresh.close()


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Let a signal do nothing but interrupt."""
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
    signal.siginterrupt(signal.SIGUSR1, True)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def _interrupted(call: Callable[[], Any]) -> Any:
    """Make the call on a thread that gets signals all the time, and return its result."""
    thread = Thread(call)
    nap = threading.Event()
    for _ in range(int(PATIENCE / EVERY)):
        if not thread.is_alive():
            break
        assert thread.ident is not None
        with contextlib.suppress(ProcessLookupError):
            signal.pthread_kill(thread.ident, signal.SIGUSR1)
        nap.wait(EVERY)
    return thread.result(0)


def _require_hanging(lab: Harness) -> None:
    if not lab.can_hang:
        pytest.skip("a call to this store always returns")
