"""The nodes: readable, without secrets, and none left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from lessor import Client, LeaseHeld
from lessor.core.lease import TOKEN_LIMIT
from lessor.core.ops import Acquire, Granted, Held, Lost, NotHeld, Release, Released, Renew, Renewed, Revoke, Unknown
from lessor.errors import ConfigError
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.stores.zookeeper.layout import decode, encode
from lessor.testing.conformance.base import PATIENCE, new_id, ns, take, taken, until
from lessor.testing.conformance.naming import ODD
from tests.servers.zookeeper import ZooKeeperServer, zookeeper_server
from tests.stores.zookeeper.tree import LASTING, Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.stores.zookeeper import ZooKeeperStore


@pytest.mark.parametrize("name", [*ODD, "\ue000", "\uffff", "a\u2028b", "%", "100%/a"])
def test_a_name_is_one_node_and_comes_back(name: str) -> None:
    assert "/" not in encode(name)
    assert encode(name) not in {".", "..", ""}
    assert decode(encode(name)) == name


def test_ordinary_names_are_readable() -> None:
    assert encode("reports-2024:nightly_7") == "reports-2024:nightly_7"
    assert encode("jobs/nightly") == "jobs%2Fnightly"
    assert encode("Überweisung") == "Überweisung"


def test_a_lease_is_an_ephemeral_node_whose_zxid_is_the_token(store: ZooKeeperStore, tree: Tree) -> None:
    lease_id = new_id()
    token = taken(store, "jobs/nightly", 30, lease_id, metadata='{"why":"because"}').token
    node, stat = tree.get("/leases/jobs%2Fnightly")
    assert stat.czxid == token
    assert stat.ephemeralOwner != 0
    assert (node["resource"], node["holder"], node["ttl"]) == ("jobs/nightly", "somebody", ns(30))
    store.apply([Renew("jobs/nightly", lease_id, token, ns(30))], timeout=PATIENCE)
    assert tree.get("/leases/jobs%2Fnightly")[1].czxid == token
    assert lease_id not in tree.everything()


def test_a_waiter_is_a_node_in_the_queue_and_shows_no_secret(store: ZooKeeperStore, tree: Tree) -> None:
    waiter = new_id()
    taken(store, "job", 30)
    assert isinstance(take(store, "job", 30, waiter, queue=True), Held)
    [path] = [path for path in tree.paths() if path.startswith("/queue/job/")]
    assert tree.get(path)[0]["holder"] == "somebody"
    assert waiter not in tree.everything()


def test_a_family_that_runs_out_leaves_nothing(store: ZooKeeperStore, tree: Tree) -> None:
    token = taken(store, "top", 1).token
    for n in range(3):
        taken(store, f"part/{n}", 0, parent=("top", token))
    assert isinstance(store.apply([Revoke("part/1")], timeout=PATIENCE)[0], Released)
    until(lambda: tree.left() == set(), "an end without a trace")


def test_what_a_dead_client_leaves_of_a_family_is_deleted_by_the_next_one(
    opened: Callable[[], ZooKeeperStore], tree: Tree
) -> None:
    one, other = opened(), opened()
    token = taken(one, "top", 1).token
    taken(one, "part", 0, parent=("top", token))
    one.close()  # without a word to the servers, since something is held
    until(lambda: all(path.count("/") == 2 and path.startswith("/children/") for path in tree.left()), "its end")
    [left] = tree.left()
    token = taken(other, "top", 30).token
    taken(other, "part", 0, parent=("top", token))
    until(lambda: left not in tree.paths(), "the end of what was left")
    assert len([path for path in tree.paths() if path.startswith("/children/")]) == 2, "its own stays"


def test_there_is_no_folder_for_what_would_stand_under_a_lease_that_is_over(store: ZooKeeperStore, tree: Tree) -> None:
    token = taken(store, "top", 30).token
    [own] = tree.paths("/ids") - {"/ids"}
    tree.delete(own)  # as the servers do when its session ends
    assert isinstance(take(store, "part", 0, parent=("top", token)), Lost)
    until(lambda: tree.paths("/children") == {"/children"}, "no folder")


def test_a_queue_whose_waiters_are_dead_is_deleted_by_the_servers() -> None:
    """Who would otherwise do that is the next one that acquires it, if there ever is one."""
    with zookeeper_server(options=("-Dznode.container.checkIntervalMs=200",)) as server:
        one, other = open_store(server.url, SYSTEM), open_store(server.url, SYSTEM)
        taken(one, "job", 30)
        assert isinstance(take(other, "job", 30, queue=True), Held)
        client = KazooClient(server.address)
        client.start()
        tree = Tree(client, "/lessor/default")
        assert len(tree.paths("/queue")) == 3
        other.close()
        until(lambda: tree.paths("/queue") == {"/queue"}, "no queue")
        client.stop()
        client.close()
        one.close()


def test_a_release_leaves_nothing(store: ZooKeeperStore, tree: Tree) -> None:
    ids = [new_id() for _ in range(20)]
    for at, lease_id in enumerate(ids):
        taken(store, f"job/{at}", 30, lease_id)
    store.apply([Release(f"job/{at}", lease_id) for at, lease_id in enumerate(ids)], timeout=PATIENCE)
    assert tree.left() == set()


def test_an_expiry_leaves_nothing(store: ZooKeeperStore, tree: Tree) -> None:
    taken(store, "job", 0.2)
    until(lambda: tree.left() == set(), "the end of it")


def test_a_thousand_failed_tries_leave_no_node_and_no_watch(
    store: ZooKeeperStore, tree: Tree, zookeeper: ZooKeeperServer
) -> None:
    taken(store, "job", 60)
    before, watches = tree.paths(), zookeeper.count("zk_watch_count")
    for _ in range(10):
        ops = [Acquire("job", new_id(), "h", ns(60)) for _ in range(100)]
        assert all(isinstance(outcome, Held) for outcome in store.apply(ops, timeout=60))
    assert tree.paths() == before
    assert zookeeper.count("zk_watch_count") <= watches


def test_waits_in_vain_leave_no_node_and_no_watch(url: str, tree: Tree, zookeeper: ZooKeeperServer) -> None:
    with Client(url) as one, Client(url) as other:
        one.acquire("job", ttl=60)
        other.acquire("other", ttl=60)  # from here on it has all that it needs
        before, watches = tree.paths(), zookeeper.count("zk_watch_count")
        for _ in range(20):
            with pytest.raises(LeaseHeld):
                other.acquire("job", ttl=60, wait=0.01)
        until(lambda: tree.paths() == before, "an empty queue")
        until(lambda: zookeeper.count("zk_watch_count") <= watches, "no watches")


def test_closing_a_client_leaves_nothing(url: str, tree: Tree) -> None:
    with Client(url) as client:
        client.acquire("job", ttl=30)
        client.try_acquire("other", ttl=20)
    until(lambda: tree.paths() == LASTING, "nothing")


def test_one_request_renews_all_leases_of_a_session(store: ZooKeeperStore, zookeeper: ZooKeeperServer) -> None:
    ids = [new_id() for _ in range(500)]
    grants = store.apply([Acquire(f"r/{at}", ids[at], "h", ns(60)) for at in range(500)], timeout=60)
    before = zookeeper.count("zk_packets_received")
    ops = [
        Renew(f"r/{at}", ids[at], grant.token, ns(60)) for at, grant in enumerate(grants) if isinstance(grant, Granted)
    ]
    outcomes = store.apply(ops, timeout=60)
    assert len(outcomes) == 500
    assert all(isinstance(outcome, Renewed) for outcome in outcomes)
    assert zookeeper.count("zk_packets_received") - before < 20


def test_one_revoked_lease_among_many_does_not_harm_the_others(store: ZooKeeperStore) -> None:
    ids = [new_id() for _ in range(50)]
    tokens = [taken(store, f"r/{at}", 60, ids[at]).token for at in range(50)]
    store.apply([Revoke("r/7"), Revoke("r/9", force=True)], timeout=PATIENCE)
    outcomes = store.apply([Renew(f"r/{at}", ids[at], tokens[at], ns(60)) for at in range(50)], timeout=60)
    lost = {at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, Lost)}
    assert {at: outcome.reason for at, outcome in lost.items()} == {7: "revoked", 9: "revoked"}
    assert lost[7].remaining_ns > 0
    assert lost[9].remaining_ns == 0


def test_tokens_go_on_above_what_a_client_has_seen_in_an_ensemble_that_was_lost(
    store: ZooKeeperStore, tree: Tree
) -> None:
    seen = 10**12
    first = taken(store, "job", 30, seen_token=seen).token
    assert first > seen
    assert taken(store, "other", 30).token > first
    node, stat = tree.get("/leases/job")
    assert stat.czxid + node["offset"] == first


def test_a_token_that_would_be_too_large_is_refused(store: ZooKeeperStore, tree: Tree) -> None:
    outcome = take(store, "job", 30, seen_token=TOKEN_LIMIT - 1)
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, ConfigError)
    assert tree.left() == set()


def test_a_namespace_that_somebody_has_deleted_is_made_again(store: ZooKeeperStore, tree: Tree) -> None:
    """Whatever was held is lost."""
    lease_id = new_id()
    token = taken(store, "job", 30, lease_id).token
    tree.delete()
    until(lambda: isinstance(take(store, "other", 30), Granted), "a lease")
    assert isinstance(store.apply([Renew("job", lease_id, token, ns(30))], timeout=PATIENCE)[0], Lost)
    until(lambda: isinstance(take(store, "job", 30), Granted), "another lease on the same")


def test_tokens_go_on_in_a_namespace_that_is_made_again(store: ZooKeeperStore, tree: Tree) -> None:
    """The servers' own numbers are below what a client had seen elsewhere, and what was added to them is deleted."""
    first = taken(store, "job", 30, seen_token=10**12).token
    tree.delete()
    granted: list[Granted] = []

    def is_granted() -> bool:
        outcome = take(store, "job", 30)
        if isinstance(outcome, Granted):
            granted.append(outcome)
        return bool(granted)

    until(is_granted, "another lease")
    assert granted[0].token > first


def test_a_folder_that_somebody_has_deleted_is_made_again(store: ZooKeeperStore, tree: Tree) -> None:
    taken(store, "job", 30)
    tree.delete("/sessions")
    until(lambda: isinstance(take(store, "other", 30), Granted), "a lease")


@pytest.mark.parametrize("ending", [Release("job", "mine"), Release("job", "mine", abandon=True)])
def test_nothing_is_left_to_be_released_in_a_namespace_that_was_deleted(
    store: ZooKeeperStore, tree: Tree, ending: Release
) -> None:
    taken(store, "job", 30, "mine")
    tree.delete()
    assert isinstance(store.apply([ending], timeout=PATIENCE)[0], NotHeld)
    until(lambda: isinstance(take(store, "job", 30), Granted), "another lease")
