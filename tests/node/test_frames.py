"""Whatever is sent to a node: it answers, or refuses and says why; it never falls over, hangs or grows."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lessor import Client
from lessor.core import ops
from lessor.core.paxos import messages as m
from lessor.core.paxos.acceptor import REPLY_ROOM
from lessor.node.service import MOST_KEPT
from lessor.runtime.clock import SYSTEM
from lessor.stores.paxos import frames, handshake
from lessor.testing.conformance.base import until
from tests.node.greeting import RawClient
from tests.servers.paxos import PaxosNode, paxos_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = settings(
    max_examples=int(os.environ.get("LESSOR_FUZZ", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def node() -> Iterator[PaxosNode]:
    """A cluster of one: it answers by itself."""
    with paxos_cluster(1) as cluster:
        yield cluster.nodes[0]


@pytest.fixture(autouse=True)
def _unharmed(node: PaxosNode) -> Iterator[None]:
    """Whatever was sent, the node serves others, and has found no fault with itself."""
    yield
    assert node.alive
    with Client(f"paxos://{node.place}?namespace=others") as client:
        client.acquire("job", ttl=5).release()
    assert [line for line in node.log().splitlines() if "internal error" in line or "Traceback" in line] == []


def memory(node: PaxosNode) -> int:
    """Return the bytes that the process has in use."""
    with open(f"/proc/{node.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- refusals -----------------------------------------------------------------------------------------------------


def test_another_version_is_refused(node: PaxosNode) -> None:
    with RawClient(node.port) as client:
        client.send(frames.Hello(frames.MAGIC, 1, b"nonce"))
        assert client.refusal() == "the client speaks version 1 of the protocol, and this node 4"


def test_another_protocol_is_refused(node: PaxosNode) -> None:
    for greeting in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        with RawClient(node.port) as client:
            client.send(greeting)
            assert "bytes, and 1024 are the most" in client.refusal()
    with RawClient(node.port) as client:
        client.send(frames.Hello("somebody", 1, b""))
        assert client.refusal() == "this is a lessor node, and that was no greeting"


def test_text_that_is_no_utf8_is_refused(node: PaxosNode) -> None:
    frame = frames.encode(frames.Hello(frames.MAGIC, frames.VERSION, b""))
    with RawClient(node.port) as client:
        client.send(bytes(frame).replace(b"lessor", b"lease\xffold"))
        assert "can't be understood" in client.refusal()


def test_requests_before_the_greeting_are_refused(node: PaxosNode) -> None:
    with RawClient(node.port) as client:
        client.send(frames.Ask(1, []))
        assert "no greeting" in client.refusal()
    with RawClient(node.port) as client:
        client.send(frames.Hello(frames.MAGIC, frames.VERSION, b""))
        assert isinstance(client.hear(), frames.Welcome)
        client.send(frames.Ask(1, []))
        assert "before the greeting was over" in client.refusal()


def test_a_second_greeting_is_refused(node: PaxosNode) -> None:
    with RawClient(node.port).greet() as client:
        client.send(frames.Hello(frames.MAGIC, frames.VERSION, b""))
        assert "second greeting" in client.refusal()


def test_a_frame_that_is_too_long_is_refused_by_its_first_bytes(node: PaxosNode) -> None:
    before = memory(node)
    with RawClient(node.port).greet() as client:
        client.send(struct.pack(">I", 2**32 - 1) + b"x" * 1000)
        assert client.refusal() == f"a frame of {2**32 - 1} bytes, and {frames.MAX_REQUEST} are the most"
    assert memory(node) - before < 32 * 2**20


def test_too_many_items_are_refused(node: PaxosNode) -> None:
    with RawClient(node.port).greet() as client:
        client.send(frames.Ask(1, [frames.LookItem(m.Look("x"))] * 1001))
        assert client.refusal() == "a request has 1001 items, and 1000 are the most"


def test_a_frame_that_ends_early_is_waited_for_and_costs_nothing(node: PaxosNode) -> None:
    with RawClient(node.port).greet() as client, RawClient(node.port).greet() as other:
        whole = bytes(frames.encode(frames.Ping(7)))
        client.send(whole[:5])
        other.send(frames.Ping(8))
        assert other.hear() == frames.Pong(8)
        client.send(whole[5:])
        assert client.hear() == frames.Pong(7)


def test_a_silent_client_is_shown_the_door(node: PaxosNode) -> None:
    with RawClient(node.port) as client:
        assert client.refusal() == "no greeting within 5 s"


def test_whoever_has_begun_to_greet_is_not_put_out_for_those_who_say_nothing() -> None:
    with paxos_cluster(1) as cluster:
        [node] = cluster.nodes
        cluster.stop_and_start_inside(node, "prlimit", "--nofile=80:80")  # so that few may be about to greet
        with contextlib.ExitStack() as silent, RawClient(node.port) as client:
            nonce = handshake.nonce()
            client.send(frames.Hello(frames.MAGIC, frames.VERSION, nonce))
            welcome = client.hear()
            assert isinstance(welcome, frames.Welcome), welcome
            others = [silent.enter_context(RawClient(node.port)) for _ in range(40)]
            assert others[0].refusal() == "too many connections that haven't greeted"
            client.send(frames.Proof(handshake.prove(b"", handshake.CLIENT, nonce, welcome.nonce)))
            assert isinstance(client.hear(), frames.Accepted)


def test_a_request_that_comes_twice_is_answered_twice_and_done_once(node: PaxosNode) -> None:
    n = 10**15
    op = ops.Acquire("replayed", "my-id", "me", 5 * 10**9)
    with RawClient(node.port).greet() as client:
        for serial in (1, 2):
            client.send(frames.Ask(serial, [frames.AcceptItem(m.Accept(op, n))]))
        first, second = client.hear(), client.hear()
        assert isinstance(first, frames.Answer)
        assert isinstance(second, frames.Answer)
        assert first.verdicts[0].body == m.Ack(5 * 10**9, extended=False)
        assert second.verdicts[0].body.extended  # type: ignore[union-attr]
        client.send(frames.Ask(3, [frames.DropItem(m.Drop(ops.Release("replayed", "my-id"), n))]))
        client.send(frames.Ask(4, [frames.AcceptItem(m.Accept(op, n))]))
        client.hear()
        replayed = client.hear()
        assert isinstance(replayed, frames.Answer)
        assert isinstance(replayed.verdicts[0].body, m.Low), "a copy brought a released lease back"


def test_a_proof_that_was_overheard_serves_nobody() -> None:
    with paxos_cluster(1) as plain:
        secret_file = f"{plain.nodes[0].folder}/secret"
        with open(secret_file, "w", encoding="ascii") as file:
            file.write("a secret of some length\n")
        secret = b"a secret of some length"
        node = plain.nodes[0]
        node.shut_down()
        node.settings = ("--secret-file", secret_file)
        plain.start()
        with RawClient(node.port).greet(secret) as client:
            client.send(frames.Ping(1))
            assert client.hear() == frames.Pong(1)
        nonce = handshake.nonce()
        with RawClient(node.port) as client:
            client.send(frames.Hello(frames.MAGIC, frames.VERSION, nonce))
            welcome = client.hear()
            assert isinstance(welcome, frames.Welcome)
            proof = frames.Proof(handshake.prove(secret, handshake.CLIENT, nonce, welcome.nonce))
            client.send(proof)
            assert isinstance(client.hear(), frames.Accepted)
        with RawClient(node.port) as client:
            client.send(frames.Hello(frames.MAGIC, frames.VERSION, nonce))
            client.hear()
            client.send(proof)
            assert client.refusal() == "the secret is another one"
        with RawClient(node.port) as client:
            client.send(frames.Hello(frames.MAGIC, frames.VERSION, nonce))
            client.hear()
            client.send(frames.Proof(b""))
            assert client.refusal() == "this node wants a secret"
        assert "a secret of some length" not in node.log()


# --- garbage ------------------------------------------------------------------------------------------------------


@EXAMPLES
@given(garbage=st.lists(st.binary(max_size=300), max_size=5), greeted=st.booleans(), framed=st.booleans())
def test_garbage(node: PaxosNode, garbage: list[bytes], greeted: bool, framed: bool) -> None:  # noqa: FBT001
    with RawClient(node.port) as client:
        if greeted:
            client.greet()
        try:
            for piece in garbage:
                client.send(struct.pack(">I", len(piece)) + piece if framed else piece)
            client.socket.shutdown(1)
        except OSError:
            return  # it has hung up already
        while client.hear() is not None:
            pass


number = st.one_of(st.integers(-(2**63), 2**64 - 1), st.sampled_from([0, 1, 2**53 - 1, 2**53, 10**9, 10**15]))
name = st.one_of(st.sampled_from(["a", "a/b", "x"]), st.text(max_size=20), st.just("n" * 600))
parent = st.none() | st.tuples(name, number)
acquire = st.builds(
    ops.Acquire, name, name, name, number, st.booleans(), name, number, st.sampled_from(["", "{}", '{"a":"b"}', "[1]", "{"]),
    parent, number, number, number, number, number, number, st.booleans(),
)  # fmt: skip
item: st.SearchStrategy[Any] = st.one_of(
    st.builds(frames.AcceptItem, st.builds(m.Accept, acquire, number, number, number, number)),
    st.builds(frames.PrepareItem, st.builds(m.Prepare, name, name, number)),
    st.builds(
        frames.ExtendItem,
        st.builds(m.Extend, st.builds(ops.Renew, name, name, number, number), number, st.none() | number),
    ),
    st.builds(frames.WithdrawItem, st.builds(m.Withdraw, name, name, number, st.booleans())),
    st.builds(
        frames.DropItem,
        st.builds(m.Drop, st.builds(ops.Release, name, name, st.none() | name, st.booleans(), name, number), number),
    ),
    st.builds(frames.EndItem, st.builds(m.End, st.builds(ops.Revoke, name, st.booleans(), st.none() | number))),
    st.builds(frames.LookItem, st.builds(m.Look, name)),
    st.builds(frames.ScanItem, st.builds(m.Scan, name, name, number)),
)


@EXAMPLES
@given(items=st.lists(item, max_size=20))
def test_strange_requests_get_a_verdict_for_each_item(node: PaxosNode, items: list[Any]) -> None:
    with RawClient(node.port).greet() as client:
        client.send(frames.Ask(5, items))
        answer = client.hear()
        assert isinstance(answer, frames.Answer), answer
        assert len(answer.verdicts) == len(items)


@EXAMPLES
@given(
    items=st.lists(item, max_size=5),
    cut=st.integers(0, 400),
    flips=st.lists(st.tuples(st.integers(4, 400), st.integers(0, 255)), max_size=4),
)
def test_damaged_requests(node: PaxosNode, items: list[Any], cut: int, flips: list[tuple[int, int]]) -> None:
    frame = frames.encode(frames.Ask(5, items))
    for at, value in flips:
        frame[at % len(frame)] = value
    with RawClient(node.port).greet() as client:
        try:
            client.send(bytes(frame[: len(frame) - cut]))
            client.socket.shutdown(1)
        except OSError:
            return
        while client.hear() is not None:
            pass


# --- floods -------------------------------------------------------------------------------------------------------


def test_a_flood_from_one_client_neither_starves_the_others_nor_fills_the_memory(node: PaxosNode) -> None:
    """It sends as fast as it can, and reads nothing."""
    before = memory(node)
    flood = bytes(frames.encode(frames.Ask(1, [frames.LookItem(m.Look("x"))] * 1000))) * 20
    with RawClient(node.port).greet() as client, Client(f"paxos://{node.place}?namespace=others") as other:
        client.socket.setblocking(False)
        sent = 0

        def flooded() -> bool:
            nonlocal sent
            try:
                sent += client.socket.send(flood)
            except BlockingIOError:
                other.acquire("job", ttl=5, wait=5).release()
                return sent > 2**20
            return False

        until(flooded, "a full pipe")
        for _ in range(20):
            other.acquire("job", ttl=5, wait=5).release()
    assert memory(node) - before < 64 * 2**20


def test_the_kernel_looks_from_time_to_time_whether_a_client_is_still_there(node: PaxosNode) -> None:
    """Or a client whose machine went away would be listened for until the node ends."""
    with RawClient(node.port).greet() as client:
        until(lambda: 0 < _looks_in(node, client) <= 30, "its timer")


def _looks_in(node: PaxosNode, client: RawClient) -> float:
    """Return in how many seconds the node's kernel will look; 0: never."""
    ports = [node.port, client.socket.getsockname()[1]]
    with open("/proc/net/tcp", encoding="ascii") as file:
        for _, local, remote, _, _, timer, *_ in map(str.split, file):
            if [int(end.partition(":")[2] or "0", 16) for end in (local, remote)] == ports:
                kind, ticks = timer.split(":")
                return int(ticks, 16) / os.sysconf("SC_CLK_TCK") if int(kind) == 2 else 0
    return 0


