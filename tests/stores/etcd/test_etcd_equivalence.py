"""The store answers as the rules do, whatever is asked and however it is packed into calls.

Memory applies the rules and nothing else, so it is the model. No lease runs out in these stories: etcd's have no clock
that a test could set. Tokens are revisions, and times are whole seconds, so neither is compared.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Lost, NotHeld, Op, Release, Renew, Renewed, Revoke
from lessor.stores.base import StoreURL
from lessor.stores.etcd import EtcdStore
from lessor.stores.memory import MemoryStore
from lessor.testing.clock import FakeClock
from tests.scale import scaled
from tests.stores.stories import EPISODES, RESOURCES, Side, handovers, ids, names, releases, renewals, revocations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.lease import Record
    from lessor.core.ops import Outcome
    from tests.servers.etcd import EtcdServer

serials = itertools.count()
TTL = 60 * SECOND
acquires = st.builds(
    lambda name, lease_id, queue, grace, parent, wishes: Acquire(
        name, lease_id, f"h-{lease_id}", TTL, queue=queue, grace_ns=grace, parent=parent
    )._replace(**wishes),
    names,
    ids,
    st.booleans(),
    st.sampled_from([0, 0, TTL]),
    st.none() | st.none() | st.tuples(names, st.sampled_from([0, 0, -1])),
    st.fixed_dictionaries(
        {},
        optional={
            "priority": st.sampled_from([1, -1]),
            "queue_limit": st.sampled_from([1, 2]),
            "recover": st.just(True),
            "soft_ns": st.sampled_from([1, TTL]),
            "hold_at_least_ns": st.just(TTL),
        },
    ),
)
handing = handovers.map(lambda op: op._replace(reserve_ns=TTL))
children = acquires.map(lambda op: op._replace(ttl_ns=0) if op.parent else op)
# No token of the future: the next one is a different step away in each store.
renewing = renewals.map(lambda op: op._replace(ttl_ns=TTL, token=min(0, op.token)))
operations = st.one_of(acquires, acquires, children, releases, releases, handing, renewing, revocations)
calls = st.tuples(st.lists(operations, min_size=1, max_size=5), st.integers(0, 1))
moments = st.just(0.000001)
"""Beyond a soft limit, and within any reservation."""
stories = st.lists(st.one_of(calls, calls, calls, moments), min_size=5, max_size=15)
Step: TypeAlias = tuple[list[Op], int] | float


def essence(outcome: Outcome) -> tuple[Any, ...]:
    if isinstance(outcome, Held):
        return Held, outcome.by, outcome.position, outcome.refused, outcome.closed
    if isinstance(outcome, Granted):
        return Granted, outcome.state
    if isinstance(outcome, Renewed):
        return Renewed, outcome.ended
    if isinstance(outcome, Lost):
        return Lost, outcome.reason
    if isinstance(outcome, NotHeld):
        return NotHeld, outcome.reason
    return (type(outcome),)


def shown(record: Record | None) -> tuple[Any, ...] | None:
    if record is None:
        return None
    parent = record.parent[0] if record.parent else None
    waiting = [waiter.holder for waiter in record.queue]
    return record.resource, record.holder, record.revoked, parent, waiting, record.closed, record.hold_at_least_ns


def follow(both: tuple[Side, Side], ops: list[Op], which: int) -> None:
    outcomes = [[essence(outcome) for outcome in side.apply(ops, which)] for side in both]
    assert outcomes[1] == outcomes[0]
    states = [side.state() for side in both]
    assert [shown(r) for r in states[1][0]] == [shown(r) for r in states[0][0]]
    assert [shown(r) for r in states[1][1]] == [shown(r) for r in states[0][1]]
    assert states[1][2] == states[0][2]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def run(server: EtcdServer, clock: FakeClock, story: Sequence[Step]) -> None:
    name = f"equivalence-etcd-{next(serials)}"
    place = StoreURL.parse(f"{server.url}?namespace={name}")
    stores = [EtcdStore(place, clock), EtcdStore(place, clock)]
    model = MemoryStore(StoreURL.parse(f"memory://{name}"), clock)
    both = Side([model], watched=False), Side(stores, watched=False)
    try:
        for step in story:
            if isinstance(step, tuple):
                follow(both, *step)
            else:
                clock.advance(step)
    finally:
        both[1].subscription.close()
        for store in stores:
            store.close()


@settings(
    max_examples=scaled(1000),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(story=stories)
def test_stories(server: EtcdServer, story: list[Step]) -> None:
    run(server, FakeClock(), story)


def lasting(op: Op) -> Op:
    """Return the operation with times that don't run out before an episode does."""
    if isinstance(op, Acquire):
        return op._replace(ttl_ns=60 * op.ttl_ns, hold_at_least_ns=op.hold_at_least_ns // TTL * TTL)
    return op._replace(ttl_ns=60 * op.ttl_ns) if isinstance(op, Renew) else op


@pytest.mark.parametrize("episode", EPISODES)
def test_an_episode(server: EtcdServer, clock: FakeClock, episode: str) -> None:
    steps = EPISODES[episode]
    run(server, clock, [([*map(lasting, step[0])], 0) if isinstance(step, tuple) else step for step in steps])


def test_a_family_that_ends_at_once(server: EtcdServer, clock: FakeClock) -> None:
    story: list[Step] = [
        ([Acquire("x", "A", "h-A", TTL)], 0),
        ([Acquire("y", "B", "h-B", 0, parent=("x", 0))], 1),
        ([Acquire("y/z", "C", "h-C", TTL, parent=("y", 0)), Acquire("y", "D", "h-D", TTL, queue=True)], 0),
        ([Acquire("x", "D", "h-D", TTL, queue=True)], 1),
        ([Release("x", "A")], 0),
        ([Acquire("y/z", "A", "h-A", TTL), Acquire("y", "A", "h-A", TTL), Acquire("y", "D", "h-D", TTL)], 1),
        ([Revoke(name, force=True) for name in RESOURCES], 0),
    ]
    run(server, clock, story)


def test_levels_and_cycles(server: EtcdServer) -> None:
    """Eight levels, and no more."""
    store = EtcdStore(StoreURL.parse(f"{server.url}?namespace=levels"), FakeClock())
    (granted,) = store.apply([Acquire("l0", "A", "h", TTL)], timeout=5)
    for level in range(1, 12):
        assert isinstance(granted, Granted) == (level <= 9), level
        if not isinstance(granted, Granted):
            break
        parent = (f"l{level - 1}", granted.token)
        (granted,) = store.apply([Acquire(f"l{level}", "A", "h", TTL, parent=parent)], timeout=5)
    store.close()
