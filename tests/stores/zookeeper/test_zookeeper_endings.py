"""How leases end that have a minimum hold, a lock delay, a named successor, a parent or children."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import ConnectionLoss

from lessor.core.lease import Closed
from lessor.core.ops import (
    Acquire,
    Granted,
    Held,
    Loss,
    Lost,
    NotHeld,
    Release,
    Released,
    Renew,
    Renewed,
    Revoke,
    Unknown,
)
from lessor.errors import ConfigError
from lessor.stores.base import Capability
from lessor.stores.zookeeper import family
from lessor.testing.conformance.base import PATIENCE, new_id, ns, take, taken, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.ops import Op, Outcome
    from lessor.stores.zookeeper import ZooKeeperStore
    from tests.stores.zookeeper.tree import Tree


def why_closed(store: ZooKeeperStore, resource: str) -> Closed | None:
    (record,) = store.read([resource], timeout=PATIENCE)
    return record.closed if record is not None else None


def do(store: ZooKeeperStore, op: Op) -> Outcome:
    return store.apply([op], timeout=PATIENCE)[0]


def test_a_minimum_hold_keeps_it_closed_after_the_release(opened: Callable[[], ZooKeeperStore], tree: Tree) -> None:
    one, other = opened(), opened()
    lease_id = new_id()
    taken(one, "warm", 30)  # a connection is there
    taken(one, "job", 30, lease_id, hold_at_least_ns=ns(3))
    released = do(one, Release("job", lease_id))
    assert isinstance(released, Released)
    assert 0 < released.free_in_ns <= ns(3)
    for seen in (one, other):
        (record,) = seen.read(["job"], timeout=PATIENCE)
        assert record is not None
        assert record.closed is Closed.HOLD_AT_LEAST
    assert isinstance(take(other, "job", 30), Held)
    assert do(one, Renew("job", lease_id, 0, ns(30))) == Lost(Loss.RELEASED)
    until(lambda: isinstance(take(other, "job", 30), Granted), "its opening")


def test_a_lock_delay_keeps_it_closed_after_an_expiry_but_not_after_a_release(
    opened: Callable[[], ZooKeeperStore],
) -> None:
    one, other = opened(), opened()
    lease_id = new_id()
    taken(one, "job", 0.3, lease_id, lock_delay_ns=ns(1))
    until(lambda: why_closed(one, "job") is Closed.LOCK_DELAY, "the expiry")
    until(lambda: isinstance(take(other, "job", 30), Granted), "the end of the delay")
    taken(one, "free", 30, lease_id := new_id(), lock_delay_ns=ns(30))
    do(one, Release("free", lease_id))
    taken(other, "free", 30)


def test_only_its_own_client_tells_a_lock_delay_from_a_lease_that_is_held(
    opened: Callable[[], ZooKeeperStore],
) -> None:
    """So the store doesn't declare that it does. A plain revocation opens it for nobody, and one by force does."""
    one, other = opened(), opened()
    assert Capability.DELAY_SHOWN not in one.guarantees.capabilities
    token = taken(one, "job", 0.3, lock_delay_ns=ns(20)).token
    until(lambda: why_closed(one, "job") is Closed.LOCK_DELAY, "the expiry")
    held, refused = take(other, "job", 30), do(one, Revoke("job"))
    assert isinstance(held, Held)
    assert isinstance(refused, Held)
    assert (held.closed, refused.closed) == (None, Closed.LOCK_DELAY)
    assert why_closed(other, "job") is None
    assert isinstance(do(other, Revoke("job")), Released)
    assert isinstance(take(other, "job", 30), Held)
    assert do(other, Revoke("job", force=True)) == Released()
    assert taken(other, "job", 30).token > token


def test_by_force_its_own_client_ends_a_lock_delay(opened: Callable[[], ZooKeeperStore], tree: Tree) -> None:
    one, other = opened(), opened()
    token = taken(one, "job", 0.3, lock_delay_ns=ns(20)).token
    until(lambda: why_closed(one, "job") is Closed.LOCK_DELAY, "the expiry")
    assert do(one, Revoke("job", force=True)) == Released()
    assert taken(other, "job", 30).token > token


