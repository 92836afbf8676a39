"""The script decides as the rules do, whatever is asked and however it is packed into calls.

Memory applies the rules and nothing else, so it is the model. Both run on one fake clock, in whole microseconds, and
count expiry on its wall clock as Redis does: a step of that clock is part of the story. Two Redis stores take turns.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from leasehold.core.clock import MILLISECOND, SECOND
from leasehold.core.lease import TOKEN_LIMIT
from leasehold.core.ops import Acquire, Event, Granted, Notice, Release, Renew, Revoke, Unknown
from leasehold.stores.base import StoreURL
from leasehold.stores.memory import MemoryStore, MemoryTable
from leasehold.stores.redis import RedisStore
from leasehold.testing.clock import FakeClock
from tests.scale import scaled

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from leasehold.core.entry import Entry
    from leasehold.core.lease import Record
    from leasehold.core.ops import Op, Outcome
    from leasehold.stores.base import Subscription
    from tests.servers.redis import RedisServer

pytestmark = pytest.mark.heavy


MS = MILLISECOND
RESOURCES = ("x", "y", "y/z", "é/\U0001f512")
HERE = "here"
"""Stands for the address of the subscription, which each store draws for itself."""
MARK = "mark"
LAST_WORD = f'["revoked","{MARK}","{MARK}"]'

serials = itertools.count()
# Uneven, so that operations meet: most of them are about one lease on one resource.
names = st.sampled_from([*["x"] * 5, *RESOURCES])
ids = st.sampled_from(["A", "A", "A", "A", "B", "C"])
ttls = st.sampled_from([50 * MS, SECOND, 10 * SECOND])
rarely = st.sampled_from([0, 0, 0, 0, 80 * MS, 2 * SECOND])
seen = st.sampled_from([0, 0, 0, 0, 5, 1_700_000_050_000_000, TOKEN_LIMIT - 1])

# Tokens aren't known in advance, so a parent, a renewal and a revocation say how far from the latest they are.
parents = st.none() | st.none() | st.none() | st.tuples(names, st.sampled_from([0, 0, 0, -1]))
plain = st.builds(lambda name, lease_id, ttl: Acquire(name, lease_id, "h-" + lease_id, ttl), names, ids, ttls)
acquires = st.builds(
    Acquire,
    resource=names,
    lease_id=ids,
    holder=ids.map("h-{}".format),
    ttl_ns=ttls,
    queue=st.booleans(),
    notify=st.sampled_from(["", HERE]),
    seen_token=seen,
    metadata=st.sampled_from(["", '{"a":"ü"}']),
    parent=parents,
    soft_ns=rarely,
    grace_ns=rarely,
    lock_delay_ns=rarely,
    hold_at_least_ns=rarely,
)
children = st.builds(lambda op, ttl: op._replace(ttl_ns=ttl) if op.parent else op, acquires, ttls | st.just(0))
queueing = acquires.map(lambda op: op._replace(queue=True, parent=None, seen_token=0))
releases = st.builds(Release, names, ids, st.sampled_from([None, None, None, "h-A"]), st.booleans())
renewals = st.builds(Renew, names, ids, st.sampled_from([0, 0, 0, -1, 1]), ttls)
revocations = st.builds(Revoke, names, st.booleans(), st.sampled_from([None, None, 0, -1]))
operations = st.one_of(plain, queueing, children, releases, releases, renewals, revocations)
singles = st.lists(operations, min_size=1, max_size=1)
undisputed = st.lists(st.one_of(plain, releases, renewals), min_size=2, unique_by=lambda op: op.resource)
calls = st.tuples(st.one_of(singles, singles, undisputed, st.lists(operations, max_size=6)), st.integers(0, 1))
passes = st.sampled_from([0.000001, 0.02, 0.1, 1, 3, 7, 61])
steps = st.one_of(calls, calls, calls, calls, passes, st.sampled_from(["back", "forward", "collect"]))


class ServerClock(FakeClock):
    """As on a server that has only a wall clock."""

    def host_ns(self) -> int:
        return self.wall_us() * 1000


class CountingTable(MemoryTable):
    """Raises the floor at every grant, as the namespace's counter does."""

    def save(self, entry: Entry) -> None:
        super().save(entry)
        self.floor = max(self.floor, entry.token)


