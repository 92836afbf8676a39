"""Priorities, bounded queues, handovers, soft limits and grace: what each acceptor does by itself, as a majority."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.lease import Contender
from lessor.core.ops import WAITER_LIFE_NS, Loss, Renew
from lessor.core.paxos.merging import in_doubt, in_line
from lessor.core.paxos.messages import Ack, Extend, Gone, Look, Place, Seen
from lessor.core.paxos.steps import Blocked, Ended, Freed, Kept, Won
from tests.core.paxos.cluster import TTL, Cluster, acceptor, ask

if TYPE_CHECKING:
    from lessor.core.paxos.proposer import Proposer


def waiting(cluster: Cluster, name: str) -> list[str]:
    """Return who waits by the word of one acceptor."""
    seen = ask(cluster.acceptors[name], Look("job"), cluster.now)
    assert isinstance(seen, Seen)
    return [place.holder for place in seen.queue]


def held(cluster: Cluster, **terms: object) -> Proposer:
    """Return the proposer of whoever has it."""
    holder = cluster.proposer("p", **terms)
    assert isinstance(cluster.acquire(holder), Won)
    return holder


# --- the queue ----------------------------------------------------------------------------------------------------


def test_a_higher_priority_comes_first_at_every_acceptor_and_stays_there() -> None:
    cluster = Cluster()
    held(cluster)
    waiters = [cluster.proposer(name, queue=True, priority=p) for name, p in (("low", 0), ("high", 3), ("mid", 1))]
    for _ in range(2):
        positions = [step.position for w in waiters if isinstance(step := cluster.acquire(w), Blocked)]
    assert positions == [2, 0, 1]
    for name in cluster.acceptors:
        assert waiting(cluster, name) == ["holder-high", "holder-mid", "holder-low"]


def test_a_waiter_is_refused_by_a_majority_only_and_leaves_no_place_behind() -> None:
    cluster = Cluster()
    held(cluster)
    first, second = (cluster.proposer(name, queue=True, queue_limit=1) for name in ("first", "second"))
    cluster.reachable = {"a", "b"}
    assert cluster.acquire(first) == Blocked("holder-p", 1_000_000, TTL, 0)
    cluster.reachable = {"a", "b", "c"}
    refused = cluster.acquire(second)
    assert isinstance(refused, Blocked)
    assert refused.refused
    assert [waiting(cluster, name) for name in "abc"] == [["holder-first"], ["holder-first"], []]


def test_a_full_queue_of_a_minority_refuses_nobody() -> None:
    cluster = Cluster()
    held(cluster)
    cluster.reachable = {"a"}
    cluster.acquire(cluster.proposer("lonely", queue=True))
    cluster.reachable = {"a", "b", "c"}
    blocked = cluster.acquire(cluster.proposer("next", queue=True, queue_limit=1))
    assert isinstance(blocked, Blocked)
    assert not blocked.refused


def test_who_waits_is_what_a_majority_knows_by_priority_and_ticket() -> None:
    def place(mark: int, since_us: int, ticket: int, priority: int = 0) -> Place:
        return Place(mark, f"w{mark}", since_us, priority, ticket)

    queues = [
        [place(1, 5, 1), place(2, 6, 2)],
        [place(2, 8, 2), place(3, 9, 7, 1)],
        [place(1, 4, 1), place(3, 1, 1, 1)],
    ]
    assert in_line(queues, 3) == [Contender("w3", 1, 1), Contender("w1", 4), Contender("w2", 6)]
    assert in_line(queues[:2], 3) == [Contender("w2", 6)]
    assert in_doubt([[], []], 3, queues[:2])
    assert not in_doubt([[], [], []], 3, queues)


def test_the_queue_for_what_nobody_holds_is_shown() -> None:
    cluster = Cluster()
    holder = held(cluster)
    cluster.acquire(cluster.proposer("w", queue=True))
    cluster.release(holder)
    assert waiting(cluster, "a") == ["holder-w"]
    cluster.now += WAITER_LIFE_NS
    assert waiting(cluster, "a") == []


# --- handover -----------------------------------------------------------------------------------------------------


def test_a_handover_that_reached_one_acceptor_can_be_repeated() -> None:
    cluster = Cluster()
    holder, heir = held(cluster), cluster.proposer("heir")
    terms = {"successor": "holder-heir", "state": "left", "reserve_ns": TTL}
    cluster.reachable = {"a"}
    cluster.release(holder, **terms)
    cluster.reachable = {"a", "b", "c"}
    assert isinstance(cluster.acquire(heir), Blocked)
    assert cluster.release(holder, **terms) == Freed(0)
    won = cluster.acquire(heir)
    assert isinstance(won, Won)
    assert won.state == "left"
    assert heir.state == "left"


def test_of_two_handovers_the_newer_one_counts() -> None:
    """One acceptor has missed the second one, and still keeps what was left with the first."""
    cluster = Cluster()
    terms = {"successor": "holder-heir", "reserve_ns": 6 * TTL}
    cluster.release(held(cluster), state="old", **terms)
    cluster.reachable = {"b", "c"}
    second = cluster.proposer("heir")
    won = cluster.acquire(second)
    assert isinstance(won, Won)
    assert won.state == "old"
    cluster.release(second, state="new", **terms)
    cluster.reachable = {"a", "b", "c"}
    third = cluster.proposer("heir")
    won = cluster.acquire(third)
    assert isinstance(won, Won)
    assert won.state == "new"


def test_who_asks_in_between_and_takes_it_back_does_not_come_between_a_holder_and_its_heir() -> None:
    """Where the handover was missed, the other one's attempt was taken in, and withdrawn."""
    cluster = Cluster()
    holder = held(cluster)
    cluster.reachable = {"a", "b"}
    cluster.release(holder, successor="holder-heir", state="left", reserve_ns=6 * TTL)
    cluster.reachable = {"a", "b", "c"}
    cluster.now += TTL + SECOND
    assert isinstance(cluster.acquire(cluster.proposer("other")), Blocked)
    cluster.reachable = {"b", "c"}
    won = cluster.acquire(cluster.proposer("heir"))
    assert isinstance(won, Won)
    assert won.state == "left"


