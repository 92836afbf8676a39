"""Sessions while nodes die and come back: what rides on one lives as long as the session, and no longer."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.core.ops import Acquire, Granted, Release, Released, Renew, Renewed, Revoke
from lessor.core.paxos.messages import End
from lessor.errors import LeaseLost, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.paxos import frames
from lessor.stores.paxos.link import ask, connect
from lessor.stores.paxos.store import PaxosStore
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, new_id, ns, pass_time, until
from tests.servers.paxos import PaxosCluster, paxos_cluster
from tests.servers.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

TTL = 3.0
RIDERS = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[PaxosCluster]:
    with paxos_cluster(3, "--max-ttl", "4s") as cluster:
        yield cluster


class Rivals:
    """Somebody who wants all of it, all the time, and must not get any."""

    def __init__(self, url: str, names: list[str]) -> None:
        self.url, self.names = url, names
        self.got: list[str] = []
        self.asked = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with Client(self.url, holder="rival") as client:
            while not self._over.is_set():
                for name in self.names[:: len(self.names) // 5]:
                    with contextlib.suppress(StoreUnavailable):  # two nodes that don't agree are no majority
                        if client.try_acquire(name, ttl=TTL) is not None:
                            self.got.append(name)
                        self.asked += 1
                self._over.wait(0.1)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE)


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "shut down"])
def test_a_session_survives_the_restart_of_one_node_after_the_other(cluster: PaxosCluster, how: str) -> None:
    """Each comes back without what rides on the session, or with another incarnation, and is handed it again."""
    url = f"{cluster.url}?namespace=sessions-{how.replace(' ', '-')}"
    names = [f"part/{number}" for number in range(RIDERS)]
    with Client(url, holder="owner") as client, client.session(ttl=TTL) as session:
        leases = [session.acquire(name) for name in names]
        rivals = Rivals(url, names)
        for node in cluster.nodes:
            node.kill() if how == "killed" else node.shut_down()
            pass_time(TTL / 4)
            cluster.start(node)
            end = SYSTEM.now() + ns(2 * TTL)  # by then it has been handed all of it, in the course of two renewals
            while SYSTEM.now() < end:
                for lease in leases:
                    lease.check()
                pass_time(0.05)
        rivals.stop()
        assert rivals.asked > 20
        assert rivals.got == []
        leases[0].release()
        with Client(url) as other:
            assert other.try_acquire(names[0], ttl=TTL) is not None
            assert other.try_acquire(names[1], ttl=TTL) is None
    with Client(url) as other:
        assert len(other.try_each(names[1:], ttl=TTL)) == RIDERS - 1


def test_a_session_goes_on_without_a_minority_and_ends_for_all_at_once_without_a_majority(
    cluster: PaxosCluster,
) -> None:
    url = f"{cluster.url}?namespace=minority"
    with Client(url) as client:
        session = client.session(ttl=TTL)
        leases = [session.acquire(f"part/{number}") for number in range(20)]
        cluster.nodes[0].stop()
        try:
            leases.append(session.acquire("late"))
            pass_time(2 * TTL)
            for lease in leases:
                lease.check()
            cluster.nodes[1].stop()
            try:
                until(lambda: not any(lease.held for lease in leases), "the end of all")
                assert not session.lease.held
            finally:
                cluster.nodes[1].go_on()
        finally:
            cluster.nodes[0].go_on()


def test_what_was_given_back_is_free_with_any_majority_though_one_node_did_not_hear_of_it() -> None:
    """The way to that node was lost for a while, for less than the session's TTL."""
    with paxos_cluster(3) as cluster, Tunnel(cluster.nodes[2].port) as tunnel:
        first, second, _ = cluster.nodes
        mine = open_store(f"paxos://{first.place},{second.place},127.0.0.1:{tunnel.port}", SYSTEM)
        assert isinstance(mine, PaxosStore)
        session, rider = new_id(), new_id()
        (root,) = mine.apply([Acquire("session", session, "me", ns(20))], timeout=PATIENCE)
        assert isinstance(root, Granted)
        (granted,) = mine.apply([Acquire("job", rider, "me", 0, parent=("session", root.token))], timeout=PATIENCE)
        assert isinstance(granted, Granted)
        link = mine._engine.nodes[2].link
        assert link is not None
        tunnel.swallow()
        (released,) = mine.apply([Release("job", rider)], timeout=PATIENCE)
        assert isinstance(released, Released)
        tunnel.mend()
        link.shut()

        def renewed() -> bool:
            (renewal,) = mine.apply([Renew("session", session, root.token, ns(20))], timeout=PATIENCE)
            assert isinstance(renewal, Renewed)
            return mine._engine.nodes[2].link not in {None, link}

        until(renewed, "the way back")
        for _ in range(2):  # its answer may come when nobody listens, and is heard with the next one
            pass_time(0.1)
            renewed()
        first.kill()
        with contextlib.closing(open_store(cluster.url, SYSTEM)) as other:
            (granted,) = other.apply([Acquire("job", new_id(), "other", ns(2))], timeout=PATIENCE)
        assert isinstance(granted, Granted)
        mine.close()


def test_what_is_to_end_is_not_renewed_and_then_given_to_another() -> None:
    """One that a majority lacks has a rest of its time left. Its session sees to its end everywhere, after that."""
    with paxos_cluster() as cluster, Client(cluster.url) as client, Client(cluster.url) as other:
        a, _, _ = cluster.nodes
        with client.session(ttl=4) as session:
            lease = session.acquire("x")
            a.stop()
            store = client._engine.store
            assert isinstance(store, PaxosStore)
            address = store._address
            with contextlib.closing(connect(address.nodes[2], address.secret, address.context, 5)) as link:
                ask(link, frames.Ask(1, [frames.ITEMS[End](End(Revoke(f"{store._space}x")))]), 5)  # at one node alone
            until(lambda: lease.ending is not None, "the word that it ends")
            a.go_on()
            with contextlib.suppress(LeaseLost, StoreUnavailable):
                lease.renew()
            begun = SYSTEM.now()
            while SYSTEM.now() - begun < ns(8):
                taken = other.try_acquire("x", ttl=5)
                if taken is not None:
                    assert not lease.held, "two holders"
                    return
                time.sleep(0.05)
            pytest.fail("nobody else got it")