class Side:
    """A kind of store, and what came out of it."""

    def __init__(self, stores: list[Any], *, watched: bool) -> None:
        self.stores = stores
        self.subscription: Subscription = stores[0].subscribe("" if watched else None)
        self.latest = dict.fromkeys(RESOURCES, 0)

    def apply(self, ops: list[Op], which: int) -> list[Outcome]:
        ready = [self.localised(op) for op in ops]
        outcomes: list[Outcome] = self.stores[which % len(self.stores)].apply(ready, timeout=5)
        for op, outcome in zip(ops, outcomes, strict=True):
            if isinstance(outcome, Granted):
                self.latest[op.resource] = outcome.token
        return outcomes

    def localised(self, op: Op) -> Op:
        if isinstance(op, Acquire):
            if op.parent is not None:
                name, off = op.parent
                op = op._replace(parent=(name, self.latest[name] + off))
            return op._replace(notify=self.subscription.address) if op.notify else op
        if isinstance(op, Release) or op.token is None:
            return op
        return op._replace(token=self.latest[op.resource] + op.token)

    def state(self) -> tuple[list[Record | None], list[Record]]:
        store = self.stores[0]
        return store.read(RESOURCES, timeout=5), list(store.scan("", timeout=5))

    def news(self) -> list[Event | Notice]:
        news: list[Event | Notice] = []
        while came := self.subscription.get(0):
            news += came
        return [item._replace(address=HERE) if isinstance(item, Notice) else item for item in news]


class RedisSide(Side):
    def __init__(self, stores: list[RedisStore], raw: redis.Redis, *, watched: bool) -> None:
        super().__init__(stores, watched=watched)
        self.raw = raw

    def news(self) -> list[Event | Notice]:
        """All that came before a last word, which is said now."""
        assert self.raw.publish(f"{self.stores[0]._prefix}n:{self.subscription.address}", LAST_WORD) == 1
        news: list[Event | Notice] = []
        while not (news and isinstance(news[-1], Notice) and news[-1].lease_id == MARK):
            came = self.subscription.get(5)
            assert came
            news += came
        return [item._replace(address=HERE) if isinstance(item, Notice) else item for item in news[:-1]]

    def forget(self, resources: set[str]) -> None:
        for name in resources:
            self.raw.delete(f"{self.stores[0]._prefix}r:{name}")


def comparable(outcomes: list[Outcome]) -> list[Any]:
    return [(type(o.error), str(o.error)) if isinstance(o, Unknown) else o for o in outcomes]


def by_kind(news: list[Event | Notice]) -> tuple[dict[str, list[Event]], list[Notice]]:
    """Calls and events travel apart; calls have their order, and the events of each resource."""
    events = [n for n in news if isinstance(n, Event)]
    sorted_events = {name: [e for e in events if e.resource == name] for name in RESOURCES}
    return sorted_events, [n for n in news if isinstance(n, Notice)]


@contextmanager
def sides(server: RedisServer, clock: FakeClock, *, watched: bool) -> Iterator[tuple[Side, RedisSide]]:
    model = MemoryStore(StoreURL.parse("memory://equivalence-redis"), clock)
    model._table = CountingTable()
    place = StoreURL.parse(f"{server.url}?namespace=equivalence-{next(serials)}")
    stores = [RedisStore(place, clock), RedisStore(place, clock)]
    for store in stores:
        store._now_us = clock.wall_us
    with server.client() as raw:
        raw.flushall()
        memory, there = Side([model], watched=watched), RedisSide(stores, raw, watched=watched)
        try:
            yield memory, there
        finally:
            there.subscription.close()
            for store in stores:
                store.close()