def test_what_was_left_is_not_delivered_after_somebody_elses_turn_also_where_that_is_forgotten() -> None:
    cluster = Cluster()
    holder = held(cluster)
    cluster.reachable = {"a"}
    cluster.release(holder, successor="holder-heir", state="left", reserve_ns=60 * TTL)
    cluster.reachable = {"a", "b", "c"}
    cluster.now += TTL + SECOND
    other = cluster.proposer("other")
    assert isinstance(cluster.acquire(other), Won)
    cluster.release(other)
    for name in "bc":
        assert cluster.acceptors[name].collect(cluster.now + TTL) == 1
    won = cluster.acquire(cluster.proposer("heir"))
    assert isinstance(won, Won)
    assert won.state == ""


@pytest.mark.parametrize("third", ["answers", "is away"])
def test_while_it_is_not_certain_what_was_left_the_others_are_waited_for(third: str) -> None:
    """A node that crashed can't say that nobody had it since."""
    cluster = Cluster()
    cluster.release(held(cluster), successor="holder-heir", state="left", reserve_ns=6 * TTL)
    crashed = Cluster().acceptors["a"]
    crashed.floor = cluster.ballots.used + 1
    cluster.acceptors["a"] = crashed
    if third == "is away":
        cluster.reachable = {"a", "b"}
    won = cluster.acquire(cluster.proposer("heir"))
    assert isinstance(won, Won)
    assert won.state == ("left" if third == "answers" else "")


def test_what_was_left_is_there_for_an_heir_that_has_to_ask_again_with_a_higher_number() -> None:
    cluster = Cluster()
    cluster.release(held(cluster), successor="holder-heir", state="left", reserve_ns=TTL)
    for name in "bc":
        cluster.acceptors[name].floor = 2_000_000
    won = cluster.acquire(cluster.proposer("heir"))
    assert isinstance(won, Won)
    assert won.state == "left"


# --- soft limits --------------------------------------------------------------------------------------------------


def test_a_challenge_ends_a_lease_once_a_majority_has_heard_of_it() -> None:
    cluster = Cluster()
    holder = held(cluster, soft_ns=SECOND)
    cluster.now += 2 * SECOND
    cluster.reachable = {"a"}
    cluster.acquire(cluster.proposer("q", recover=True))
    cluster.reachable = {"a", "b", "c"}
    assert isinstance(cluster.renew(holder), Kept), "one acceptor alone ends nothing"
    assert isinstance(ask(cluster.acceptors["a"], Extend(renewal(holder), holder.n), cluster.now), Gone)
    cluster.now += SECOND
    cluster.acquire(cluster.proposer("q", recover=True))
    assert cluster.renew(holder) == Ended(Loss.REVOKED, TTL - 3 * SECOND)


def restarted(cluster: Cluster, name: str) -> None:
    """Let an acceptor lose what it had."""
    incarnation = cluster.acceptors[name].incarnation + 1
    cluster.acceptors[name] = acceptor(name)
    cluster.acceptors[name].incarnation = incarnation


