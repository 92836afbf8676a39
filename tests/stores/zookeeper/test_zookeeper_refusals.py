"""What the servers refuse for good: it is said at once, and not asked for again and again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from lessor.core.ops import Acquire, Granted, Release, Revoke, Unknown
from lessor.errors import ConfigError, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, new_id, ns, take, taken, until
from tests.servers.zookeeper import ZooKeeperServer, zookeeper_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.core.ops import Op
    from lessor.stores.zookeeper import ZooKeeperStore
    from tests.stores.zookeeper.tree import Tree

SOON = 3.0
"""Seconds that an answer may take."""
FEW = 100
"""Requests; who asks without a pause sends thousands."""


@pytest.fixture
def rationed() -> Iterator[ZooKeeperServer]:
    """A server that keeps to its quotas."""
    with zookeeper_server(options=("-Dzookeeper.enforceQuota=true",)) as server:
        yield server


@pytest.mark.parametrize(
    "refused",
    [
        lambda _: [Acquire("other", new_id(), "me", ns(30))],
        lambda _: [Acquire(f"r/{n}", new_id(), "me", ns(30)) for n in range(3)],
        lambda lease_id: [Release("job", lease_id)],
        lambda lease_id: [Release("job", lease_id, abandon=True)],
        lambda _: [Revoke("job", force=True)],
    ],
    ids=["acquire", "several", "release", "abandon", "revoke"],
)
def test_what_is_not_permitted_is_told_at_once(
    store: ZooKeeperStore, tree: Tree, zookeeper: ZooKeeperServer, refused: Callable[[str], list[Op]]
) -> None:
    lease_id = new_id()
    taken(store, "job", 30, lease_id)
    tree.protect("/leases", make_acl("world", "anyone", read=True, admin=True))
    before = zookeeper.count("zk_packets_received")
    ops = refused(lease_id)
    for outcome in store.apply(ops, timeout=SOON):
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, ConfigError), outcome.error
    assert zookeeper.count("zk_packets_received") - before < FEW
    assert store._desk.doubts == {}, "nothing was made that would have to be given back"
    tree.protect("/leases", make_acl("world", "anyone", all=True))
    assert not any(isinstance(outcome, Unknown) for outcome in store.apply(ops, timeout=PATIENCE))


def test_a_namespace_that_may_not_be_made_again_is_told(zookeeper: ZooKeeperServer) -> None:
    admin = KazooClient(zookeeper.address)
    admin.start()
    with contextlib.closing(open_store(f"zookeeper://{zookeeper.address}/kept", SYSTEM)) as store:
        taken(store, "job", 30)
        admin.set_acls("/kept", [make_acl("world", "anyone", read=True, delete=True, admin=True)])
        admin.delete("/kept/default", recursive=True)
        # The session's node is gone, too: the first one to ask is told so, and the next one why there is no other.
        outcomes = [take(store, "other", 30) for _ in range(2)]
        assert isinstance(outcomes[1], Unknown)
        assert isinstance(outcomes[1].error, ConfigError), outcomes
    admin.set_acls("/kept", [make_acl("world", "anyone", all=True)])
    admin.stop()
    admin.close()


def test_a_quota_that_is_used_up_is_told_at_once(rationed: ZooKeeperServer) -> None:
    store = open_store(rationed.url, SYSTEM)
    taken(store, "warm", 30)
    admin = KazooClient(rationed.address)
    admin.start()
    limits = "/zookeeper/quota/lessor/default/zookeeper_limits"
    admin.create(limits, b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1", makepath=True)
    admin.create("/zookeeper/quota/lessor/default/zookeeper_stats", b"count=0,bytes=0")
    before = rationed.count("zk_packets_received")
    [outcome] = store.apply([Acquire("job", new_id(), "me", ns(30))], timeout=SOON)
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, StoreUnavailable)
    assert "quota" in str(outcome.error)
    assert rationed.count("zk_packets_received") - before < FEW
    admin.delete(limits)
    until(lambda: isinstance(take(store, "job", 30), Granted), "its end")
    admin.stop()
    admin.close()
    store.close()
