"""A store that stands still: every call ends by its timeout, and what was given up is granted to nobody afterwards."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lessor.client.sync import Client
from lessor.core.lease import Closed
from lessor.core.ops import Acquire, Granted, Held, Loss, Lost, Release, Renew, Unknown
from lessor.errors import LeaseHeld, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import PATIENCE, Case, Thread, new_id, ns, pass_time, take, taken, until
from lessor.testing.faults import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.core.ops import Op
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
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
    """One deadline for each call, whatever interrupts it; and nothing is left behind, however long it lasts."""

    def test_an_acquire_that_timed_out_is_given_back_however_long_the_store_stands_still(
        self, lab: Harness, store: Store
    ) -> None:
        """The request waits in a buffer, and is carried out when the lease would have run out long ago."""
        _require_hanging(lab)
        watched = FaultyStore(lab.open())
        with contextlib.closing(Client(watched, timeout=SHORT)) as client:
            other = client.acquire("other", ttl=30).id  # there is a connection
            with lab.hanging():
                start = SYSTEM.now()
                with pytest.raises(StoreUnavailable):
                    client.acquire("job", ttl=lab.ttl)
                pass_time(1.2 * lab.ttl + SHORT - (SYSTEM.now() - start) / 1e9)
            assert client._engine.keeper.drain(PATIENCE) == 0
            [lease_id] = {op.lease_id for ops in watched.calls for op in ops if isinstance(op, Acquire)} - {other}
            # Its tombstone says that the release was answered; the lease itself might have run out by now.
            assert take(store, "job", 30, lease_id) == Lost(Loss.RELEASED)
            until(lambda: store.read(["job"], timeout=PATIENCE) == [None], "the end of what was granted to nobody")

    def test_a_release_is_sent_until_it_is_answered(self, faulty: FaultyStore, store: Store, lab: Harness) -> None:
        """Requests are lost on their way for longer than the lease would last."""
        faulty.matching = lambda op: op.resource == "job"
        faulty.lost_requests = 10**6
        with contextlib.closing(Client(faulty, timeout=SHORT)) as client:
            with pytest.raises(StoreUnavailable):
                client.acquire("job", ttl=lab.ttl)
            pass_time(1.2 * lab.ttl)
            tried = len(faulty.calls)
            until(lambda: len(faulty.calls) > tried, "another try when the lease would have run out")
            faulty.lost_requests = 0
            assert client._engine.keeper.drain(PATIENCE) == 0
            [lease_id] = {op.lease_id for ops in faulty.calls for op in ops if isinstance(op, Acquire)}
            assert take(store, "job", 30, lease_id) == Lost(Loss.RELEASED), "its request came late, and was granted"

    def test_a_copy_of_a_request_that_is_still_on_its_way_grants_nothing_after_the_release(
        self, faulty: FaultyStore, faulty_face: Face, store: Store
    ) -> None:
        """The first request had no answer, and the second one was granted."""
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_requests = 1
        lease = faulty_face.acquire("job", ttl=30, wait=0)
        assert faulty_face.release(lease)
        assert take(store, "job", 30, lease.id) == Lost(Loss.RELEASED)

    def test_a_copy_of_a_request_that_is_still_on_its_way_does_not_shorten_the_minimum_hold(
        self, faulty: FaultyStore, faulty_face: Face, store: Store
    ) -> None:
        """The first request had no answer, and the second one was granted."""
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_requests = 1
        lease = faulty_face.acquire("job", ttl=30, wait=0, hold_at_least=20)
        assert faulty_face.release(lease)
        held = take(store, "job", 30)
        assert isinstance(held, Held)
        assert held.closed is Closed.HOLD_AT_LEAST
        assert take(store, "job", 30, lease.id) == Lost(Loss.RELEASED)

    def test_a_copy_of_a_request_that_is_still_on_its_way_grants_nothing_after_a_refusal(
        self, faulty: FaultyStore, faulty_face: Face, store: Store
    ) -> None:
        """The first request had no answer, and the second one was told that another client holds it."""
        holder = new_id()
        taken(store, "job", 30, holder)
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_requests = 1
        with pytest.raises(LeaseHeld):
            faulty_face.acquire("job", ttl=30, wait=0)
        assert faulty_face.client._engine.keeper.drain(PATIENCE) == 0
        store.apply([Release("job", holder)], timeout=PATIENCE)
        [lease_id] = {op.lease_id for ops in faulty.calls for op in ops if isinstance(op, Acquire)}
        assert take(store, "job", 30, lease_id) == Lost(Loss.RELEASED)

    def test_a_client_that_is_closed_meanwhile_leaves_nothing_for_longer_than_the_ttl(
        self, lab: Harness, store: Store
    ) -> None:
        _require_hanging(lab)
        client = Client(lab.url(), timeout=SHORT)
        client.acquire("other", ttl=30)
        with lab.hanging():
            with pytest.raises(StoreUnavailable):
                client.acquire("job", ttl=lab.ttl)
            client.close()
        until(lambda: isinstance(take(store, "job", 30), Granted), "the end of what was granted to nobody")

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

    def test_signals_do_not_prolong_listening(self, lab: Harness, store: Store) -> None:
        _require_hanging(lab)
        subscription = store.subscribe()
        if subscription is None:
            pytest.skip("this store pushes nothing")
        try:
            with lab.hanging(), _signals():
                _interrupted(lambda: subscription.get(SHORT))
        finally:
            subscription.close()

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
