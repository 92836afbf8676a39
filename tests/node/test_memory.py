"""A node with very many leases: what each takes of its memory, and that those which expire at once are free at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from lessor.core import ops
from lessor.core.clock import SECOND
from lessor.core.paxos import messages as m
from lessor.runtime.clock import SYSTEM
from lessor.stores.paxos import frames
from lessor.testing.conformance.base import pass_time, until
from tests.measured import note
from tests.node.greeting import RawClient
from tests.scale import CHAOS
from tests.servers.paxos import PaxosNode, paxos_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 1000
AT_ONCE = 4
"""Requests under way."""
MOST_BYTES = 1500
"""That a lease may take, without metadata."""
IN_TIME = 2.0


@pytest.fixture
def node() -> Iterator[PaxosNode]:
    with paxos_cluster(1, "--max-ttl", "1h") as cluster:
        yield cluster.nodes[0]


def test_leases_take_little_memory(node: PaxosNode) -> None:
    assert bytes_a_lease(node, 20_000) < MOST_BYTES


def test_many_that_expire_at_once_can_all_be_taken(node: PaxosNode) -> None:
    expire_at_once(node, 10_000)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_million_leases(node: PaxosNode) -> None:
    count, begun = int(1_000_000 * CHAOS), SYSTEM.now()
    each = bytes_a_lease(node, count)
    note("node", "node", leases=count, bytes=each, taken_s=(SYSTEM.now() - begun) / SECOND)
    assert each < MOST_BYTES


@pytest.mark.chaos
def test_a_hundred_thousand_that_expire_at_once(node: PaxosNode) -> None:
    count = int(100_000 * CHAOS)
    taken_s, busy_s = expire_at_once(node, count)
    note("node", "node", expired=count, all_taken_s=taken_s, busy_s=busy_s)
    assert taken_s < IN_TIME


def bytes_a_lease(node: PaxosNode, count: int) -> float:
    """Have the node keep so many, for an hour; return by how much it has grown for each."""
    before = memory(node)
    with RawClient(node.port).greet() as client:
        assert ask(client, (accepts("live", start, start + BATCH, 3600 * SECOND) for start in range(0, count, BATCH)))
    until(lambda: live(node) == count, "the count", 20)
    return (memory(node) - before) / count


def expire_at_once(node: PaxosNode, count: int) -> tuple[float, float]:
    """Take so many until one instant; return how long after it all are another owner's, and the node's time for it."""
    until_ns = SYSTEM.now() + max(5, count // 5000) * SECOND
    with RawClient(node.port).greet() as client:
        assert ask(
            client,
            (accepts("brief", start, start + BATCH, until_ns - SYSTEM.now()) for start in range(0, count, BATCH)),
        )
        rivals = [accepts("brief", start, start + BATCH, 600 * SECOND) for start in range(0, count, BATCH)]
        assert SYSTEM.now() < until_ns, "they were not all taken in time"
        assert not ask(client, iter(rivals[-1:])), "somebody got what others held"
        pass_time((until_ns - SYSTEM.now()) / SECOND)
        begun, busy_s = SYSTEM.now(), processor_s(node)
        # A node counts from when it has the request.
        until(lambda: ask(client, iter(rivals[-1:])), "the expiry of the last ones")
        assert ask(client, iter(rivals)), "some were not free"
        return (SYSTEM.now() - begun) / SECOND, processor_s(node) - busy_s


def accepts(under: str, first: int, last: int, ttl_ns: int) -> bytes:
    """Return a request for some of them, as a client makes it, of an owner of its own."""
    n, owner = SYSTEM.wall_us(), os.urandom(12).hex()
    wanted = [
        ops.Acquire(f"default/{under}/{at:07}", f"{owner}{at:08}", "worker-17:4242", ttl_ns)
        for at in range(first, last)
    ]
    items: list[Any] = [frames.AcceptItem(m.Accept(op, n)) for op in wanted]
    return bytes(frames.encode(frames.Ask(first, items)))


def ask(client: RawClient, requests: Iterator[bytes]) -> bool:
    """Send them, some at a time; return whether all that was asked for was granted."""
    under_way = 0
    granted = True
    for request in requests:
        client.send(request)
        under_way += 1
        if under_way == AT_ONCE:
            granted &= is_granted(client)
            under_way -= 1
    return all([granted, *(is_granted(client) for _ in range(under_way))])


def is_granted(client: RawClient) -> bool:
    answer = client.hear()
    assert isinstance(answer, frames.Answer), answer
    return all(isinstance(verdict.body, m.Ack) for verdict in answer.verdicts)


def memory(node: PaxosNode) -> int:
    """Return the bytes that the process has in use."""
    with open(f"/proc/{node.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processor_s(node: PaxosNode) -> float:
    """Return for how long the process has had a processor."""
    with open(f"/proc/{node.pid}/stat", encoding="ascii") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def live(node: PaxosNode) -> int:
    """Return how many there are by the node's own word. Where there are many, it doesn't count them all the time."""
    (line,) = [each for each in node.get("metrics")[1].splitlines() if each.startswith("lessor_node_live_leases ")]
    return int(line.split()[1])