def test_many_connections_that_say_nothing_leave_nothing_behind(node: PaxosNode) -> None:
    before = memory(node)
    for _ in range(20):
        clients = [RawClient(node.port) for _ in range(20)]
        for client in clients:
            client.socket.close()
    until(lambda: "lessor_node_greeting 0\n" in node.get("metrics")[1], "the end of the connections")
    assert memory(node) - before < 32 * 2**20


@pytest.fixture
def full(node: PaxosNode) -> Iterator[RawClient]:
    """The node has much to show, a megabyte of it in a page."""
    wall_us, count = SYSTEM.wall_us(), 2000
    names = [f"full/{number:05}" for number in range(count)]
    blob = '{"text":"' + 1000 * "x" + '"}'
    with RawClient(node.port).greet() as client:

        def ask(items: list[Any]) -> None:
            for start in range(0, count, 500):
                client.send(frames.Ask(1, items[start : start + 500]))
                assert isinstance(client.hear(), frames.Answer)

        held = [ops.Acquire(name, name, "h", 60 * 10**9, metadata=blob) for name in names]
        ask([frames.AcceptItem(m.Accept(op, wall_us)) for op in held])
        yield client
        ask([frames.DropItem(m.Drop(ops.Release(name, name))) for name in names])


def test_a_request_for_everything_a_thousand_times_gets_some_of_it_soon(node: PaxosNode, full: RawClient) -> None:
    before = memory(node)
    with RawClient(node.port).greet() as client, RawClient(node.port).greet() as other:
        looks: list[Any] = [frames.LookItem(m.Look("full/00001"))]
        client.send(frames.Ask(1, [frames.ScanItem(m.Scan("full/"))] * 500 + looks * 500))
        other.send(frames.Ping(1))
        begun = SYSTEM.now()
        assert other.hear() == frames.Pong(1)
        assert SYSTEM.now() - begun < 60 * 10**9
        answer = client.hear()
    assert isinstance(answer, frames.Answer)
    assert len(answer.verdicts) == 1000
    shown = [verdict.body for verdict in answer.verdicts]
    assert all(isinstance(seen, m.Seen) for seen in shown)
    assert len(shown[0].records) == 1000  # type: ignore[union-attr]
    assert shown[499] == shown[-1] == m.Seen((), more=True)
    assert len(frames.encode(answer)) < 2 * REPLY_ROOM
    assert memory(node) - before < 64 * 2**20


