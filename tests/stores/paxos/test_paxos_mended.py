"""What once was wrong: late copies of requests, and nodes that aren't what they should be."""

from __future__ import annotations

import contextlib
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from lessor.core.ops import Acquire, Granted, Release, Released, Renew, Revoke, Unknown
from lessor.core.paxos.acceptor import Durable
from lessor.core.paxos.steps import Send
from lessor.errors import ConfigError
from lessor.node.disk import DataFolder
from lessor.runtime.clock import SYSTEM
from lessor.stores.paxos import engine, frames
from lessor.stores.paxos.calls import Call, Flight
from lessor.stores.paxos.link import Link, connect
from lessor.stores.paxos.store import PaxosStore
from lessor.stores.paxos.subscription import PaxosSubscription
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, Thread, new_id, ns, take, taken, until
from tests.node.greeting import RawClient
from tests.servers.paxos import PaxosCluster, PaxosNode, paxos_cluster
from tests.servers.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.core.ops import Op
    from lessor.stores.base import Store
    from lessor.stores.paxos.address import Place


@pytest.fixture(scope="module")
def cluster() -> Iterator[PaxosCluster]:
    with paxos_cluster(3, "--max-ttl", "2s") as cluster:
        yield cluster


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All frames that clients in this process send."""
    frames_sent: list[bytes] = []
    send = Link.send

    def record(link: Link, frame: bytes | bytearray) -> None:
        frames_sent.append(bytes(frame))
        send(link, frame)

    monkeypatch.setattr(Link, "send", record)
    return frames_sent


# --- revocations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("force", [True, False])
def test_a_late_copy_of_a_revocation_ends_nobody_elses_lease(force: bool, sent: list[bytes]) -> None:  # noqa: FBT001
    with paxos_cluster(1) as single, contextlib.closing(open_store(single.url, SYSTEM)) as store:
        first, second = new_id(), new_id()
        taken(store, "job", 1, first)
        (revoked,) = store.apply([Revoke("job", force=force)], timeout=PATIENCE)
        assert isinstance(revoked, Released)
        (copy,) = [frame for frame in sent if _ends_something(frame)]

        def acquired() -> bool:
            return isinstance(store.apply([Acquire("job", second, "next", ns(30))], timeout=PATIENCE)[0], Granted)

        until(acquired, "the end of the first lease")
        with RawClient(single.nodes[0].port).greet() as network:
            network.send(copy)
            assert isinstance(network.hear(), frames.Answer)
        (record,) = store.read(["job"], timeout=PATIENCE)
        assert record is not None
        assert (record.holder, record.revoked) == ("next", False)


def _ends_something(frame: bytes) -> bool:
    return any(isinstance(item, frames.EndItem) for item in _asked(frame))


def _asked(frame: bytes) -> Sequence[frames.ItemFrame]:
    message = frames.decode_client(frame[4:])
    return message.items if isinstance(message, frames.Ask) else ()


def test_a_revocation_in_a_batch_means_what_the_batch_has_left(cluster: PaxosCluster) -> None:
    """What is granted before it, in the same call, is what it ends."""
    store = open_store(f"{cluster.url}?namespace=batch", SYSTEM)
    mine, other = new_id(), new_id()
    taken(store, "job", 2, mine)
    ops: list[Op] = [Release("job", mine), Acquire("job", other, "h", ns(2)), Revoke("job", force=True)]
    released, granted, revoked = store.apply(ops, timeout=PATIENCE)
    assert isinstance(released, Released)
    assert isinstance(granted, Granted)
    assert isinstance(revoked, Released)
    assert store.read(["job"], timeout=PATIENCE) == [None]
    store.close()


# --- nodes that aren't what they should be ------------------------------------------------------------------------


def test_one_node_behind_three_addresses_is_no_majority(cluster: PaxosCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all three connections are made at the same moment."""
    together = threading.Barrier(3)

    def connect_together(*args: object) -> Link:
        link = connect(*args)  # type: ignore[arg-type]
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(2)
        return link

    monkeypatch.setattr(engine, "connect", connect_together)
    with contextlib.ExitStack() as stack:
        tunnels = [stack.enter_context(Tunnel(cluster.nodes[0].port)) for _ in range(3)]
        url = f"paxos://{','.join(f'127.0.0.1:{tunnel.port}' for tunnel in tunnels)}"
        store = open_store(url, SYSTEM)
        assert isinstance(store, PaxosStore)
        (outcome,) = store.apply([Acquire("job", new_id(), "h", ns(2))], timeout=PATIENCE)
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, ConfigError)
        assert "are both node 'a'" in str(outcome.error)
        assert sum(node.link is not None for node in store._engine.nodes) == 1
        store.close()


