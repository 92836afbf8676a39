"""Grants that are asked for at once: made in one transaction, and none at the expense of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.lease import encode_metadata
from lessor.core.ops import Acquire, Granted, Held, Release, Released, Unknown
from lessor.stores.zookeeper.connection import Connection
from lessor.stores.zookeeper.steps import MOST_GRANTS
from lessor.testing.conformance.base import PATIENCE, Thread, new_id, ns, take, taken, until
from tests.stores.interrupting import interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.stores.zookeeper import ZooKeeperStore
    from tests.servers.zookeeper import ZooKeeperServer
    from tests.stores.zookeeper.tree import Tree


def wanted(count: int, seen_token: int = 0) -> list[Acquire]:
    return [Acquire(f"job/{n}", new_id(), "me", ns(30), seen_token=seen_token) for n in range(count)]


def test_many_grants_take_a_few_requests_and_each_has_the_zxid_of_its_own(
    store: ZooKeeperStore, zookeeper: ZooKeeperServer, tree: Tree
) -> None:
    taken(store, "warm", 30)
    ops = wanted(2 * MOST_GRANTS + 1)
    before = zookeeper.count("zk_packets_received")
    outcomes = store.apply(ops, timeout=PATIENCE)
    assert zookeeper.count("zk_packets_received") - before < 20
    for n in (0, MOST_GRANTS, 2 * MOST_GRANTS):
        outcome = outcomes[n]
        assert isinstance(outcome, Granted)
        node, stat = tree.get(f"/leases/job%2F{n}")
        assert (node["resource"], stat.czxid) == (f"job/{n}", outcome.token)
    ended = store.apply([Release(op.resource, op.lease_id) for op in ops], timeout=PATIENCE)
    assert ended == [Released()] * len(ops)
    assert not any("job" in path for path in tree.left())


@pytest.mark.parametrize(("length", "requests"), [(50, 20), (900, 200)])
def test_metadata_beyond_the_basic_plane_is_as_long_as_it_is_sent(
    store: ZooKeeperStore, zookeeper: ZooKeeperServer, length: int, requests: int
) -> None:
    """Each of these is twelve bytes then: a hundred grants with a few share a transaction, with many they can't."""
    taken(store, "warm", 30)
    said = {"who": "\N{GRINNING FACE}" * length}
    ops = [op._replace(metadata=encode_metadata(said, limit=65536)) for op in wanted(MOST_GRANTS)]
    before = zookeeper.count("zk_packets_received")
    outcomes = store.apply(ops, timeout=PATIENCE)
    assert zookeeper.count("zk_packets_received") - before < requests
    assert [type(outcome) for outcome in outcomes] == [Granted] * MOST_GRANTS
    for record in store.read([op.resource for op in ops], timeout=PATIENCE):
        assert record is not None
        assert record.metadata == said


def test_what_somebody_else_holds_keeps_nobody_from_the_rest(opened: Callable[[], ZooKeeperStore]) -> None:
    one, other = opened(), opened()
    held = new_id()
    token = taken(other, "job/3", 30, held).token
    for _ in range(2):  # the second time it is known
        ops = wanted(6)
        outcomes = one.apply(ops, timeout=PATIENCE)
        assert [type(outcome) for outcome in outcomes] == [Granted, Granted, Granted, Held, Granted, Granted]
        refused = outcomes[3]
        assert isinstance(refused, Held)
        assert refused.token == token
        one.apply([Release(op.resource, op.lease_id) for op in ops], timeout=PATIENCE)
    other.apply([Release("job/3", held)], timeout=PATIENCE)
    assert all(isinstance(outcome, Granted) for outcome in one.apply(wanted(6), timeout=PATIENCE))


def test_what_somebody_waits_for_is_not_taken_along(opened: Callable[[], ZooKeeperStore]) -> None:
    one, other = opened(), opened()
    first = new_id()
    taken(other, "job/1", 30, first)
    assert isinstance(take(other, "job/1", 30, new_id(), queue=True), Held)
    other.apply([Release("job/1", first)], timeout=PATIENCE)
    outcomes = one.apply(wanted(3), timeout=PATIENCE)
    assert [type(outcome) for outcome in outcomes] == [Granted, Held, Granted]


def test_each_token_is_above_what_its_asker_has_seen(store: ZooKeeperStore) -> None:
    seen = taken(store, "before", 30).token + 1000
    ops = [*wanted(2), Acquire("high", new_id(), "me", ns(30), seen_token=seen)]
    *_, high = store.apply(ops, timeout=PATIENCE)
    assert isinstance(high, Granted)
    assert high.token > seen
    for op in ops[:2]:
        again = store.apply([op], timeout=PATIENCE)[0]
        assert isinstance(again, Granted)


def test_grants_whose_answer_was_lost_are_found_again(opened: Callable[[], ZooKeeperStore]) -> None:
    store, other = opened(), opened()
    taken(store, "warm", 30)
    ops = wanted(5)
    assert all(isinstance(outcome, Unknown) for outcome in store.apply(ops, timeout=0))  # sent, and not waited for
    names = [op.resource for op in ops]
    until(lambda: None not in other.read(names, timeout=PATIENCE), "the grants")
    records = other.read(names, timeout=PATIENCE)
    outcomes = store.apply(ops, timeout=PATIENCE)
    assert [outcome.token for outcome in outcomes if isinstance(outcome, Granted)] == [r.token for r in records if r]


def test_threads_that_ask_at_once_each_get_their_own(store: ZooKeeperStore, tree: Tree) -> None:
    taken(store, "warm", 30)

    def pairs(name: str) -> list[int]:
        tokens = []
        for _ in range(20):
            lease_id = new_id()
            tokens.append(taken(store, name, 30, lease_id).token)
            assert store.apply([Release(name, lease_id)], timeout=PATIENCE) == [Released()]
        return tokens

    threads = [Thread(lambda n=n: pairs(f"job/{n}")) for n in range(16)]  # type: ignore[misc]
    for thread in threads:
        tokens = thread.result()
        assert tokens == sorted(set(tokens))
    assert not any("job" in path for path in tree.left())


@pytest.mark.parametrize("where", ["if not self._is_open or self.client._queue or self._unsent:", "sent = 0"])
def test_an_interrupt_while_a_request_is_sent_leaves_a_store_that_works(store: ZooKeeperStore, where: str) -> None:
    """Nothing stays locked, and no answer is expected to what was not sent."""
    taken(store, "job", 30)
    with interrupted(Connection.send_now, where):
        take(store, "other", 30)
    for name in ("another", "yet another"):
        until(lambda name=name: isinstance(take(store, name, 30), Granted), f"{name}")  # type: ignore[misc]
