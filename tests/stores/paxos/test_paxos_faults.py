"""Nodes that die, stand still, lose their disks or are cut off: never two holders, tokens that only rise."""

from __future__ import annotations

import contextlib
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.core.ops import Acquire, Granted, Renew, Renewed
from lessor.core.paxos.ballots import DAY_US
from lessor.errors import StoreUnavailable
from lessor.node.disk import DataFolder
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, new_id, ns, pass_time, taken, until
from tests.servers.paxos import PaxosCluster, paxos_cluster, paxos_cluster_with_island
from tests.servers.tunnel import SlowTunnel, Tunnel
from tests.stores.paxos.load import Load

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def cluster() -> Iterator[PaxosCluster]:
    """Leases last for 2 s at most, so that nobody is silent for long."""
    with paxos_cluster(3, "--max-ttl", "2s") as cluster:
        yield cluster


def test_a_minority_that_crashes_and_comes_back_costs_nobody_anything(cluster: PaxosCluster) -> None:
    with Load(f"{cluster.url}?namespace=crash") as load:
        for node in cluster.nodes:
            node.kill()
            load.goes_on()
            cluster.start(node, wait=False)
            node.wait("silent", "serving")
            load.goes_on()
            node.wait()
        load.goes_on()
    assert load.check() > 6


def test_a_minority_that_stands_still_and_goes_on(cluster: PaxosCluster) -> None:
    with Load(f"{cluster.url}?namespace=still") as load:
        for node in cluster.nodes:
            node.stop()
            load.goes_on()
            node.go_on()
            load.goes_on()
    load.check()


def test_all_nodes_restarted_one_after_the_other(cluster: PaxosCluster) -> None:
    """As an update does. Nobody is silent, and who holds something goes on holding it."""
    with Client(f"{cluster.url}?namespace=rolling-holder") as client, Load(f"{cluster.url}?namespace=rolling") as load:
        lease = client.acquire("job", ttl=2)
        for node in cluster.nodes:
            assert node.shut_down() == 0
            cluster.start(node)
            load.goes_on()
            assert '"state": "serving", "acceptors": 3' in node.log().splitlines()[-1]
        lease.check()
        lease.release()
    load.check()


def test_all_nodes_crash_at_once(cluster: PaxosCluster) -> None:
    with Load(f"{cluster.url}?namespace=all") as load:
        for _ in range(2):
            for node in cluster.nodes:
                node.kill()
            cluster.start()
            load.goes_on()
    load.check()


def test_all_nodes_shut_down_at_once(cluster: PaxosCluster) -> None:
    """Nobody is silent afterwards, and tokens go on."""
    store = open_store(f"{cluster.url}?namespace=shutdown", SYSTEM)
    granted = taken(store, "job", 2.0)
    for node in cluster.nodes:
        node.shut_down()
    cluster.start()
    assert all('"state": "serving"' in node.log().splitlines()[-1] for node in cluster.nodes)
    again: list[Granted] = []

    def acquired() -> bool:
        outcome = store.apply([Acquire("job", new_id(), "rival", ns(0.5))], timeout=1)[0]
        again.extend([outcome] if isinstance(outcome, Granted) else [])
        return bool(again)

    until(acquired, "the expiry")
    assert again[0].token > granted.token
    store.close()


def test_a_node_that_lost_its_disk_learns_from_the_others(cluster: PaxosCluster) -> None:
    with Load(f"{cluster.url}?namespace=disk") as load:
        for node in cluster.nodes[:2]:
            node.kill()
            shutil.rmtree(node.data)
            cluster.start(node, wait=False)
            node.wait("silent")
            node.wait()
            load.goes_on()
    load.check()
    assert '"event": "seeded"' in cluster.nodes[0].log()


def test_a_holder_that_is_cut_off_from_a_majority_stops_in_time(cluster: PaxosCluster) -> None:
    with contextlib.ExitStack() as stack:
        tunnels = [stack.enter_context(Tunnel(node.port)) for node in cluster.nodes]
        mine = f"paxos://{','.join(f'127.0.0.1:{tunnel.port}' for tunnel in tunnels)}?namespace=cut"
        holder = stack.enter_context(Client(mine, timeout=1))
        rival = stack.enter_context(Client(f"{cluster.url}?namespace=cut", timeout=2))
        lease = holder.acquire("job", ttl=2)
        tunnels[0].swallow()
        before = SYSTEM.now()
        lease.renew()
        other = holder.acquire("other", ttl=2)
        assert SYSTEM.now() - before < ns(1), "one that is cut off was waited for"
        other.release()
        tunnels[1].swallow()
        newer = rival.acquire("job", ttl=2, wait=PATIENCE)
        assert lease.remaining <= 0
        assert newer.token > lease.token
        with pytest.raises(StoreUnavailable):
            holder.try_acquire("other", ttl=2)
        newer.release()
        for tunnel in tunnels[:2]:
            tunnel.mend()
        until(lambda: _acquired(holder), "the way back")