def test_a_node_is_tried_again_whatever_went_wrong(cluster: PaxosCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would: the thread that tries is the only one."""
    failed: set[Place] = set()

    def fail_once(place: Place, *args: object) -> Link:
        if place not in failed:
            failed.add(place)
            raise ValueError("who would have thought")
        return connect(place, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "connect", fail_once)
    store = open_store(f"{cluster.url}?namespace=tried", SYSTEM)

    def acquired() -> bool:
        return isinstance(store.apply([Acquire("job", new_id(), "h", ns(1))], timeout=1)[0], Granted)

    until(acquired, "a majority")
    assert {place.port for place in failed} >= {node.port for node in cluster.nodes}
    store.close()


@pytest.mark.parametrize("withdrawn", [True, False])
def test_a_node_that_is_back_is_told_what_is_asked_and_not_what_was_withdrawn(
    cluster: PaxosCluster, *, withdrawn: bool, sent: list[bytes]
) -> None:
    """The withdrawal was sent while it was away, so it would take in, for a whole TTL, what nobody wants."""
    store = open_store(f"{cluster.url}?namespace=back", SYSTEM)
    assert isinstance(store, PaxosStore)
    node = store._engine.nodes[0]

    def link_after_a_request() -> Link | None:
        store.apply([Renew("other", new_id(), 1, ns(1))], timeout=1)
        return node.link

    until(lambda: link_after_a_request() is not None, "a connection")
    task = store._task(Acquire("job", new_id(), "h", ns(1)), SYSTEM.now())
    (ask,) = task.start(SYSTEM.now(), SYSTEM.wall_us())
    assert isinstance(ask, Send)
    frame = frames.encode(frames.Ask(10**9, [frames.ITEMS[type(ask.item)](ask.item)]))
    with store._engine.lock:
        store._engine._flights[10**9] = Flight([(Call([task]), task, ask)], frame, SYSTEM.now())
        task.number = ask.attempt + withdrawn  # it has begun again since
        before = node.link
        assert before is not None
        before.shut()
    until(lambda: link_after_a_request() not in {None, before}, "the node to be back")
    asked = [item.body for frame in sent for item in _asked(frame)]
    assert (ask.item in asked) is not withdrawn
    store.close()


def test_nor_what_was_given_back_since_though_it_was_asked_together_with_something_else(
    cluster: PaxosCluster, sent: list[bytes]
) -> None:
    store = open_store(f"{cluster.url}?namespace=together", SYSTEM)
    assert isinstance(store, PaxosStore)
    taken(store, "other", 1, new_id())
    (node, *_), now = store._engine.nodes, SYSTEM.now()
    tasks = [store._task(Acquire(name, new_id(), "h", ns(1)), now) for name in ("over", "open")]
    asks = [step for task in tasks for step in task.start(now, SYSTEM.wall_us()) if isinstance(step, Send)]
    frame = frames.encode(frames.Ask(10**9, [frames.ITEMS[type(ask.item)](ask.item) for ask in asks]))
    entries = [(Call([task]), task, ask) for task, ask in zip(tasks, asks, strict=True)]
    for task, ask in zip(tasks, asks, strict=True):
        task.number = ask.attempt
    tasks[0].finish(None)
    with store._engine.lock:
        store._engine._flights[10**9] = Flight(entries, frame, now)
        before = node.link
        assert before is not None
        before.shut()

    def link_after_a_request() -> Link | None:
        store.apply([Renew("other", new_id(), 1, ns(1))], timeout=1)
        return node.link

    until(lambda: link_after_a_request() not in {None, before}, "the node to be back")
    asked = [item.body for frame in sent for item in _asked(frame)]
    assert [ask.item in asked for ask in asks] == [False, True]
    store.close()


def test_a_lost_disk_is_not_seeded_by_the_wrong_nodes(cluster: PaxosCluster) -> None:
    """Its settings have mistaken the others for each other, so who knows whom else it would ask."""
    a, b, c = cluster.nodes
    a.kill()
    shutil.rmtree(a.data)
    a.launch([a, _called(b.name, c), _called(c.name, b)])
    a.wait("seeding")
    until(lambda: a.log().count("a peer is not the node that it should be") >= 4, "two rounds of questions")
    assert a.state() == "seeding"
    a.shut_down()
    cluster.start(a)
    assert '"event": "seeded"' in a.log()


def test_a_lost_disk_means_silence_for_as_long_as_the_others_leases_may_last(cluster: PaxosCluster) -> None:
    """Whatever the node's own settings are now; and then these are asked again."""
    a, settings = cluster.nodes[0], cluster.nodes[0].settings
    a.kill()
    shutil.rmtree(a.data)
    a.settings = ("--max-ttl", "1s")
    began = SYSTEM.now()
    cluster.start(a)
    assert SYSTEM.now() - began > ns(2 * 2)  # the longest TTL and the longest lock delay
    said = [line for line in a.log().splitlines() if "others have longer leases" in line or '"seeded"' in line][-2:]
    assert ["seeded" in line for line in said] == [False, True]
    a.shut_down()
    a.settings = settings
    cluster.start(a)


def test_a_lost_disk_is_not_seeded_with_numbers_that_are_absurd() -> None:
    with paxos_cluster(3, "--max-ttl", "1s") as cluster:
        a, b, _ = cluster.nodes
        for node in (a, b):
            node.kill()
        with DataFolder(b.data, b.name) as folder:
            assert folder.mark.read() is not None
            folder.mark.write(Durable(2**60, 0))
        shutil.rmtree(a.data)
        cluster.start(b)
        cluster.start(a, wait=False)
        until(lambda: "days ahead, and are not taken over" in a.log(), "the question")
        a.wait("seeding", "silent")
        assert '"event": "seeded"' not in a.log()
        assert "lessor_node_high_water_mark 0\n" in a.get("metrics")[1]


def test_a_node_that_counts_others_as_its_cluster_is_no_part_of_a_majority(cluster: PaxosCluster) -> None:
    """Or its majority and ours need have nobody in common."""
    a, b, c = cluster.nodes
    a.shut_down()
    a.launch([a, b, _called("d", c)])
    a.wait("serving")
    store = open_store(f"{cluster.url}?namespace=other", SYSTEM)
    until(lambda: isinstance(take(store, "job", 1), Granted), "a majority that agrees")
    c.stop()
    (outcome,) = store.apply([Acquire("more", new_id(), "me", ns(1))], timeout=2)
    c.go_on()
    store.close()
    assert isinstance(outcome, Unknown)
    assert "give each node all the others as --peers" in str(outcome.error)
    a.shut_down()
    cluster.start(a)


@pytest.mark.parametrize("first", ["answer", "loss"])
def test_a_node_that_is_back_is_asked_where_the_others_were_too_few(cluster: PaxosCluster, first: str) -> None:
    a, b, c = cluster.nodes
    store = open_store(f"{cluster.url}?namespace=few", SYSTEM)
    assert isinstance(store, PaxosStore)
    taken(store, "job", 1)
    a.shut_down()
    b.stop()
    c.stop()
    asking = Thread(lambda: take(store, "more", 2))
    until(lambda: bool(store._engine._flights), "the request")
    for event in ("answer", "loss") if first == "answer" else ("loss", "answer"):
        if event == "loss":
            c.kill()
            until(lambda: sum(node.link is None for node in store._engine.nodes) == 2, "the loss of it")
        else:
            b.go_on()
            until(lambda: any(flight.heard for flight in store._engine._flights.values()), "the answer of the only one")
    cluster.start(a)
    asking.result(PATIENCE / 2)  # granted, or too late for its TTL; but not left waiting for as long as it may
    store.close()
    cluster.start(c)


# --- listening ----------------------------------------------------------------------------------------------------


def test_whoever_watches_is_told_that_too_few_nodes_could_tell_though_they_were_connected() -> None:
    """A node that is silent after a crash has nothing to tell."""
    with paxos_cluster(3, "--max-ttl", "4s") as cluster, _watching(cluster.url) as (store, watch):
        a, b, _ = cluster.nodes
        taken(store, "job", 4)  # for so long they are silent
        _drain(watch)
        b.kill()
        cluster.start(b, wait=False)
        until(lambda: watch.get(0.05) is not None and _is_connected(watch, b) and b.state() == "silent", "the silence")
        a.kill()
        until(lambda: watch.get(0.05) is None, "the word that something may have been missed", 20)


@contextlib.contextmanager
def _watching(url: str) -> Iterator[tuple[Store, PaxosSubscription]]:
    with contextlib.closing(open_store(url, SYSTEM)) as store:
        watch = store.subscribe("")
        assert isinstance(watch, PaxosSubscription)
        with contextlib.closing(watch):
            yield store, watch


def _drain(watch: PaxosSubscription) -> None:
    """Wait until all nodes tell."""

    def all_tell() -> bool:
        watch.get(0.05)
        return all(source.link is not None for source in watch._sources)

    until(all_tell, "all connections")
    until(lambda: watch.get(0.05) == [], "what there was to tell")


def _is_connected(watch: PaxosSubscription, node: PaxosNode) -> bool:
    return any(source.link is not None and source.place.port == node.port for source in watch._sources)


def _called(name: str, node: PaxosNode) -> PaxosNode:
    other = PaxosNode(node.folder, name)
    other.port = node.port
    return other