def follow(clock: FakeClock, step: Any, both: tuple[Side, RedisSide]) -> None:
    """Take one step on both sides, and compare what came of it."""
    memory, there = both
    if isinstance(step, tuple):
        outcomes = [comparable(side.apply(*step)) for side in both]
        assert outcomes[1] == outcomes[0]
    elif step == "back":
        clock.set_wall(clock.wall_us() - 3_600_000_000)
    elif step == "forward":
        clock.set_wall(clock.wall_us() + 3_600_000_000)
    elif step == "collect":
        entries = memory.stores[0]._table.entries
        known = set(entries)
        memory.stores[0].collect()
        there.forget(known - set(entries))
    else:
        clock.advance(step)
    assert there.state() == memory.state()


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
@settings(max_examples=scaled(1000), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
@given(story=st.lists(steps, min_size=10, max_size=40))
def test_redis_does_what_memory_does(server: RedisServer, *, watched: bool, story: list[Any]) -> None:
    clock = ServerClock()
    with sides(server, clock, watched=watched) as both:
        for step in story:
            follow(clock, step, both)
            heard = [by_kind(side.news()) for side in both]
            assert heard[1] == heard[0]


def test_a_batch_with_one_resource_many_times_over(server: RedisServer) -> None:
    clock = ServerClock()
    batch: list[Op] = []
    for turn in range(100):
        lease_id = f"id{turn}"
        batch += [
            Acquire("x", lease_id, "h", SECOND),
            Acquire("x", lease_id, "h", SECOND),
            Acquire("x", "other", "o", SECOND, queue=turn % 7 == 0),
            Renew("x", lease_id, 0, 2 * SECOND),
            Release("x", lease_id, abandon=turn % 3 == 0),
            Release("x", "other"),
        ]
    with sides(server, clock, watched=False) as both:
        follow(clock, (batch, 0), both)


@pytest.mark.parametrize("step", ["back", "forward"])
def test_the_server_clock_is_set_while_something_is_held(server: RedisServer, step: str) -> None:
    """The shortcuts count on a clock that goes forward, and leave the rest to the rules."""
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        for turn in range(3):
            follow(clock, ([Acquire("x", f"A{turn}", "h", SECOND)], 0), both)
            follow(clock, step, both)
            follow(clock, ([Release("x", f"A{turn}")], 0), both)
            follow(clock, ([Acquire("x", f"B{turn}", "h", SECOND)], 0), both)
            follow(clock, ([Acquire("y", f"A{turn}", "h", SECOND), Release("y", f"A{turn}")], 1), both)
            follow(clock, 7200, both)


@pytest.mark.parametrize("later", [0.000001, 0.05, 0.1, 0.2, 7])
@pytest.mark.parametrize("asker", ["A", "B", "C", "D"])
def test_a_free_resource_that_somebody_waits_for(server: RedisServer, asker: str, later: float) -> None:
    """One call an operation, as the shortcuts like it: they must see the queue."""
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h-A", SECOND)], 0), both)
        for waiter in ("B", "C"):
            follow(clock, ([Acquire("x", waiter, f"h-{waiter}", SECOND, queue=True, notify=HERE)], 0), both)
        follow(clock, ([Release("x", "A")], 1), both)
        follow(clock, later, both)
        for ask in (asker, "D", "B", "C"):
            follow(clock, ([Acquire("x", ask, f"h-{ask}", SECOND)], 0), both)
            follow(clock, ([Release("x", ask)], 0), both)
        heard = [by_kind(side.news()) for side in both]
        assert heard[1] == heard[0]


def test_a_family_of_leases(server: RedisServer) -> None:
    """A parent renewed for days carries a child that has no time of its own, and its child, along; all end at once."""
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h", 10 * SECOND)], 0), both)
        follow(clock, ([Acquire("y", "B", "h", 0, parent=("x", 0))], 0), both)
        follow(
            clock, ([Acquire("y/z", "C", "h", 0, parent=("y", 0)), Acquire("x", "D", "d", SECOND, queue=True)], 1), both
        )
        for _ in range(3):
            follow(clock, ([Renew("x", "A", 0, 86_400 * SECOND)], 0), both)
            follow(clock, 86_000, both)
        prefix = both[1].stores[0]._prefix
        assert all(both[1].raw.pttl(f"{prefix}{key}") > 3_600_000 for key in ("r:y", "r:y/z", "c:x", "c:y"))
        follow(clock, ([Release("x", "A")], 0), both)
        heard = [by_kind(side.news()) for side in both]
        assert heard[1] == heard[0]
        assert both[1].raw.exists(f"{prefix}c:x", f"{prefix}c:y") == 0


def test_levels_and_cycles(server: RedisServer) -> None:
    clock = ServerClock()
    with sides(server, clock, watched=False) as both:
        for side in both:
            side.latest |= {f"l{n}": 0 for n in range(12)}
        follow(clock, ([Acquire("l0", "A", "h", SECOND)], 0), both)
        for n in range(1, 12):
            follow(clock, ([Acquire(f"l{n}", "A", "h", SECOND, parent=(f"l{n - 1}", 0))], 0), both)
        follow(clock, ([Acquire("l0", "B", "h", SECOND, parent=("l3", 0))], 0), both)
        follow(clock, ([Acquire("x", "B", "h", SECOND, parent=("x", 0))], 0), both)


@pytest.mark.parametrize("token", [TOKEN_LIMIT - 2, TOKEN_LIMIT - 1, 2**52 + 1, 4_503_599_627_370_497])
def test_tokens_are_exact_up_to_the_limit(server: RedisServer, token: int) -> None:
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h", SECOND, seen_token=token - 1)], 0), both)
        follow(clock, ([Renew("x", "A", 0, SECOND), Revoke("x", token=token - 1), Revoke("x", token=token)], 0), both)
        assert by_kind(both[1].news()) == by_kind(both[0].news())
        assert both[1].raw.get(f"{both[1].stores[0]._prefix}token") == str(token)
        follow(clock, ([Acquire("y", "B", "h", SECOND)], 1), both)