def test_what_is_opened_after_a_handover_is_kept_for_the_successor(opened: Callable[[], ZooKeeperStore]) -> None:
    one, other = opened(), opened()
    lease_id, heir = new_id(), new_id()
    subscription = other.subscribe()
    taken(one, "job", 30, lease_id, hold_at_least_ns=ns(30))
    wanted = Acquire("job", heir, "heir", ns(30), queue=True, notify=subscription.address)
    assert isinstance(do(other, wanted), Held)
    do(one, Release("job", lease_id, successor="heir", reserve_ns=ns(30), state="left"))
    assert do(other, Revoke("job")) == Released()
    assert other.read(["job"], timeout=PATIENCE) == [None]
    until(lambda: bool(subscription.get(1)), "the call")
    for barging in (one, other):
        held = take(barging, "job", 30)
        assert isinstance(held, Held)
        assert (held.by, held.closed) == ("", None)
    granted = do(other, wanted)
    assert isinstance(granted, Granted)
    assert granted.state == "left"


def test_a_named_successor_goes_first(opened: Callable[[], ZooKeeperStore]) -> None:
    one, other = opened(), opened()
    lease_id = new_id()
    taken(one, "job", 30, lease_id)
    assert do(one, Release("job", lease_id, successor="heir")) == Released()
    refused = take(other, "job", 30)
    granted = do(other, Acquire("job", new_id(), "heir", ns(30)))
    assert isinstance(refused, Held)
    assert isinstance(granted, Granted)


def test_what_is_left_for_a_successor_is_there_when_the_minimum_hold_is_over(
    opened: Callable[[], ZooKeeperStore],
) -> None:
    """The successor is another client, which doesn't know when that is; and it is neither early nor late."""
    one, other = opened(), opened()
    lease_id, heir = new_id(), new_id()
    subscription = other.subscribe()
    taken(one, "warm", 60)  # a connection is there
    taken(other, "too", 60)
    start = one._desk.clock.now()
    taken(one, "job", 60, lease_id, hold_at_least_ns=ns(3))
    wanted = Acquire("job", heir, "heir", ns(60), queue=True, notify=subscription.address)
    assert isinstance(do(other, wanted), Held)
    handover = Release("job", lease_id, successor="heir", reserve_ns=ns(50), state="left")
    assert isinstance(do(one, handover), Released)
    outcome = do(other, wanted)
    while isinstance(outcome, Held):
        until(lambda: bool(subscription.get(1)), "the call")
        outcome = do(other, wanted)
    assert isinstance(outcome, Granted)
    assert outcome.state == "left"
    assert one._desk.clock.now() - start >= ns(3)
    subscription.close()


def test_a_successor_that_does_not_come_holds_nobody_up(store: ZooKeeperStore) -> None:
    lease_id = new_id()
    taken(store, "job", 30, lease_id)
    do(store, Release("job", lease_id, successor="heir"))
    until(lambda: isinstance(take(store, "job", 30), Granted), "its end", 5)


def test_children_end_with_their_parent(opened: Callable[[], ZooKeeperStore], tree: Tree) -> None:
    """Those of other clients too; and what stands under children."""
    one, other = opened(), opened()
    parent, child = new_id(), new_id()
    token = taken(one, "parent", 30, parent).token
    under = taken(one, "child", 30, child, parent=("parent", token)).token
    strange = new_id()
    foreign = taken(other, "foreign", 30, strange, parent=("parent", token)).token
    taken(one, "grandchild", 30, parent=("child", under))
    assert [record.resource for record in one.scan("", timeout=PATIENCE)] == [
        "child",
        "foreign",
        "grandchild",
        "parent",
    ]
    assert isinstance(do(one, Renew("parent", parent, token, ns(30))), Renewed)
    assert isinstance(do(other, Renew("foreign", strange, foreign, ns(30))), Renewed)
    assert isinstance(do(one, Release("parent", parent)), Released)
    assert list(one.scan("", timeout=PATIENCE)) == []
    assert isinstance(do(one, Renew("child", child, under, ns(30))), Lost)
    assert isinstance(do(other, Renew("foreign", strange, foreign, ns(30))), Lost)
    until(lambda: tree.left() == set(), "nothing left")


def test_a_forced_revocation_ends_the_children_too(store: ZooKeeperStore) -> None:
    token = taken(store, "parent", 30).token
    taken(store, "child", 30, parent=("parent", token))
    assert do(store, Revoke("parent", force=True)) == Released()
    assert list(store.scan("", timeout=PATIENCE)) == []
    taken(store, "child", 30)


@pytest.mark.parametrize("by_force", [False, True])
def test_more_children_than_fit_into_one_request_end_with_their_parent(
    opened: Callable[[], ZooKeeperStore], tree: Tree, *, by_force: bool
) -> None:
    """A thousand of the longest names: the servers would drop a connection that sends so much at once."""
    store, other = opened(), opened()
    parent = new_id()
    token = taken(store, "parent", 60, parent).token
    children = [Acquire(f"{n:04}{'x' * 508}", new_id(), "somebody", 0, parent=("parent", token)) for n in range(1000)]
    assert all(isinstance(outcome, Granted) for outcome in store.apply(children, timeout=60))
    ending = Revoke("parent", force=True) if by_force else Release("parent", parent)
    assert (other if by_force else store).apply([ending], timeout=60) == [Released()]
    assert list(other.scan("", timeout=60)) == []
    if not by_force:
        assert tree.left() == set()


