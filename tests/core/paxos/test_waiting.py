"""Waiting, over three acceptors: what the store contract promises of a queue, as far as this store does."""

from __future__ import annotations

from lessor.core.clock import SECOND
from lessor.core.ops import RESERVATION_NS, Release
from lessor.core.paxos.messages import Drop, Look, Seen
from lessor.core.paxos.steps import Blocked, Freed, Won
from tests.core.paxos.cluster import TTL, Cluster, ask


def test_nobody_barges_in_between_a_release_and_the_first_waiter() -> None:
    cluster = Cluster()
    holder, waiter, barging = cluster.proposer("p"), cluster.proposer("w", queue=True), cluster.proposer("b")
    cluster.acquire(holder)
    assert cluster.acquire(waiter) == Blocked("holder-p", holder.token, TTL, 0)
    cluster.release(holder)
    kept = cluster.acquire(barging)
    assert isinstance(kept, Blocked)
    assert kept.by == ""
    assert isinstance(cluster.acquire(waiter), Won)


def test_places_are_kept_in_the_order_of_tickets() -> None:
    cluster = Cluster()
    holder = cluster.proposer("p")
    cluster.acquire(holder)
    waiters = [cluster.proposer(f"w{number}", queue=True) for number in range(3)]
    for number, waiter in enumerate(waiters):
        blocked = cluster.acquire(waiter)
        assert isinstance(blocked, Blocked)
        assert (blocked.position, waiter.ticket) == (number, number + 1)
    cluster.now += SECOND
    for number, waiter in enumerate(waiters):
        again = cluster.acquire(waiter)
        assert isinstance(again, Blocked)
        assert again.position == number
    seen = ask(cluster.acceptors["b"], Look("job"), cluster.now)
    assert isinstance(seen, Seen)
    assert [waiting.holder for waiting in seen.records[0].queue] == ["holder-w0", "holder-w1", "holder-w2"]


def test_who_does_not_come_loses_its_turn_but_not_its_place() -> None:
    cluster = Cluster()
    holder = cluster.proposer("p")
    absent, present = cluster.proposer("absent", queue=True), cluster.proposer("present", queue=True)
    cluster.acquire(holder)
    cluster.acquire(absent)
    cluster.acquire(present)
    cluster.release(holder)
    assert isinstance(cluster.acquire(present), Blocked)
    cluster.now += RESERVATION_NS
    assert isinstance(cluster.acquire(present), Won)
    cluster.acquire(cluster.proposer("late", queue=True))
    back = cluster.acquire(absent)
    assert isinstance(back, Blocked)
    assert back.position == 0


def test_who_leaves_is_called_no_more() -> None:
    cluster = Cluster()
    holder, leaving, next_one = (cluster.proposer(name, queue=name != "p") for name in ("p", "leaving", "next"))
    cluster.acquire(holder)
    cluster.acquire(leaving)
    cluster.acquire(next_one)
    assert cluster.drive(leaving, leaving.release(Release("job", "leaving", abandon=True), cluster.now)) == Freed(None)
    cluster.release(holder)
    assert isinstance(cluster.acquire(next_one), Won)


def test_a_successor_finds_it_kept_for_its_name() -> None:
    cluster = Cluster()
    holder, heir = cluster.proposer("p"), cluster.proposer("heir")
    cluster.acquire(holder)
    for node in cluster.acceptors.values():
        ask(node, Drop(Release("job", "p", successor="holder-heir"), holder.n), cluster.now)
    assert isinstance(cluster.acquire(cluster.proposer("other")), Blocked)
    assert isinstance(cluster.acquire(heir), Won)
