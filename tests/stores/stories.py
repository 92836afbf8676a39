"""Stories of operations, and time that passes between them, for comparing a store with the memory store.

Memory applies the rules and nothing else, so it is the model: whatever a story asks, and however it is packed into
calls, both must give the same answers, show the same records, and say the same to those who listen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.lease import TOKEN_LIMIT
from lessor.core.ops import RESERVATION_NS, Acquire, Event, Granted, Notice, Release, Renew, Revoke, Unknown
from lessor.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Op, Outcome
    from lessor.stores.base import Subscription

MS = MILLISECOND
RESOURCES = ("x", "y", "y/z", "é/\U0001f512")
HERE = "here"
"""Stands for the address of the subscription, which each store draws for itself."""

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
    priority=st.sampled_from([0, 0, 0, 1, -1]),
    queue_limit=st.sampled_from([0, 0, 0, 1, 2]),
    recover=st.booleans(),
)
children = st.builds(lambda op, ttl: op._replace(ttl_ns=ttl) if op.parent else op, acquires, ttls | st.just(0))
queueing = acquires.map(lambda op: op._replace(queue=True, parent=None, seen_token=0))
heirs = st.sampled_from([None, None, None, "h-A"])
releases = st.builds(Release, names, ids, heirs, st.booleans(), state=st.just(""), reserve_ns=st.just(RESERVATION_NS))
handovers = st.builds(
    Release,
    names,
    ids,
    st.sampled_from(["h-A", "h-B", "h-C", "nobody"]),
    st.sampled_from([False, False, True]),
    st.sampled_from(["", "blob", "ü"]),
    st.sampled_from([100 * MS, SECOND, 60 * SECOND]),
)
renewals = st.builds(Renew, names, ids, st.sampled_from([0, 0, 0, -1, 1]), ttls)
revocations = st.builds(Revoke, names, st.booleans(), st.sampled_from([None, None, 0, -1]))
operations = st.one_of(plain, queueing, children, releases, releases, handovers, renewals, revocations)
singles = st.lists(operations, min_size=1, max_size=1)
undisputed = st.lists(st.one_of(plain, releases, renewals), min_size=2, unique_by=lambda op: op.resource)
calls = st.tuples(st.one_of(singles, singles, undisputed, st.lists(operations, max_size=6)), st.integers(0, 1))
passes = st.sampled_from([0.000001, 0.02, 0.1, 1, 3, 7, 61])
steps = st.one_of(calls, calls, calls, calls, passes, st.sampled_from(["back", "forward", "collect"]))
stories = st.lists(steps, min_size=10, max_size=40)

# Most of those who queue up want nothing else: one call an operation, about one resource, by a few who come and go.
few = st.sampled_from("ABCD")
lining_up = st.builds(
    lambda lease_id, ttl, queue, notify: Acquire("x", lease_id, "h-" + lease_id, ttl, queue, notify),
    few,
    ttls,
    st.sampled_from([True, True, True, False]),
    st.sampled_from([HERE, HERE, HERE, ""]),
)
ending = few.map(lambda lease_id: Release("x", lease_id))  # builds() would make up the rest, such as a time of 1 ns
going_on = st.builds(Renew, st.just("x"), few, st.sampled_from([0, 0, 0, -1]), ttls)
turn = st.tuples(
    st.lists(st.one_of(lining_up, lining_up, lining_up, ending, ending, going_on, operations), min_size=1, max_size=1),
    st.integers(0, 1),
)
turns = st.lists(st.one_of(*[turn] * 7, passes, st.sampled_from(["back", "collect"])), min_size=10, max_size=40)


EPISODES: dict[str, list[Any]] = {
    "priorities, and a bound": [
        ([Acquire("x", "A", "h-A", SECOND)], 0),
        ([Acquire("x", "B", "h-B", SECOND, queue=True, notify=HERE, queue_limit=3)], 1),
        ([Acquire("x", "C", "h-C", SECOND, queue=True, notify=HERE, priority=2, queue_limit=3)], 0),
        ([Acquire("x", "D", "h-D", SECOND, queue=True, notify=HERE, priority=-(2**31), queue_limit=3)], 0),
        ([Acquire("x", "E", "h-E", SECOND, queue=True, priority=1, queue_limit=3)], 0),
        (
            [Acquire("x", "B", "h-B", SECOND, queue=True, queue_limit=1), Acquire("x", "F", "h-F", SECOND, priority=1)],
            0,
        ),
        ([Release("x", "A")], 0),
        ([Acquire("x", "B", "h-B", SECOND), Acquire("x", "E", "h-E", SECOND, queue=True, queue_limit=3)], 0),
        0.1,
        ([Acquire("x", "D", "h-D", SECOND)], 0),
        ([Acquire("x", "B", "h-B", SECOND)], 0),
    ],
    "handed over to one that waits": [
        ([Acquire("x", "A", "h-A", SECOND)], 0),
        ([Acquire("x", i, f"h-{i}", SECOND, queue=True, notify=HERE) for i in "BCD"], 0),
        ([Release("x", "A", "h-C", state="ü", reserve_ns=SECOND)], 0),
        ([Acquire("x", "B", "h-B", SECOND), Acquire("x", "E", "h-C", SECOND)], 0),
        ([Release("x", "B")], 0),
        ([Acquire("x", "C", "h-C", SECOND)], 0),
        ([Acquire("x", "C", "h-C", SECOND), Renew("x", "C", 0, SECOND)], 1),
        ([Release("x", "C")], 0),
        ([Acquire("x", "D", "h-D", SECOND)], 0),
    ],
    "handed over to one that comes": [
        ([Acquire("x", "A", "h-A", SECOND, hold_at_least_ns=SECOND)], 0),
        ([Acquire("x", i, f"h-{i}", SECOND, queue=True, notify=HERE) for i in "BCD"], 0),
        ([Release("x", "A", "other", state="left", reserve_ns=10 * SECOND)], 0),
        ([Release("x", "B")], 0),
        1,
        ([Release("x", "C")], 0),
        ([Acquire("x", "E", "other", SECOND, queue=True)], 0),
        3,
        ([Acquire("x", "F", "h-F", SECOND)], 0),
    ],
    "handed over to one that never comes": [
        ([Acquire("x", "A", "h-A", SECOND)], 0),
        ([Acquire("x", i, f"h-{i}", SECOND, queue=True, notify=HERE) for i in "BC"], 0),
        ([Release("x", "A", "nobody", state="left", reserve_ns=SECOND, abandon=True)], 0),
        ([Acquire("x", "C", "h-C", SECOND)], 0),
        1,
        ([Acquire("x", "C", "h-C", SECOND, queue=True)], 0),
        0.1,
        ([Acquire("x", "C", "h-C", SECOND, queue=True)], 0),
        ([Acquire("x", "D", "nobody", SECOND)], 0),
    ],
    "closed after a release, and opened": [
        ([Acquire("x", "A", "h-A", 9 * SECOND, hold_at_least_ns=60 * SECOND, soft_ns=SECOND, grace_ns=SECOND)], 0),
        ([Acquire("x", i, f"h-{i}", SECOND, queue=True, notify=HERE) for i in "BC"], 0),
        ([Release("x", "A")], 0),
        ([Acquire("x", i, f"h-{i}", SECOND, queue=True, notify=HERE, queue_limit=2) for i in "BD"], 0),
        ([Revoke("x", token=-1)], 0),
        ([Revoke("x")], 0),
        ([Acquire("x", "C", "h-C", SECOND)], 0),
        ([Acquire("x", "B", "h-B", SECOND, hold_at_least_ns=60 * SECOND)], 0),
        ([Release("x", "B")], 0),
        ([Release("x", "C")], 0),
        ([Revoke("x", force=True), Revoke("x")], 0),
        ([Acquire("x", "E", "h-E", SECOND)], 0),
    ],
    "closed after a handover, and opened": [
        ([Acquire("x", "A", "h-A", 9 * SECOND, hold_at_least_ns=60 * SECOND)], 0),
        ([Acquire("x", i, f"h-{i}", SECOND, queue=True, notify=HERE) for i in "BC"], 0),
        ([Release("x", "A", "other", state="left", reserve_ns=SECOND)], 0),
        ([Acquire("x", "E", "other", SECOND)], 0),
        ([Revoke("x")], 0),
        ([Acquire("x", "B", "h-B", SECOND)], 0),
        ([Acquire("x", "E", "other", SECOND, hold_at_least_ns=60 * SECOND)], 0),
        ([Release("x", "E", "h-C", state="more", reserve_ns=SECOND)], 0),
        ([Revoke("x")], 0),
        ([Acquire("x", "B", "h-B", SECOND), Acquire("x", "C", "h-C", SECOND)], 0),
    ],
    "closed after an expiry, and opened by force": [
        ([Acquire("x", "A", "h-A", SECOND, lock_delay_ns=60 * SECOND, grace_ns=9 * SECOND, notify=HERE)], 0),
        ([Acquire("y", "Y", "h-Y", SECOND, parent=("x", 0))], 0),
        ([Revoke("x")], 0),
        1,
        ([Acquire("x", "B", "h-B", SECOND, queue=True, notify=HERE)], 0),
        ([Acquire("x", "A", "h-A", SECOND), Revoke("x")], 0),
        ([Revoke("x", force=True, token=-1), Revoke("x", force=True)], 0),
        ([Renew("x", "A", 0, SECOND)], 0),
        ([Acquire("x", "C", "h-C", SECOND), Acquire("x", "B", "h-B", SECOND)], 0),
    ],
    "challenged and counted, three levels deep": [
        ([Acquire("x", "A", "h-A", 10 * SECOND)], 0),
        ([Acquire("y", "B", "h-B", 0, parent=("x", 0))], 0),
        ([Acquire("y/z", "C", "h-C", 0, parent=("y", 0), notify=HERE, soft_ns=SECOND)], 0),
        ([Acquire("y/z", "D", "h-D", SECOND, queue=True, recover=True)], 0),
        1,
        ([Acquire("y/z", "D", "h-D", SECOND), Renew("y", "B", 0, SECOND)], 0),
        ([Acquire("y/z", "D", "h-D", SECOND, queue=True, recover=True), Renew("x", "A", 0, 10 * SECOND)], 1),
        ([Acquire("y/z", "E", "h-E", SECOND, recover=True)], 0),
        ([Renew("y/z", "C", 0, SECOND), Renew("y", "B", 0, SECOND)], 0),
        ([Revoke("y/z", force=True), Renew("x", "A", 0, 20 * SECOND)], 0),
        ([Revoke("y"), Renew("x", "A", 0, 20 * SECOND)], 0),
        ([Release("x", "A")], 0),
        ([Acquire("x", "B", "h-B", SECOND)], 0),
        ([Renew("x", "B", 0, SECOND)], 0),
    ],
}
"""What is new to a store can be left out of stories drawn at random, by chance; it is not left out of these."""


class ServerClock(FakeClock):
    """As on a server that has only a wall clock."""

    def host_ns(self) -> int:
        return self.wall_us() * 1000


class Side:
    """A kind of store, and what came out of it. Several stores take turns, as processes would."""

    def __init__(self, stores: Sequence[Any], *, watched: bool) -> None:
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

    def state(self) -> tuple[list[Record | None], list[Record], list[list[Contender]]]:
        store = self.stores[0]
        waiting = [store.waiters(name, timeout=5) for name in RESOURCES]
        return store.read(RESOURCES, timeout=5), list(store.scan("", timeout=5)), waiting

    def collect(self) -> None:
        self.stores[0].collect()

    def news(self) -> list[Event | Notice]:
        news: list[Event | Notice] = []
        while came := self.subscription.get(0):
            news += came
        return [item._replace(address=HERE) if isinstance(item, Notice) else item for item in news]


def comparable(outcomes: list[Outcome]) -> list[Any]:
    return [(type(o.error), str(o.error)) if isinstance(o, Unknown) else o for o in outcomes]


def by_kind(news: list[Event | Notice]) -> tuple[dict[str, list[Event]], list[Notice]]:
    """Calls and events travel apart; calls have their order, and the events of each resource."""
    events = [n for n in news if isinstance(n, Event)]
    sorted_events = {name: [e for e in events if e.resource == name] for name in RESOURCES}
    return sorted_events, [n for n in news if isinstance(n, Notice)]


def follow(clock: FakeClock, step: Any, both: tuple[Side, Side]) -> None:
    """Take one step on both sides, and compare what came of it."""
    model, other = both
    if isinstance(step, tuple):
        outcomes = [comparable(side.apply(*step)) for side in both]
        assert outcomes[1] == outcomes[0]
    elif step == "back":
        clock.set_wall(clock.wall_us() - 3_600_000_000)
    elif step == "forward":
        clock.set_wall(clock.wall_us() + 3_600_000_000)
    elif step == "collect":
        model.collect()
        other.collect()
    else:
        clock.advance(step)
    assert other.state() == model.state()


def hear(both: tuple[Side, Side]) -> None:
    """Compare what was said to those who listen."""
    heard = [by_kind(side.news()) for side in both]
    assert heard[1] == heard[0]


def many_on_one_resource() -> list[Op]:
    """Return a batch with one resource many times over."""
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
    return batch


FORGETFUL = 3
"""How many abandoned ids are remembered in the story below: with the true bound it would take minutes."""


def more_abandoned_than_remembered() -> list[Any]:
    """Return a story in which the first of the abandoned ids may be granted again."""
    steps: list[Any] = []
    for lease_id in ("A", "B", "A", "C", "D", "E", "E"):
        steps += [([Release("x", lease_id, abandon=True)], 0), 0.001]
    for lease_id in ("A", "B", "C", "D", "E"):
        steps.append(([Acquire("x", lease_id, "h", SECOND), Release("x", lease_id)], 0))
    return steps