def test_nothing_more_is_done_for_a_client_that_does_not_read_its_answers(node: PaxosNode, full: RawClient) -> None:
    """Its small requests, of which thousands came at once, would fill the memory."""

    def requests() -> int:
        return int(re.findall(r"^lessor_node_requests_total (\d+)", node.get("metrics")[1], re.MULTILINE)[0])

    before, done = memory(node), requests()
    scan, count = bytes(frames.encode(frames.Ask(1, [frames.ScanItem(m.Scan("full/"))]))), 400
    with RawClient(node.port).greet() as client:
        client.send(scan * count)
        until(lambda: requests() > done, "the first of them")
        with RawClient(node.port).greet() as other:
            for serial in range(200):  # turns, in which all of it could have been done
                other.send(frames.Ping(serial))
                assert other.hear() == frames.Pong(serial)
        assert requests() - done < count // 2
        assert memory(node) - before < 64 * 2**20
        for _ in range(count):
            assert isinstance(client.hear(), frames.Answer)
    assert requests() - done == count


UNFINISHED = struct.pack(">I", frames.MAX_REQUEST) + bytes(frames.MAX_REQUEST - 1)
EVERYTHING = 4 * bytes(frames.encode(frames.Ask(1, [frames.ScanItem(m.Scan("full/"))] * 10)))


@pytest.mark.heavy
@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("request_of_each", [UNFINISHED, EVERYTHING], ids=["unfinished requests", "unread answers"])
def test_many_clients_together_do_not_fill_the_memory(node: PaxosNode, request_of_each: bytes) -> None:
    """Each stays within what one may have the node keep."""
    before, already, kept = memory(node), dropped(node), 0
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            client = stack.enter_context(RawClient(node.port)).greet()
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with contextlib.suppress(ConnectionError):
                client.send(request_of_each)
            kept = max(kept, memory(node) - before)
            if dropped(node) > already + 10:
                break
        until(lambda: dropped(node) > already, f"the end for some; {kept >> 20} MiB are kept")
        with Client(f"paxos://{node.place}?namespace=others") as other:
            other.acquire("job", ttl=5, wait=5).release()
    assert kept < 2 * MOST_KEPT


def dropped(node: PaxosNode) -> int:
    """Return how many clients the node has dropped so far, to have room for the others."""
    found = re.findall(r"^lessor_node_dropped_for_room_total (\d+)", node.get("metrics")[1], re.MULTILINE)
    return int(found[0])