def test_a_holder_hears_of_children_that_were_ended_before_their_parent_was_to_be(
    opened: Callable[[], ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There were too many for one request; and whoever ended the first ones has died since."""
    store, other = opened(), opened()
    parent, ids = new_id(), {name: new_id() for name in ("one", "two", "three")}
    token = taken(store, "parent", 30, parent).token
    for name, child in ids.items():
        taken(store, name, 0, child, parent=("parent", token))
    desk = other._desk
    commit = desk.commit

    def dies(*_: Any, **__: Any) -> None:
        raise ConnectionLoss

    def first(*args: Any, **terms: Any) -> Any:
        monkeypatch.setattr(desk, "commit", dies)
        return commit(*args, **terms)

    monkeypatch.setattr(family, "MOST_BYTES", 1)
    monkeypatch.setattr(desk, "commit", first)
    assert isinstance(do(other, Revoke("parent", force=True)), Unknown)
    renewed = do(store, Renew("parent", parent, token, ns(30)))
    assert isinstance(renewed, Renewed)
    assert renewed.ended == 1
    [gone] = [name for name, record in zip(ids, store.read([*ids], timeout=PATIENCE), strict=True) if record is None]
    assert do(store, Renew(gone, ids[gone], token, ns(30))) == Lost(Loss.EXPIRED)


def test_a_child_ends_when_its_parent_expires(opened: Callable[[], ZooKeeperStore]) -> None:
    one, other = opened(), opened()
    token = taken(one, "parent", 0.5).token
    mine, strange = new_id(), new_id()
    own = taken(one, "child", 30, mine, parent=("parent", token))
    assert own.ttl_ns <= ns(0.5)
    foreign = taken(other, "foreign", 30, strange, parent=("parent", token)).token
    until(lambda: one.read(["parent", "child", "foreign"], timeout=PATIENCE) == [None] * 3, "their end")
    assert do(one, Renew("child", mine, own.token, ns(30))) == Lost(Loss.EXPIRED)
    assert isinstance(take(one, "foreign", 30), Held), "its holder doesn't know yet, and was promised 30 s"
    assert do(other, Renew("foreign", strange, foreign, ns(30))) == Lost(Loss.EXPIRED)
    until(lambda: isinstance(take(one, "foreign", 30), Granted), "its end", 5)


def test_a_child_without_a_time_of_its_own_lasts_as_long_as_its_parent(store: ZooKeeperStore) -> None:
    parent = new_id()
    token = taken(store, "parent", 1, parent).token
    taken(store, "child", 0, parent=("parent", token))
    for _ in range(8):
        assert isinstance(do(store, Renew("parent", parent, token, ns(1))), Renewed)
        until(lambda: store.read(["child"], timeout=PATIENCE) != [None], "life")
        take(store, "nothing", 0.2)
    do(store, Release("parent", parent))
    assert store.read(["child"], timeout=PATIENCE) == [None]


def test_no_child_of_a_lease_that_is_over_or_of_itself(store: ZooKeeperStore) -> None:
    parent = new_id()
    token = taken(store, "parent", 30, parent).token
    assert take(store, "child", 30, parent=("parent", token + 1)) == Lost(Loss.EXPIRED)
    do(store, Release("parent", parent))
    assert take(store, "child", 30, parent=("parent", token)) == Lost(Loss.EXPIRED)
    itself = take(store, "child", 30, parent=("child", 1))
    assert isinstance(itself, Unknown)
    assert isinstance(itself.error, ConfigError)


def test_only_the_lease_that_was_meant_is_revoked(store: ZooKeeperStore) -> None:
    token = taken(store, "job", 30).token
    assert isinstance(do(store, Revoke("job", force=True, token=token + 1)), NotHeld)
    assert do(store, Revoke("job", force=True, token=token)) == Released()


def test_a_lease_revoked_by_force_does_not_take_the_next_one_along(store: ZooKeeperStore) -> None:
    """Its client sweeps up after it when its time is over, and finds another lease there."""
    taken(store, "job", 0.5)
    do(store, Revoke("job", force=True))
    newer = new_id()
    token = taken(store, "job", 30, newer).token
    take(store, "clock", 0.5)
    until(lambda: store.read(["clock"], timeout=PATIENCE) == [None], "that time")
    assert isinstance(do(store, Renew("job", newer, token, ns(30))), Renewed)
