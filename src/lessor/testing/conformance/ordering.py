"""The queue's order, its bound, and who is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.ops import Acquire, Granted, Held, Release
from lessor.errors import QueueFull
from lessor.stores.base import Capability
from lessor.testing.conformance.base import PATIENCE, Case, new_id, ns, require, take, taken, until

if TYPE_CHECKING:
    from lessor.core.lease import Contender
    from lessor.stores.base import Store
    from lessor.testing.faces import Face


def queue_up(store: Store, holder: str, **fields: object) -> str:
    """Queue up straight at the store, and return the lease id."""
    lease_id = new_id()
    op = Acquire("job", lease_id, holder, ns(30), queue=True)._replace(**fields)  # type: ignore[arg-type]
    outcome = store.apply([op], timeout=PATIENCE)[0]
    assert isinstance(outcome, Held), outcome
    assert not outcome.refused
    return lease_id


def names(waiters: list[Contender]) -> list[str]:
    """Return who waits."""
    return [waiter.holder for waiter in waiters]


class Ordering(Case):
    """Who comes first, and who doesn't come in at all."""

    def test_a_higher_priority_is_served_first_and_equals_as_they_came(self, store: Store) -> None:
        require(store, Capability.PRIORITY)
        holder = new_id()
        taken(store, "job", 30, holder)
        ids = {name: queue_up(store, name, priority=p) for name, p in (("a", 0), ("b", 5), ("c", 0), ("d", 5))}
        queue_up(store, "e", priority=-1)
        first = take(store, "job", 30, queue=True, priority=9)
        assert isinstance(first, Held)
        assert first.position == 0
        second = take(store, "job", 30, ids["a"], queue=True)
        assert isinstance(second, Held)
        assert second.position == 3
        passer_by = take(store, "job", 30, priority=5)
        assert isinstance(passer_by, Held)
        assert passer_by.position == 3
        assert names(store.waiters("job", timeout=PATIENCE)) == ["somebody", "b", "d", "a", "c", "e"]

    def test_a_release_is_for_the_highest_priority(self, store: Store) -> None:
        require(store, Capability.PRIORITY)
        holder = new_id()
        taken(store, "job", 30, holder)
        low, high = queue_up(store, "low"), queue_up(store, "high", priority=1)
        store.apply([Release("job", holder)], timeout=PATIENCE)
        assert isinstance(take(store, "job", 30, low, queue=True), Held)
        taken(store, "job", 30, high, queue=True)

    def test_a_full_queue_refuses_the_next_and_nobody_in_it(self, store: Store) -> None:
        require(store, Capability.QUEUE_LIMIT)
        holder = new_id()
        taken(store, "job", 30, holder)
        first = queue_up(store, "first", queue_limit=2)
        queue_up(store, "second", queue_limit=2)
        refused = take(store, "job", 30, queue=True, queue_limit=2)
        assert isinstance(refused, Held)
        assert (refused.by, refused.refused) == ("somebody", True)
        again = take(store, "job", 30, first, queue=True, queue_limit=1)
        assert isinstance(again, Held)
        assert (again.position, again.refused) == (0, False)
        assert names(store.waiters("job", timeout=PATIENCE)) == ["first", "second"]
        store.apply([Release("job", first)], timeout=PATIENCE)
        queue_up(store, "third", queue_limit=2)

    def test_a_full_queue_says_so_while_it_is_reserved_too(self, store: Store) -> None:
        require(store, Capability.QUEUE_LIMIT)
        holder = new_id()
        taken(store, "job", 30, holder)
        queue_up(store, "first")
        store.apply([Release("job", holder, "nobody", reserve_ns=ns(30))], timeout=PATIENCE)
        refused = take(store, "job", 30, queue=True, queue_limit=1)
        assert isinstance(refused, Held)
        assert (refused.by, refused.refused) == ("", True)

    def test_an_empty_queue_and_a_free_resource_refuse_nobody(self, store: Store) -> None:
        require(store, Capability.QUEUE_LIMIT)
        assert isinstance(take(store, "job", 30, queue=True, queue_limit=1), Granted)

    def test_the_bound_is_kept_in_one_batch(self, store: Store) -> None:
        require(store, Capability.QUEUE_LIMIT)
        taken(store, "job", 30)
        ops = [Acquire("job", new_id(), f"w{i}", ns(30), queue=True, queue_limit=3) for i in range(8)]
        outcomes = store.apply(ops, timeout=PATIENCE)
        assert [isinstance(o, Held) and o.refused for o in outcomes] == [False] * 3 + [True] * 5

    def test_a_higher_priority_is_served_first(self, face: Face, store: Store) -> None:
        require(store, Capability.PRIORITY)
        held = face.acquire("job", ttl=30)
        low = face.enqueue("job", ttl=30)
        high = face.enqueue("job", ttl=30, priority=1)
        assert (low.position, high.position) == (0, 0)
        face.release(held)
        lease = face.wait(high, PATIENCE)
        assert lease is not None
        assert face.wait(low, 0) is None
        face.release(lease)
        assert face.wait(low, PATIENCE) is not None

    def test_a_full_queue_raises_and_leaves_nothing(self, face: Face, store: Store) -> None:
        require(store, Capability.QUEUE_LIMIT)
        face.acquire("job", ttl=30)
        place = face.enqueue("job", ttl=30, queue_limit=1)
        with pytest.raises(QueueFull) as caught:
            face.acquire("job", ttl=30, queue_limit=1)
        assert caught.value.position == 1
        with pytest.raises(QueueFull):
            face.enqueue("job", ttl=30, queue_limit=1)
        assert face.try_acquire("job", ttl=30, queue_limit=1) is None
        assert len(face.contenders("job")) == 1
        place.leave()
        until(lambda: not face.contenders("job"), "an empty queue")

    def test_who_waits_and_since_when(self, store: Store) -> None:
        require(store, Capability.CONTENDERS)
        assert store.waiters("job", timeout=PATIENCE) == []
        holder = new_id()
        taken(store, "job", 30, holder)
        queue_up(store, "a")
        queue_up(store, "b", priority=1 if Capability.PRIORITY in store.guarantees.capabilities else 0)
        waiters = store.waiters("job", timeout=PATIENCE)
        assert sorted(names(waiters)) == ["a", "b"]
        assert all(abs(w.since_us - waiters[0].since_us) < PATIENCE * 1e6 for w in waiters)
        record = store.read(["job"], timeout=PATIENCE)[0]
        assert record is not None
        assert list(record.queue) == waiters
        store.apply([Release("job", holder)], timeout=PATIENCE)
        assert store.waiters("job", timeout=PATIENCE) == waiters
