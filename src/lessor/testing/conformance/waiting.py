"""Waiting: first come, first served; nobody polls, nobody barges, and the dead drop out."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.claim import REFRESH_NS
from lessor.core.ops import RESERVATION_NS, WAITER_LIFE_NS, Acquire, Granted, Held, Release
from lessor.errors import Closed, LeaseHeld, WouldDeadlock
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Capability
from lessor.testing.conformance.base import (
    LONG,
    NEVER_NS,
    PATIENCE,
    Case,
    Thread,
    new_id,
    ns,
    pass_time,
    require,
    take,
    taken,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness

TURNS = 20
"""How often something is tried that a busy machine may be too slow for."""


def queue_length(face: Face, resource: str) -> int:
    """Return how many wait."""
    record = face.get(resource)
    return 0 if record is None else len(record.queue)


class Waiting(Case):
    """A queue, not a scramble."""

    def test_in_the_order_of_arrival(self, face: Face, store: Store) -> None:
        if store.guarantees.waiting_order != "strict":
            pytest.skip("the store doesn't promise an order")
        first = face.acquire("job", ttl=30)
        served: list[int] = []
        threads = []
        for number in range(8):

            def wait(number: int = number) -> None:
                face.within("job", lambda _: served.append(number), ttl=30)

            threads.append(Thread(wait))
            until(lambda n=number: queue_length(face, "job") == n + 1, "the next in the queue")  # type: ignore[misc]
        face.release(first)
        for thread in threads:
            thread.result()
        assert served == list(range(8))

    def test_nobody_barges_in(self, store: Store) -> None:
        """Between a release and the first waiter's request, the resource is kept for that waiter, for a moment."""
        for turn in range(TURNS):
            job = f"job/{turn}"
            holder, waiter = new_id(), new_id()
            taken(store, job, 30, holder)
            assert isinstance(take(store, job, 30, waiter, queue=True), Held)
            start = SYSTEM.now()
            store.apply([Release(job, holder)], timeout=PATIENCE)
            others = [take(store, job, 30), take(store, job, 30, queue=True)]
            if SYSTEM.now() - start < RESERVATION_NS:
                assert [type(other) for other in others] == [Held, Held]
                taken(store, job, 30, waiter, queue=True)
                return
        pytest.fail("the store never answered three requests within the time of a reservation")

    def test_a_waiter_that_does_not_come_loses_its_turn_but_not_its_place(self, store: Store) -> None:
        holder, absent, present = new_id(), new_id(), new_id()
        taken(store, "job", 30, holder)
        queued = SYSTEM.now()
        take(store, "job", 30, absent, queue=True)
        take(store, "job", 30, present, queue=True)
        store.apply([Release("job", holder)], timeout=PATIENCE)

        def served() -> bool:
            return isinstance(take(store, "job", 30, present, queue=True), Granted)

        until(served, "the turn of the one that is there")
        late = new_id()
        take(store, "job", 30, late, queue=True)
        back = take(store, "job", 30, absent, queue=True)
        assert isinstance(back, Held)
        if SYSTEM.now() - queued < WAITER_LIFE_NS:  # or it may have been taken for dead
            assert back.position == 0

    def test_served_after_an_expiry(self, store: Store, face: Face, lab: Harness) -> None:
        """Nobody tells that a holder died: the waiter comes at the known time, by itself."""
        taken(store, "job", lab.ttl)
        face.acquire("job", ttl=30, wait=PATIENCE)

    @pytest.mark.usefixtures("only_when_called")
    def test_served_at_once_after_a_release(self, face: Face, store: Store) -> None:
        require(store, Capability.PUSH)
        lease = face.acquire("job", ttl=LONG)
        waiting = Thread(lambda: face.acquire("job", ttl=LONG, wait=PATIENCE))
        until(lambda: queue_length(face, "job") == 1, "the waiter")
        face.release(lease)
        waiting.result()

    def test_nobody_polls(self, faulty: FaultyStore, faulty_face: Face, store: Store) -> None:
        """A waiter asks when it comes, and then only to say that it lives."""
        require(store, Capability.PUSH)
        holder = new_id()
        taken(store, "job", 30, holder)
        start = SYSTEM.now()
        waiting = Thread(lambda: faulty_face.acquire("job", ttl=30))
        until(lambda: queue_length(faulty_face, "job") == 1, "the waiter")
        pass_time(0.5)
        store.apply([Release("job", holder)], timeout=PATIENCE)
        waiting.result()
        asked = [op for ops in faulty.calls for op in ops if isinstance(op, Acquire)]
        assert len(asked) <= 3 + (SYSTEM.now() - start) / REFRESH_NS

    def test_giving_up_leaves_the_queue(self, face: Face) -> None:
        face.acquire("job", ttl=30)
        waiting = Thread(lambda: face.acquire("job", ttl=30, wait=0.1))
        with pytest.raises(LeaseHeld):
            waiting.result()
        until(lambda: queue_length(face, "job") == 0, "an empty queue")

    def test_closing_the_client_leaves_the_queue(
        self, face: Face, lab: Harness, open_face: Callable[[str], Face]
    ) -> None:
        face.acquire("job", ttl=30)
        closing = open_face(lab.url())
        waiting = Thread(lambda: closing.acquire("job", ttl=30))
        until(lambda: queue_length(face, "job") == 1, "the waiter")
        getattr(closing, "run", lambda done: done)(closing.client.close())
        with pytest.raises(Closed):
            waiting.result()
        assert queue_length(face, "job") == 0

    def test_a_dead_waiter_does_not_hold_up_the_next(self, face: Face, store: Store) -> None:
        """It was in the queue, and nobody is there any more to take its turn."""
        lease = face.acquire("job", ttl=30)
        op = Acquire("job", new_id(), "dead", ns(30), queue=True, notify="nobody")
        assert isinstance(store.apply([op], timeout=PATIENCE)[0], Held)
        waiting = Thread(lambda: face.acquire("job", ttl=30))
        until(lambda: queue_length(face, "job") == 2, "the waiter")
        face.release(lease)
        waiting.result()

    def test_who_has_waited_for_long_is_woken_at_once_too(
        self, faulty: FaultyStore, faulty_face: Face, other: Face, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After it has shown up again by itself; and then it doesn't any more."""
        require(faulty, Capability.PUSH)

        def asked() -> int:
            return sum(isinstance(op, Acquire) for ops in list(faulty.calls) for op in ops)

        lease = other.acquire("job", ttl=LONG)
        monkeypatch.setattr("lessor.core.claim.REFRESH_NS", ns(0.1))
        waiting = Thread(lambda: faulty_face.acquire("job", ttl=LONG))
        until(lambda: asked() >= 3, "the waiter, again")
        monkeypatch.setattr("lessor.core.claim.REFRESH_NS", NEVER_NS)
        pass_time(0.3)  # so that it has come for the last time
        other.release(lease)
        waiting.result()

    def test_waiting_for_oneself_is_an_error(self, face: Face, lab: Harness) -> None:
        def body(_: object) -> None:
            face.acquire("job", ttl=30)

        if type(face).__name__ == "SyncFace":
            with pytest.raises(WouldDeadlock):
                face.within("job", body, ttl=30)
        else:

            async def twice() -> None:
                client = face.client
                async with client.acquire("job", ttl=30):
                    await client.acquire("job", ttl=30)

            with pytest.raises(WouldDeadlock):
                face.run(twice())  # type: ignore[attr-defined]
        assert queue_length(face, "job") == 0

    def test_a_bounded_wait_for_ones_own_lease_is_no_deadlock(self, face: Face) -> None:
        """Another thread or task releases the lease while its owner waits for it."""
        leases: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def give_back() -> None:
            lease = leases.get(timeout=PATIENCE)
            until(lambda: queue_length(face, "job") == 1, "the owner, waiting")
            face.release(lease)

        releasing = Thread(give_back)
        if type(face).__name__ == "SyncFace":
            leases.put(face.acquire("job", ttl=30))
            face.acquire("job", ttl=30, wait=PATIENCE).check()
        else:

            async def twice() -> None:
                leases.put(await face.client.acquire("job", ttl=30))
                (await face.client.acquire("job", ttl=30, wait=PATIENCE)).check()

            face.run(twice())  # type: ignore[attr-defined]
        releasing.result()

    def test_many_waiters_wake_one_at_a_time(self, face: Face, store: Store) -> None:
        lease = face.acquire("job", ttl=30)
        inside = threading.Semaphore(1)
        most = 20 if Capability.PUSH in store.guarantees.capabilities else 4  # who isn't called takes its time

        def body(_: object) -> None:
            assert inside.acquire(blocking=False)
            inside.release()

        threads = [Thread(lambda: face.within("job", body, ttl=30)) for _ in range(most)]
        until(lambda: queue_length(face, "job") == most, "all waiters")
        face.release(lease)
        for thread in threads:
            thread.result()