def test_a_node_that_is_cut_off_by_its_network_costs_nobody_anything() -> None:
    """No connection is refused or reset: packets go nowhere."""
    with paxos_cluster_with_island("--max-ttl", "2s") as (cluster, island):
        with Load(f"{cluster.url}?namespace=island") as load:
            for _ in range(2):
                with island.cut_off():
                    load.goes_on()
                load.goes_on()
        load.check()


def test_a_node_whose_clock_was_a_month_ahead_when_it_crashed_costs_nobody_anything() -> None:
    """Its floor is a month ahead, and the others would refuse a number above it."""
    with paxos_cluster(3, "--max-ttl", "2s") as cluster, Client(f"{cluster.url}?namespace=ahead") as holder:
        lease = holder.acquire("held", ttl=2)
        node = cluster.nodes[0]
        node.kill()
        with DataFolder(node.data, node.name) as folder:
            mark = folder.mark.read()
            assert mark is not None
            folder.mark.write(mark._replace(high_water=mark.high_water + 30 * DAY_US))
        cluster.start(node)
        with Client(f"{cluster.url}?namespace=ahead") as rival:
            for _ in range(5):
                later = rival.acquire("job", ttl=2, wait=PATIENCE)
                assert later.token < mark.high_water + DAY_US
                later.renew()
                later.release()
        for _ in range(3):  # it is handed to that node, and hears what that one demands
            lease.renew()
        with Load(f"{cluster.url}?namespace=load") as load:
            load.goes_on()
        load.check()
        assert "days ahead" in node.log()


@pytest.mark.long
def test_a_lease_outlives_one_node_after_another_though_somebody_waits() -> None:
    """The first one that crashed is handed the lease again, whatever number whoever waits has led it to."""
    with paxos_cluster(3, "--max-ttl", "6s") as cluster, Client(cluster.url) as holder:
        first, _, last = cluster.nodes
        lease = holder.acquire("job", ttl=6)
        with _waiting(cluster.url, "job"):
            last.kill()
            cluster.start(last)
            pass_time(8)
            first.kill()
            pass_time(8)
            lease.check()


def test_so_it_does_where_that_node_always_answers_last() -> None:
    """When it says that it lacks the lease, nobody listens any more, and nobody does before the next renewal."""
    with paxos_cluster(3, "--max-ttl", "2s") as cluster, SlowTunnel(cluster.nodes[2].port) as tunnel:
        first, second, last = cluster.nodes
        store = open_store(f"paxos://{first.place},{second.place},127.0.0.1:{tunnel.port}", SYSTEM)
        mine = new_id()
        token = taken(store, "job", 2, mine).token
        tunnel.delay = 0.05

        def renewed() -> bool:
            pass_time(0.3)
            return isinstance(store.apply([Renew("job", mine, token, ns(2))], timeout=1)[0], Renewed)

        last.kill()
        cluster.start(last, wait=False)
        until(lambda: renewed() and last.state() == "serving", "the node to be back")
        assert all(renewed() for _ in range(6))
        first.kill()
        assert all(renewed() for _ in range(10))
        store.close()


@contextlib.contextmanager
def _waiting(url: str, resource: str) -> Iterator[None]:
    """Ask for it all the time."""
    over = threading.Event()

    def ask() -> None:
        with contextlib.closing(open_store(url, SYSTEM)) as store:
            while not over.wait(0.1):
                store.apply([Acquire(resource, mine, "waiter", ns(2), queue=True)], timeout=1)

    mine = new_id()
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()


def test_two_of_five_may_die() -> None:
    with paxos_cluster(5, "--max-ttl", "2s") as cluster, Load(f"{cluster.url}?namespace=five") as load:
        cluster.nodes[0].kill()
        cluster.nodes[1].stop()
        load.goes_on()
        cluster.start(cluster.nodes[0])
        cluster.nodes[1].go_on()
        cluster.nodes[2].kill()
        cluster.nodes[3].stop()
        load.goes_on()
        cluster.nodes[3].go_on()
    load.check()


def _acquired(client: Client) -> bool:
    with contextlib.suppress(StoreUnavailable), client.acquire("job", ttl=2, wait=2):
        return True
    return False
