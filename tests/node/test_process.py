"""A node as a process: what it leaves on the disk and finds there, how much it takes in, and whom it greets."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.core.ops import Acquire, Granted, Held, Release, Released, Renew, Renewed, Unknown
from lessor.errors import ConfigError
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, new_id, ns, take, taken, until
from tests.servers.paxos import PaxosCluster, paxos_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.stores.base import Store
    from tests.servers.paxos import PaxosNode

NO_ROOM = "and has no room: --max-leases"

# --- starts that fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["listen", "http"])
def test_a_start_that_cannot_listen_leaves_what_a_clean_shutdown_left(what: str) -> None:
    with held_before_a_shutdown() as (cluster, store):
        (node,) = cluster.nodes
        with socket.create_server((node.host, node.port if what == "listen" else node.http_port)):
            node.launch(cluster.nodes)
            assert node.exit_code() == 78
        assert "Address already in use" in node.log()
        assert_goes_on(cluster, store)


@contextlib.contextmanager
def held_before_a_shutdown() -> Iterator[tuple[PaxosCluster, Store]]:
    with paxos_cluster(1) as cluster, contextlib.closing(open_store(cluster.url, SYSTEM)) as store:
        taken(store, "job", 60)
        cluster.nodes[0].shut_down()
        yield cluster, store


def assert_goes_on(cluster: PaxosCluster, store: Store) -> None:
    """It serves at once, and knows what is held."""
    cluster.start(wait=False)
    cluster.nodes[0].wait("serving", "silent")
    assert cluster.nodes[0].state() == "serving"
    (record,) = store.read(["job"], timeout=PATIENCE)
    assert record is not None
    assert record.holder == "somebody"


def test_what_a_clean_shutdown_leaves_nobody_else_may_read() -> None:
    """There are lease ids in it, and who knows one may end the lease."""
    with held_before_a_shutdown() as (cluster, _):
        assert os.stat(f"{cluster.nodes[0].data}/state").st_mode & 0o777 == 0o600


# --- what goes on for as long as the node does --------------------------------------------------------------------


def test_a_peer_that_cannot_even_be_looked_for_keeps_nobody_from_asking_the_others() -> None:
    with paxos_cluster(5, "--max-ttl", "1s") as cluster:
        first, *_, last = cluster.nodes
        for node in (first, last):
            node.kill()
        shutil.rmtree(first.data)
        last.host = "no..name"
        first.launch(cluster.nodes)
        first.wait("seeding", "serving")
        first.wait()
        assert '"event": "a peer can\'t be asked"' in first.log()


def test_a_node_that_cannot_go_on_ends_and_says_why() -> None:
    with paxos_cluster(1) as cluster:
        (node,) = cluster.nodes
        node.shut_down()
        program = (
            "from lessor.node.service import Service\n"
            "Service.tick = lambda self: 1 / 0\n"
            "from lessor.cli.main import main\n"
            "raise SystemExit(main())"
        )
        words = node.command(cluster.nodes)[3:]
        ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, timeout=30, check=False)
        assert ended.returncode == 1
        assert b"ZeroDivisionError" in ended.stderr
        assert b'"clean": false' in ended.stderr


# --- how much it takes in -----------------------------------------------------------------------------------------


@pytest.fixture
def small() -> Iterator[tuple[PaxosNode, Store]]:
    """A node with room for a hundred leases."""
    with (
        paxos_cluster(1, "--max-leases", "100") as cluster,
        contextlib.closing(open_store(cluster.url, SYSTEM)) as store,
    ):
        yield cluster.nodes[0], store


def kept(node: PaxosNode) -> int:
    (line,) = [line for line in node.get("metrics")[1].splitlines() if line.startswith("lessor_node_resources ")]
    return int(line.split()[1])


def is_refused(outcome: object) -> bool:
    return isinstance(outcome, Unknown) and isinstance(outcome.error, ConfigError) and NO_ROOM in str(outcome.error)


def test_a_runaway_client_fills_a_node_up_to_its_bound_and_not_beyond(small: tuple[PaxosNode, Store]) -> None:
    node, store = small
    ids = [new_id() for _ in range(3000)]
    for start in range(0, 3000, 100):
        store.apply([Acquire(f"job/{n}", ids[n], "h", ns(60)) for n in range(start, start + 100)], timeout=PATIENCE)
    assert is_refused(take(store, "one/more", 60))
    assert kept(node) <= 101
    gone = [Release(f"job/{n}", ids[n], abandon=True) for n in range(1000, 2000)]  # as who gives up says, in vain
    store.apply(gone, timeout=PATIENCE)
    assert kept(node) <= 101
    until(lambda: "no room for more leases" in node.log(), "the line in the log")


def test_what_is_held_at_the_bound_is_renewed_and_given_back_and_then_there_is_room(
    small: tuple[PaxosNode, Store],
) -> None:
    _, store = small
    ids = [new_id() for _ in range(100)]
    tokens = [taken(store, f"job/{n}", 60, ids[n]).token for n in range(100)]
    assert is_refused(take(store, "one/more", 60))
    assert isinstance(take(store, "job/0", 60), Held)
    renewals = [Renew(f"job/{n}", ids[n], tokens[n], ns(60)) for n in range(100)]
    assert all(isinstance(outcome, Renewed) for outcome in store.apply(renewals, timeout=PATIENCE))
    assert isinstance(store.apply([Release("job/0", ids[0])], timeout=PATIENCE)[0], Released)
    taken(store, "job/0", 60)  # it is known, and free
    assert isinstance(store.apply([Release("job/1", ids[1])], timeout=PATIENCE)[0], Released)
    until(lambda: isinstance(take(store, "one/more", 60), Granted), "room for another one")


def test_metadata_and_waiters_take_room_as_well(small: tuple[PaxosNode, Store]) -> None:
    _, store = small
    blob = '{"text":"' + 10_000 * "x" + '"}'
    outcomes = [take(store, f"large/{n}", 60, metadata=blob) for n in range(20)]
    granted = [isinstance(outcome, Granted) for outcome in outcomes]
    assert granted == 5 * [True] + 15 * [False]
    assert all(is_refused(outcome) for outcome in outcomes[5:])
    assert is_refused(take(store, "large/0", 60, queue=True, notify="me"))


def test_so_do_those_who_wait(small: tuple[PaxosNode, Store]) -> None:
    _, store = small
    mine = new_id()
    token = taken(store, "job", 60, mine).token
    waiters = [Acquire("job", new_id(), "w", ns(60), queue=True) for _ in range(200)]
    outcomes = store.apply(waiters, timeout=PATIENCE)
    assert 90 < sum(isinstance(outcome, Held) for outcome in outcomes) < 100
    assert is_refused(outcomes[-1])
    assert isinstance(store.apply([waiters[0]], timeout=PATIENCE)[0], Held)  # it keeps its place
    assert isinstance(store.apply([Renew("job", mine, token, ns(60))], timeout=PATIENCE)[0], Renewed)


def test_what_was_kept_before_a_shutdown_counts_after_it() -> None:
    with paxos_cluster(1, "--max-leases", "100") as cluster, Client(cluster.url) as client:
        for n in range(5):
            client.acquire(f"large/{n}", ttl=60, metadata={"text": 10_000 * "x"})
        cluster.nodes[0].shut_down()
        cluster.start()
        with pytest.raises(ConfigError, match=NO_ROOM):
            client.acquire("one/more", ttl=60, wait=0)


# --- the longest TTL ----------------------------------------------------------------------------------------------


def test_a_node_may_be_told_to_take_longer_leases() -> None:
    with paxos_cluster(1, "--max-ttl", "5m") as cluster, Client(cluster.url) as client:
        assert client.acquire("job", ttl=300).remaining > 60
        with pytest.raises(
            ConfigError, match="the TTL is 301 s, and 300 s are the most here: see the nodes' --max-ttl"
        ):
            client.acquire("other", ttl=301)


# --- whom it greets -----------------------------------------------------------------------------------------------


def test_those_who_say_nothing_shut_nobody_out() -> None:
    with paxos_cluster(1) as cluster, contextlib.ExitStack() as stack:
        (node,) = cluster.nodes
        node.shut_down()
        node.inside = ("sh", "-c", 'ulimit -n 400; exec "$@"', "sh")
        cluster.start()
        for _ in range(450):  # each would last for five seconds
            stack.enter_context(socket.create_connection((node.host, node.port), PATIENCE))
        with Client(cluster.url, timeout=2) as client:
            client.acquire("job", ttl=5).release()
        assert "too many connections that haven't greeted" in node.log()


def test_a_node_has_as_many_descriptors_as_it_may() -> None:
    with paxos_cluster(1) as cluster:
        (node,) = cluster.nodes
        node.shut_down()
        node.inside = ("sh", "-c", 'ulimit -S -n 300; exec "$@"', "sh")
        cluster.start()
        with open(f"/proc/{node.pid}/limits", encoding="ascii") as file:
            (line,) = [line for line in file if line.startswith("Max open files")]
        soft, hard = line.split()[3:5]
        assert soft == hard