def test_a_soft_limit_counts_from_the_grant_also_at_acceptors_that_were_handed_the_lease() -> None:
    cluster = Cluster()
    holder = held(cluster, soft_ns=30 * SECOND)
    for name in "abc":
        cluster.now += 8 * SECOND
        restarted(cluster, name)
        assert isinstance(cluster.renew(holder), Kept)
    cluster.now += 7 * SECOND
    cluster.acquire(cluster.proposer("q", recover=True))
    assert cluster.renew(holder) == Ended(Loss.REVOKED, TTL - 7 * SECOND)


def test_it_is_over_at_an_acceptor_that_is_handed_the_lease_later_than_that() -> None:
    cluster = Cluster()
    holder = held(cluster, soft_ns=SECOND)
    cluster.now += 2 * SECOND
    restarted(cluster, "a")
    assert isinstance(cluster.renew(holder), Kept)
    assert cluster.acceptors["a"].load("job").soft_ns == 1


def test_a_rider_too_is_handed_out_with_what_is_left_of_its_soft_limit() -> None:
    cluster = Cluster()
    root = held(cluster, resource="session")
    rider = cluster.proposer("r", ttl_ns=0, parent=("session", root.token), soft_ns=30 * SECOND)
    rider.ride(root)
    assert isinstance(cluster.acquire(rider), Won)
    cluster.now += 8 * SECOND
    restarted(cluster, "a")
    assert isinstance(cluster.renew(root), Kept)
    assert 22 * SECOND <= cluster.acceptors["a"].load("job").soft_ns < 22.1 * SECOND


def test_the_shortest_time_to_hold_it_counts_from_the_grant_everywhere() -> None:
    cluster = Cluster()
    holder = held(cluster, hold_at_least_ns=20 * SECOND)
    for name in "ab":
        cluster.now += 8 * SECOND
        restarted(cluster, name)
        assert isinstance(cluster.renew(holder), Kept)
    freed = cluster.release(holder)
    assert isinstance(freed, Freed)
    assert freed.free_in_ns is not None
    assert 4 * SECOND <= freed.free_in_ns < 4.2 * SECOND


def renewal(holder: Proposer) -> Renew:
    return Renew(holder.op.resource, holder.op.lease_id, holder.token, TTL)


# --- grace --------------------------------------------------------------------------------------------------------


def test_what_ran_out_comes_back_with_its_token_if_a_majority_has_seen_nobody_else() -> None:
    cluster = Cluster()
    holder = held(cluster, grace_ns=TTL)
    token = holder.token
    cluster.now += TTL + SECOND
    cluster.reachable = {"a", "b"}
    assert isinstance(cluster.renew(holder), Kept)
    assert holder.token == token
    assert holder.deadline_ns > cluster.now
    cluster.reachable = {"b", "c"}
    assert not isinstance(cluster.acquire(cluster.proposer("q")), Won)
    cluster.reachable = {"a", "b", "c"}
    assert isinstance(cluster.acquire(cluster.proposer("r")), Blocked)


def test_it_does_not_come_back_where_a_majority_took_another() -> None:
    cluster = Cluster()
    holder, other = held(cluster, grace_ns=10 * TTL), cluster.proposer("q")
    cluster.now += TTL
    cluster.reachable = {"b", "c"}
    assert isinstance(cluster.acquire(other), Won)
    cluster.release(other)
    cluster.reachable = {"a", "b", "c"}
    assert isinstance(cluster.renew(holder), Ended)


def test_it_does_not_come_back_after_its_grace_nor_when_it_was_given_up() -> None:
    for given_up in (False, True):
        cluster = Cluster()
        holder = held(cluster, grace_ns=2 * SECOND)
        cluster.now += TTL + (SECOND if given_up else 2 * SECOND)
        renew = Extend(renewal(holder), holder.n)
        if given_up:
            cluster.release(holder)
        for node in cluster.acceptors.values():
            assert ask(node, renew, cluster.now) == Gone(Loss.EXPIRED, 0, holder.n)


def test_without_a_grace_an_extended_record_is_no_second_turn() -> None:
    cluster = Cluster()
    holder = held(cluster)
    steps = holder.renew(TTL, cluster.now)
    assert steps
    late = cluster.now + TTL
    number = holder.attempt.number if holder.attempt else 0
    assert holder.on_verdict("a", number, Ack(TTL, extended=True), late, 0) == []
    assert holder.on_verdict("b", number, Ack(TTL, extended=True), late, 0) == [Ended(Loss.EXPIRED)]
