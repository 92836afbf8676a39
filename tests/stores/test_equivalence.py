"""The stores that run the rules give the same answers, whatever is asked and however it is packed into calls.

Memory applies the rules and nothing else, so it is the model. SQLite has shortcuts for the common cases; this is what
keeps them honest. Two SQLite stores share the file and take turns, as two processes would.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from leasehold.core.clock import MILLISECOND, SECOND
from leasehold.core.lease import TOKEN_LIMIT
from leasehold.core.ops import Acquire, Event, Granted, Notice, Release, Renew, Revoke, Unknown
from leasehold.stores.base import StoreURL
from leasehold.stores.memory import MemoryStore
from leasehold.stores.sqlite import SqliteStore
from leasehold.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.core.lease import Record
    from leasehold.core.ops import Op, Outcome
    from leasehold.stores.base import Subscription

MS = MILLISECOND
RESOURCES = ("x", "y", "y/z", "é/\U0001f512")
HERE = "here"
"""Stands for the address of the subscription, which each store draws for itself."""

QUICK_DISK = "/dev/shm" if os.path.isdir("/dev/shm") else None

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
releases = st.builds(Release, names, ids, st.sampled_from([None, None, None, "h-A"]), st.booleans())
renewals = st.builds(Renew, names, ids, st.sampled_from([0, 0, 0, -1, 1]), ttls)
revocations = st.builds(Revoke, names, st.booleans(), st.sampled_from([None, None, 0, -1]))
operations = st.one_of(plain, plain, children, releases, releases, renewals, revocations)
singles = st.lists(operations, min_size=1, max_size=1)
calls = st.tuples(singles | singles | st.lists(operations, max_size=6), st.integers(0, 1))
passes = st.sampled_from([0.000001, 0.02, 0.1, 1, 3, 7, 61])
steps = st.one_of(calls, calls, calls, calls, passes, st.sampled_from(["back", "forward", "collect"]))


class Side:
    """A kind of store, and what came out of it."""

    def __init__(self, stores: list[MemoryStore] | list[SqliteStore], *, watched: bool) -> None:
        self.stores = stores
        self.subscription: Subscription = stores[0].subscribe("" if watched else None)
        self.latest = dict.fromkeys(RESOURCES, 0)

    def apply(self, ops: list[Op], which: int) -> list[Outcome]:
        ready = [self.localised(op) for op in ops]
        outcomes = self.stores[which % len(self.stores)].apply(ready, timeout=1)
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
        return store.read(RESOURCES, timeout=1), list(store.scan("", timeout=1))

    def news(self) -> list[Event | Notice]:
        news: list[Event | Notice] = []
        while came := self.subscription.get(0):
            news += came
        return [item._replace(address=HERE) if isinstance(item, Notice) else item for item in news]


def comparable(outcomes: list[Outcome]) -> list[Any]:
    return [(type(o.error), str(o.error)) if isinstance(o, Unknown) else o for o in outcomes]


def by_kind(news: list[Event | Notice]) -> tuple[list[Event], list[Notice]]:
    """Calls and events travel apart; each kind has its order."""
    return [n for n in news if isinstance(n, Event)], [n for n in news if isinstance(n, Notice)]


@contextmanager
def sides(clock: FakeClock, *, watched: bool) -> Iterator[tuple[Side, Side]]:
    url = StoreURL.parse(f"memory://equivalence-{os.getpid()}-{next(serials)}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=QUICK_DISK))
        place = StoreURL.parse(f"sqlite:///{folder}/leases.db")
        files = [SqliteStore(place, clock), SqliteStore(place, clock)]
        for store in files:
            stack.callback(store.close)
        memory, sqlite = Side([MemoryStore(url, clock)], watched=watched), Side(files, watched=watched)
        stack.callback(memory.subscription.close)
        stack.callback(sqlite.subscription.close)
        yield memory, sqlite


def follow(clock: FakeClock, step: Any, both: tuple[Side, Side]) -> None:
    """Take one step on both sides, and compare what came of it."""
    memory, sqlite = both
    if isinstance(step, tuple):
        outcomes = [comparable(side.apply(*step)) for side in both]
        assert outcomes[1] == outcomes[0]
    elif step == "back":
        clock.set_wall(clock.wall_us() - 3_600_000_000)
    elif step == "forward":
        clock.set_wall(clock.wall_us() + 3_600_000_000)
    elif step == "collect":
        memory.stores[0].collect()
        sqlite.stores[0].collect()
    else:
        clock.advance(step)
    assert sqlite.state() == memory.state()


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
@settings(max_examples=150, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
@given(story=st.lists(steps, min_size=10, max_size=40))
def test_sqlite_does_what_memory_does(*, watched: bool, story: list[Any]) -> None:
    clock = FakeClock()
    with sides(clock, watched=watched) as both:
        for step in story:
            follow(clock, step, both)
            heard = [by_kind(side.news()) for side in both]
            assert heard[1] == heard[0]


def test_a_batch_with_one_resource_many_times_over() -> None:
    clock = FakeClock()
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
    with sides(clock, watched=False) as both:
        follow(clock, (batch, 0), both)


@pytest.mark.parametrize("size", [1, 2])
def test_a_common_day(size: int) -> None:
    """What the shortcuts are made for, one call at a time and two: take, hold, give back, again."""
    clock = FakeClock()
    with sides(clock, watched=False) as both:
        for turn in range(50):
            mine = [Acquire(name, f"id{turn}", "h", SECOND, metadata='{"n":"1"}') for name in RESOURCES[:size]]
            back = [Release(op.resource, op.lease_id) for op in mine]
            for ops in (mine, mine, [op._replace(lease_id="B") for op in mine], back, back):
                follow(clock, (ops, turn), both)
                clock.advance(0.001)
            if turn % 10 == 9:
                follow(clock, "back", both)
                follow(clock, "collect", both)


def test_an_id_abandoned_while_it_holds() -> None:
    clock = FakeClock()
    ask = Acquire("x", "A", "h", SECOND)
    with sides(clock, watched=False) as both:
        for ops in ([ask], [Release("x", "A")], [ask], [Release("x", "A", abandon=True)], [ask]):
            follow(clock, (ops, 0), both)


def test_children_that_ended_with_their_parent_are_forgotten() -> None:
    clock = FakeClock()
    with sides(clock, watched=False) as both:
        follow(clock, ([Acquire("x", "A", "h", SECOND)], 0), both)
        follow(clock, ([Acquire("y", "A", "h", 0, parent=("x", 0))], 0), both)
        follow(clock, 0.5, both)
        follow(clock, "collect", both)
        follow(clock, 7, both)
        follow(clock, "collect", both)
        follow(clock, ([Acquire("y", "A", "h", SECOND)], 0), both)
