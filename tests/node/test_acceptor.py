"""What a node counts against its bound, and gives back."""

from __future__ import annotations

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Release, Renew
from lessor.core.paxos.acceptor import Config, Durable
from lessor.core.paxos.messages import Accept, Drop, Extend, Refused, Request
from lessor.node.acceptor import SHARE, NodeAcceptor

WALL_US = 1_700_000_000_000_000
MANY = 100


class Node:
    """One acceptor, and who asks it."""

    def __init__(self) -> None:
        self.acceptor = NodeAcceptor(Config("a"), Durable(0, 0), 1)
        self.n = WALL_US

    def ask(self, item: Accept | Drop | Extend, now_s: float = 1) -> object:
        now = int(now_s * SECOND)
        reply = self.acceptor.handle(Request(1, (item,)), now, WALL_US + now // 1000).reply
        assert reply is not None
        return reply.verdicts[0]

    def accept(self, resource: str, lease_id: str, now_s: float = 1, **fields: object) -> object:
        self.n += 1
        op = Acquire(resource, lease_id, "h", 60 * SECOND)._replace(**fields)  # type: ignore[arg-type]
        return self.ask(Accept(op, self.n, 0, 0, 0), now_s)


@pytest.fixture
def node() -> Node:
    return Node()


def test_waiters_count_and_count_no_more_when_they_have_left(node: Node) -> None:
    node.accept("job", "mine")
    alone = node.acceptor.used
    for number in range(MANY):
        node.accept("job", f"w{number}", queue=True)
    assert node.acceptor.used >= alone + MANY
    for number in range(MANY):
        node.ask(Drop(Release("job", f"w{number}"), node.n + 1 + number), 2)
    assert node.acceptor.used <= alone + MANY // 4, "who was given up is remembered for a while, and counts for less"
    for at in (20, 40, 60, 80):
        node.ask(Extend(Renew("job", "mine", WALL_US + 1, 60 * SECOND), WALL_US + 1), at)
        node.accept("job", f"late{at}", at, queue=True)
        node.ask(Drop(Release("job", f"late{at}"), node.n + 1), at)
    assert node.acceptor.used <= alone + 2


def test_much_metadata_counts_until_it_is_given_back(node: Node) -> None:
    node.accept("job", "mine", metadata="x" * 10 * SHARE)
    assert node.acceptor.used == 1 + 10
    node.ask(Drop(Release("job", "mine"), node.n), 2)
    node.accept("job", "next", 3)
    assert node.acceptor.used == 1


def test_at_the_bound_nobody_new_is_taken_in_and_what_is_held_goes_on(node: Node) -> None:
    node.acceptor.most = 2
    node.accept("one", "A")
    first = node.n
    node.accept("two", "B")
    assert isinstance(node.accept("three", "C"), Refused)
    assert isinstance(node.accept("one", "D", queue=True), Refused)
    assert not isinstance(node.ask(Extend(Renew("one", "A", first, 60 * SECOND), first), 2), Refused)
    assert not isinstance(node.ask(Drop(Release("one", "A"), first), 3), Refused)
