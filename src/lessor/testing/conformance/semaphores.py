"""Semaphores: so many at once, in order of arrival; and the dead leave nothing behind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.ops import Acquire, Release
from lessor.errors import ConfigError, LeaseHeld, QueueFull
from lessor.stores.base import Capability
from lessor.testing.child import Child
from lessor.testing.conformance.base import PATIENCE, Case, Thread, require, until
from lessor.testing.conformance.waiting import queue_length

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness


def waiting_for(face: Face) -> int:
    """Return how many wait: the one that has the gate stands in the queue of the slots, the others at the gate."""
    return queue_length(face, "pool/0") + queue_length(face, "pool/gate")


class Semaphores(Case):
    """N slots."""

    def test_as_many_as_there_are_slots_and_each_with_its_own_token(self, face: Face, other: Face) -> None:
        pool = face.client.semaphore("pool", slots=3)
        leases = [face.result(pool.acquire(ttl=30)) for _ in range(3)]
        assert {lease.resource for lease in leases} == {"pool/0", "pool/1", "pool/2"}
        assert sorted(record.token for record in face.result(pool.holders())) == sorted(le.token for le in leases)
        theirs = other.client.semaphore("pool", slots=3)
        assert theirs.try_acquire(ttl=30) is None
        for wait in (0, 0.1):
            with pytest.raises(LeaseHeld) as caught:
                theirs.acquire(ttl=30, wait=wait)
            assert (caught.value.resource, caught.value.holder) == ("pool", leases[0].holder)
        face.release(leases[1])
        newer = theirs.acquire(ttl=30, wait=PATIENCE)
        assert newer.resource == leases[1].resource
        assert newer.token > leases[1].token

    def test_a_slot_is_given_back_at_the_end_of_its_body(self, face: Face) -> None:
        pool = face.client.semaphore("pool", slots=1)
        for _ in range(3):
            face.inside(pool.acquire(ttl=30, wait=PATIENCE), lambda lease: lease.check())
        until(lambda: face.list("pool/") == [], "an empty pool")

    @pytest.mark.parametrize("freed", [0, 1, 2])
    def test_whichever_slot_is_freed_wakes_who_waits(
        self, faulty: FaultyStore, faulty_face: Face, other: Face, freed: int
    ) -> None:
        face = faulty_face
        pool = face.client.semaphore("pool", slots=3)
        held = other.client.acquire_all([f"pool/{number}" for number in range(3)], ttl=30)
        waiting = Thread(lambda: face.result(pool.acquire(ttl=30)))
        until(lambda: queue_length(other, "pool/2") == 1, "the waiter")
        other.release(held[f"pool/{freed}"])
        lease = waiting.result()
        assert lease.resource == f"pool/{freed}"

        def not_left() -> set[str]:
            """Return the places that were not given up: they would be gone after a while, too."""
            sent = [op for ops in list(faulty.calls) for op in ops]
            asked = {op.lease_id for op in sent if isinstance(op, Acquire)}
            return asked - {op.lease_id for op in sent if isinstance(op, Release)}

        until(lambda: not_left() == {lease.id}, "the way out")
        until(lambda: not any(queue_length(other, f"pool/{n}") for n in range(3)), "empty queues")
        until(lambda: other.get("pool/gate") is None, "an open gate")

    def test_who_waits_is_served_in_order_of_arrival(self, face: Face, other: Face, store: Store) -> None:
        require(store, Capability.PUSH)  # who isn't called may come too late for its turn
        pool = face.client.semaphore("pool", slots=2)
        held = [other.client.semaphore("pool", 2).acquire(ttl=30, wait=PATIENCE) for _ in range(2)]
        served: list[int] = []

        def wait(number: int) -> Any:
            lease = face.result(pool.acquire(ttl=30))
            served.append(number)
            return lease

        waiting = []
        for number in range(4):
            waiting.append(Thread(partial(wait, number)))
            until(lambda n=number: waiting_for(other) == n + 1, "the waiter")  # type: ignore[misc]
        for number in range(4):
            other.release(held.pop(0)) if held else face.release(waiting[number - 2].result())
            waiting[number].result()
        assert served == [0, 1, 2, 3]

    def test_who_gives_up_leaves_nothing_behind(self, face: Face, other: Face) -> None:
        held = other.client.semaphore("pool", 1).acquire(ttl=30, wait=PATIENCE)
        until(lambda: other.get("pool/gate") is None, "an open gate")
        with pytest.raises(LeaseHeld):
            face.result(face.client.semaphore("pool", 1).acquire(ttl=30, wait=0.05))
        until(lambda: waiting_for(other) == 0, "the way out")
        until(lambda: [record.resource for record in other.list("pool/")] == [held.resource], "an open gate")

    def test_the_bound_of_the_queue_and_priorities_are_for_who_waits(
        self, face: Face, other: Face, store: Store
    ) -> None:
        require(store, Capability.QUEUE_LIMIT | Capability.PRIORITY | Capability.PUSH)
        pool = face.client.semaphore("pool", slots=1)
        held = other.acquire("pool/0", ttl=30)
        first = Thread(lambda: face.result(pool.acquire(ttl=30)))
        until(lambda: waiting_for(other) == 1, "the first")
        low = Thread(lambda: face.result(pool.acquire(ttl=30)))
        until(lambda: waiting_for(other) == 2, "the second")
        with pytest.raises(LeaseHeld) as caught:
            face.result(pool.acquire(ttl=30, wait=0.05))
        assert (caught.value.resource, caught.value.token) == ("pool", held.token)
        with pytest.raises(QueueFull):
            face.result(pool.acquire(ttl=30, wait=1, queue_limit=1))
        high = Thread(lambda: face.result(pool.acquire(ttl=30, priority=1)))
        until(lambda: waiting_for(other) == 3, "the third")
        other.release(held)
        face.release(first.result())
        face.release(high.result())
        face.release(low.result())

    def test_numbers_of_slots_that_cant_be(self, face: Face) -> None:
        for slots in (0, -1, 1001, True, 2.0, "3"):
            with pytest.raises(ConfigError, match="slots"):
                face.client.semaphore("pool", slots)

    def test_the_slot_of_a_killed_holder_in_processes(self, lab: Harness, face: Face) -> None:
        with Child(lab.url()) as child:
            before = child.ask("semaphore", name="pool", slots=1, ttl=lab.steady)
            waiting = Thread(lambda: face.result(face.client.semaphore("pool", 1).acquire(ttl=30)))
            until(lambda: waiting_for(face) == 1, "the waiter")
            child.kill()
            lease = waiting.result()
        assert lease.token > before["token"]

    def test_a_killed_waiter_in_processes(self, lab: Harness, face: Face) -> None:
        """It had the gate, and stood in the queues of the slots; and another one stood at the gate."""
        pool = face.client.semaphore("pool", 2)
        held = [face.result(pool.acquire(ttl=30, wait=PATIENCE)) for _ in range(2)]
        with Child(lab.url()) as first, Child(lab.url()) as second, Child(lab.url()) as third:
            for number, child in enumerate((first, second, third), 1):
                child.tell("semaphore", name="pool", slots=2, ttl=lab.steady)
                until(lambda n=number: waiting_for(face) == n, "the waiter")  # type: ignore[misc]
            first.kill()
            second.kill()
            face.release(held[0])
            assert third.wait_for_answer()["token"] > held[0].token
            until(lambda: face.get("pool/gate") is None, "an open gate")
