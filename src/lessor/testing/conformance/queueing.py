"""A place in the queue is kept by asking, and given up by leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.ops import Acquire, Release
from lessor.errors import Closed, ConfigError, StoreUnavailable
from lessor.stores.base import Capability
from lessor.testing.conformance.base import LONG, PATIENCE, Case, Thread, require, until
from lessor.testing.conformance.waiting import queue_length

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness


class Queueing(Case):
    """In two steps: queue up, and wait."""

    def test_what_is_free_is_granted_at_once(self, face: Face) -> None:
        place = face.enqueue("job", ttl=30)
        lease = face.wait(place, 0)
        assert lease is not None
        assert face.wait(place, 0) is lease
        place.leave()
        lease.check()
        assert face.get("job") is not None

    def test_a_place_is_kept_while_somebody_asks(self, face: Face, other: Face) -> None:
        held = other.acquire("job", ttl=30)
        place = face.enqueue("job", ttl=30)
        assert (place.resource, place.position) == ("job", 0)
        second = face.enqueue("job", ttl=30)
        assert second.position == 1
        assert face.wait(place, 0) is None
        assert face.wait(place, 0.05) is None
        assert queue_length(face, "job") == 2
        other.release(held)
        lease = face.wait(place, PATIENCE)
        assert lease is not None
        assert lease.token > held.token
        assert face.wait(second, 0) is None
        assert second.position == 0

    def test_a_client_that_is_closed_leaves_the_queues(
        self, faulty: FaultyStore, faulty_face: Face, other: Face
    ) -> None:
        held = other.acquire("job", ttl=30)
        client = faulty_face.client
        places = [faulty_face.enqueue("job", ttl=30), *client.places(["job"], ttl=30)]
        assert faulty_face.result(client.wait_any(places, 0.05)) is None
        assert queue_length(other, "job") == 2
        faulty_face.result(client.close())
        asked = {op.lease_id for ops in faulty.calls for op in ops if isinstance(op, Acquire)}
        left = {op.lease_id for ops in faulty.calls for op in ops if isinstance(op, Release)}
        assert asked <= left, "a place that was not given up is gone only when nobody has asked for it for a while"
        until(lambda: queue_length(other, "job") == 0, "the end of both places")
        assert other.release(held)
        assert other.try_acquire("job", ttl=30) is not None

    def test_who_waits_at_a_place_when_the_client_is_closed_is_told(self, face: Face, other: Face) -> None:
        other.acquire("job", ttl=30)
        place = face.enqueue("job", ttl=30)
        waiting = Thread(lambda: face.wait(place, PATIENCE))
        until(lambda: any(map(callable, list(face.client._engine.waiters._bells.values()))), "the waiting")
        face.result(face.client.close())
        with pytest.raises(Closed):
            waiting.result()
        until(lambda: queue_length(other, "job") == 0, "the end of the place")

    @pytest.mark.usefixtures("only_when_called")
    def test_the_call_is_heard_also_after_waits_that_came_to_nothing(
        self, face: Face, other: Face, store: Store
    ) -> None:
        require(store, Capability.PUSH)
        held = other.acquire("job", ttl=LONG)
        place = face.enqueue("job", ttl=LONG)
        for _ in range(3):
            assert face.wait(place, 0.05) is None
        waiting = Thread(lambda: face.wait(place, PATIENCE))
        other.release(held)
        assert waiting.result() is not None

    @pytest.mark.usefixtures("only_when_called")
    def test_a_place_that_nobody_asks_for_keeps_no_call_from_others(
        self, face: Face, other: Face, store: Store
    ) -> None:
        """Of the same client: who waited last must not be the only one to hear what the store says."""
        require(store, Capability.PUSH)
        other.acquire("job", ttl=LONG)
        place = face.enqueue("job", ttl=LONG)
        assert face.wait(place, 0.05) is None
        held = other.acquire("work", ttl=LONG)
        waiting = Thread(lambda: face.acquire("work", ttl=LONG))
        until(lambda: queue_length(face, "work") == 1, "the waiter")
        other.release(held)
        waiting.result()

    def test_who_leaves_makes_room_for_the_next(self, face: Face, other: Face) -> None:
        held = other.acquire("job", ttl=30)
        first, second = face.enqueue("job", ttl=30), face.enqueue("job", ttl=30)
        first.leave()
        first.leave()
        until(lambda: queue_length(face, "job") == 1, "the way out")
        with pytest.raises(ConfigError, match="given up"):
            face.wait(first, 0)
        other.release(held)
        assert face.wait(second, PATIENCE) is not None

    def test_an_error_ends_the_place(self, faulty: FaultyStore, faulty_face: Face, other: Face, lab: Harness) -> None:
        other.acquire("job", ttl=30)
        place = faulty_face.enqueue("job", ttl=30)
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_replies = 10**6
        faulty_face.client._engine.timeout = 0.2
        place._claim.patience_ns = 0
        with pytest.raises(StoreUnavailable):
            faulty_face.wait(place, PATIENCE)
        until(lambda: queue_length(other, "job") == 0, "the way out")
