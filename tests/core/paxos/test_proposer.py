from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Loss, Revoke
from lessor.core.paxos.acceptor import Acceptor, Config, Durable
from lessor.core.paxos.ballots import DAY_US, Ballots
from lessor.core.paxos.messages import Accept, Ack, End, Gone, Look, Low, Seen, Withdraw
from lessor.core.paxos.proposer import Proposer
from lessor.core.paxos.starting import NOTHING_PROMISED
from lessor.core.paxos.steps import BackOff, Blocked, Ended, Freed, Kept, NoAnswer, Refusal, Send, Won
from lessor.core.timing import safe_span
from tests.core.paxos.cluster import DRIFT, TTL, Cluster, acceptor, ask, asking

if TYPE_CHECKING:
    from lessor.core.paxos.acceptor import Answer
    from lessor.core.paxos.messages import Request, Verdict
    from lessor.core.paxos.slot import Slot
    from lessor.core.paxos.steps import Step


@pytest.mark.parametrize("acceptors", [3, 5])
def test_a_majority_is_enough_to_acquire_renew_and_release(acceptors: int) -> None:
    cluster = Cluster(acceptors)
    cluster.reachable = set("abc"[: acceptors // 2 + 1])
    p, q = cluster.proposer("p"), cluster.proposer("q")
    won = cluster.acquire(p)
    assert won == Won(cluster.wall_us, TTL, cluster.now + safe_span(TTL, DRIFT))
    assert cluster.acquire(q) == Blocked("holder-p", p.token, TTL, 0)
    cluster.now += SECOND
    assert cluster.renew(p) == Kept(TTL, cluster.now + safe_span(TTL, DRIFT))
    assert cluster.release(p) == Freed(0)
    newer = cluster.acquire(q)
    assert isinstance(newer, Won)
    assert isinstance(won, Won)
    assert newer.token > won.token


def test_a_minority_is_not() -> None:
    cluster = Cluster()
    cluster.reachable = {"a"}
    p = cluster.proposer("p")
    assert cluster.acquire(p) == NoAnswer()
    assert ask(cluster.acceptors["a"], Look("job"), cluster.now) == Seen(()), "what it left behind is withdrawn"


def test_a_slow_majority_counts_from_before_it_was_asked_or_not_at_all() -> None:
    cluster = Cluster()
    cluster.replies_take_ns = TTL // 2
    start = cluster.now
    won = cluster.acquire(cluster.proposer("p"))
    assert isinstance(won, Won)
    assert won.deadline_ns == start + safe_span(TTL, DRIFT)
    cluster = Cluster()
    cluster.replies_take_ns = safe_span(TTL, DRIFT)
    assert cluster.acquire(cluster.proposer("p")) == NoAnswer()


def test_a_copy_of_a_reply_is_no_second_vote() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    p.acquire(cluster.now, cluster.wall_us)
    assert p.on_verdict("a", 1, Ack(TTL, extended=False), cluster.now, 0) == []
    assert p.on_verdict("a", 1, Ack(TTL, extended=False), cluster.now, 0) == []
    assert isinstance(p.on_verdict("b", 1, Ack(TTL, extended=False), cluster.now, 0)[0], Won)


def test_an_answer_to_an_older_attempt_is_not_heard() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    p.acquire(cluster.now, cluster.wall_us)
    p.acquire(cluster.now, cluster.wall_us)
    for who in "abc":
        assert p.on_verdict(who, 1, Ack(TTL, extended=False), cluster.now, 0) == []


def test_a_slow_wall_clock_gets_in_at_the_second_try() -> None:
    cluster = Cluster()
    for node in cluster.acceptors.values():
        node.floor = cluster.wall_us + 1000
    won = cluster.acquire(cluster.proposer("p"))
    assert isinstance(won, Won)
    assert won.token == cluster.wall_us + 1001


def test_the_loser_of_a_split_vote_is_no_holder() -> None:
    cluster = Cluster()
    for name in "abc":
        ask(cluster.acceptors[name], Accept(asking(f"other-{name}"), 5), cluster.now)
    p = cluster.proposer("p")
    assert cluster.acquire(p) == BackOff()


def test_after_a_split_vote_the_others_are_asked_to_hold_back() -> None:
    cluster = Cluster()
    p, q = cluster.proposer("p"), cluster.proposer("q")
    assert isinstance(cluster.drive(p, p.again(cluster.now, cluster.wall_us)), Won)
    assert isinstance(cluster.drive(q, q.again(cluster.now, cluster.wall_us)), Blocked)


def test_an_attempt_is_withdrawn_only_where_it_may_have_been_taken_in() -> None:
    cluster = Cluster()
    for name in "ab":
        ask(cluster.acceptors[name], Accept(asking("q"), 5), cluster.now)
    p = cluster.proposer("p")
    (send,) = p.acquire(cluster.now, cluster.wall_us)
    assert isinstance(send, Send)
    steps = []
    for name in "cab":
        steps = p.on_verdict(name, send.attempt, ask(cluster.acceptors[name], send.item, cluster.now), cluster.now, 0)
    assert steps == [Send(0, Withdraw("job", "p", p.n), but=("a", "b")), Blocked("holder-q", 5, TTL, 0)]


def test_to_acquire_twice_changes_nothing() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    cluster.acquire(p)
    token = p.token
    assert isinstance(cluster.acquire(p), Kept)
    assert p.token == token


def test_a_renewal_too_late_by_the_holders_own_clock_is_none() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    cluster.acquire(p)
    cluster.now = p.deadline_ns
    assert cluster.renew(p) == Ended(Loss.EXPIRED)


def test_a_holder_whose_clock_stood_still_does_not_come_back() -> None:
    cluster = Cluster()
    p, q = cluster.proposer("p"), cluster.proposer("q")
    cluster.acquire(p)
    cluster.now += TTL
    assert isinstance(cluster.acquire(q), Won)
    cluster.release(q)
    p.deadline_ns += TTL  # as it would be by a clock that stood still
    for _ in range(3):
        assert cluster.renew(p) == Ended(Loss.TAKEN)
    assert isinstance(cluster.acquire(cluster.proposer("r")), Won), "and it leaves nothing behind"


def test_an_acceptor_that_lacks_the_lease_gets_it_after_the_next_renewal() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    cluster.reachable = {"a", "b"}
    cluster.acquire(p)
    token = p.token
    cluster.reachable = {"a", "b", "c"}
    assert isinstance(cluster.renew(p), Kept)
    assert isinstance(cluster.renew(p), Kept)
    cluster.reachable = {"b", "c"}
    assert isinstance(cluster.renew(p), Kept)
    for name in "bc":
        seen = ask(cluster.acceptors[name], Look("job"), cluster.now)
        assert isinstance(seen, Seen)
        assert seen.records[0].token == token == p.token


def test_one_that_demands_a_higher_number_gets_it_once_a_majority_knows_that_number() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    cluster.reachable = {"a", "b"}
    cluster.acquire(p)
    token = p.token
    cluster.acceptors["c"].floor = p.n + 10**6
    cluster.reachable = {"a", "b", "c"}
    assert isinstance(cluster.renew(p), Kept)
    assert cluster.acceptors["a"].slots["job"].n > token
    cluster.reachable = {"b", "c"}
    assert isinstance(cluster.renew(p), Kept)
    assert p.token == token


def test_one_that_was_a_month_ahead_and_has_lost_its_disk_is_followed_to_where_it_is_now() -> None:
    """By what was heard of it before, the holder would ask below that again and again, and at once."""
    cluster = Cluster()
    p = cluster.proposer("p")
    cluster.acceptors["c"].floor = cluster.wall_us + 30 * DAY_US
    assert isinstance(cluster.acquire(p), Won)
    cluster.acceptors["c"] = back = acceptor("c")
    back.incarnation, back.floor = 2, p.n + 10**6
    assert isinstance(cluster.renew(p), Kept)
    assert back.load("job").lease_id == "p"


class DrivenUp(Acceptor):
    """Others drive its floor up, from one message to the next."""

    asked = 0

    def handle(self, request: Request, now: int, wall_us: int) -> Answer:
        self.asked += 1
        self.floor += 10**6
        return super().handle(request, now, wall_us)


def test_one_whose_floor_rises_all_the_time_is_tried_again_with_the_next_renewal() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    assert isinstance(cluster.acquire(p), Won)
    cluster.acceptors["c"] = driven = DrivenUp(Config("c"), NOTHING_PROMISED, 2)
    driven.floor = p.n
    for renewals in range(1, 3):
        assert isinstance(cluster.renew(p), Kept)
        assert driven.asked <= 4 * renewals


def test_the_same_answer_again_is_not_heard_again() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    cluster.reachable = {"a", "b"}
    cluster.acquire(p)
    (renewal,) = p.renew(TTL, cluster.now)
    assert isinstance(renewal, Send)
    answers = {name: Ack(TTL, extended=True) for name in "ab"} | {"c": Gone(Loss.EXPIRED)}
    found = [
        step for name, said in answers.items() for step in p.on_verdict(name, renewal.attempt, said, cluster.now, 1)
    ]
    (handed,) = [step for step in found if isinstance(step, Send)]
    demand = [p.on_verdict("c", handed.attempt, Low(p.n + 1), cluster.now, cluster.wall_us) for _ in range(3)]
    assert [len(steps) for steps in demand] == [1, 0, 0]
    (rise,) = demand[0]
    assert isinstance(rise, Send)
    confirmed = [p.on_verdict(name, rise.attempt, Ack(TTL, extended=True), cluster.now, 1) for name in "ab"]
    assert [len([step for step in steps if isinstance(step, Send)]) for steps in confirmed] == [0, 1]


def test_it_gets_it_though_somebody_who_waits_leads_it_on_between_any_two_renewals() -> None:
    cluster = Cluster()
    p, waiter = cluster.proposer("p"), cluster.proposer("q", queue=True)
    waiter.ballots = Ballots(3)  # of another client
    assert isinstance(cluster.acquire(p), Won)
    cluster.acceptors["c"] = back = acceptor("c")
    back.incarnation, back.floor = 2, cluster.wall_us + 10**6
    for _ in range(2):
        cluster.now += SECOND
        assert isinstance(cluster.acquire(waiter), Blocked)
    assert isinstance(cluster.renew(p), Kept)
    assert back.load("job").lease_id == "p"


def test_a_renewal_says_nothing_until_who_lacks_the_lease_has_it_or_nobody_waits_any_more() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    assert isinstance(cluster.acquire(p), Won)
    (renewal,) = p.renew(TTL, cluster.now)
    assert isinstance(renewal, Send)

    def hear(who: str, number: int, verdict: Verdict) -> list[Step]:
        return p.on_verdict(who, number, verdict, cluster.now, cluster.wall_us)

    assert hear("c", renewal.attempt, Gone(Loss.EXPIRED)) == []
    assert hear("a", renewal.attempt, Ack(TTL, extended=True)) == []
    (mending,) = hear("b", renewal.attempt, Ack(TTL, extended=True))
    assert isinstance(mending, Send)
    (asking,) = hear("c", mending.attempt, Low(p.n + 5))
    assert isinstance(asking, Send)
    assert asking.aside
    assert hear("a", asking.attempt, Ack(TTL, extended=True)) == []
    (again,) = hear("b", asking.attempt, Ack(TTL, extended=True))
    assert isinstance(again, Send)
    assert isinstance(mending.item, Accept)
    assert (again.to, again.item) == ("c", mending.item._replace(n=p.n))
    kept = hear("c", again.attempt, Ack(TTL, extended=False))
    assert kept == [Kept(TTL, p.deadline_ns)]


def test_a_number_that_no_majority_has_confirmed_is_not_handed_out_nor_waited_for_in_the_end() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    assert isinstance(cluster.acquire(p), Won)
    cluster.acceptors["a"] = back = acceptor("a")
    back.floor = p.n + 5
    (renewal,) = p.renew(TTL, cluster.now)
    assert isinstance(renewal, Send)
    (asking,) = cluster._send(p, renewal)
    assert isinstance(asking, Send)
    cluster.reachable = {"a", "c"}
    assert cluster._send(p, asking) == []
    assert p.on_timeout(renewal.attempt, cluster.now) == [Kept(TTL, p.deadline_ns)]
    assert back.load("job").lease_id is None


def test_a_failed_renewal_takes_nothing_back() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    cluster.acquire(p)
    deadline = p.deadline_ns
    cluster.reachable = {"a"}
    assert cluster.renew(p) == NoAnswer()
    assert p.deadline_ns == deadline
    assert cluster.acceptors["a"].slots["job"].lease_id == "p"


def test_a_revoked_lease_is_not_renewed() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    cluster.acquire(p)
    for name in "bc":
        ask(cluster.acceptors[name], End(Revoke("job")), cluster.now)
    assert cluster.renew(p) == Ended(Loss.REVOKED, TTL)


def test_a_lease_known_from_elsewhere_can_be_renewed_and_released() -> None:
    cluster = Cluster()
    p, heir = cluster.proposer("p"), cluster.proposer("p")
    cluster.acquire(p)
    heir.resume(p.token, p.deadline_ns)
    cluster.now += SECOND
    assert isinstance(cluster.renew(heir), Kept)
    assert cluster.release(heir) == Freed(0)
    assert cluster.release(p) == Freed(None)


def test_such_a_lease_is_not_handed_out_for_its_terms_are_not_known() -> None:
    cluster = Cluster()
    p = cluster.proposer("p", lock_delay_ns=5 * SECOND)
    assert isinstance(cluster.acquire(p), Won)
    cluster.acceptors["a"] = back = acceptor("a")
    heir = Proposer(Acquire("job", "p", "", TTL), acceptors=3, drift=DRIFT, ballots=cluster.ballots)
    heir.resume(p.token, p.deadline_ns)
    assert isinstance(cluster.renew(heir), Kept)
    assert back.load("job").lease_id is None
    assert isinstance(cluster.renew(p), Kept)
    assert back.load("job").lock_delay_ns == 5 * SECOND


def test_what_no_acceptor_takes_is_refused_with_the_reason() -> None:
    cluster = Cluster()
    refusal = cluster.acquire(cluster.proposer("p", ttl_ns=61 * SECOND))
    assert isinstance(refusal, Refusal)
    assert "60 s" in refusal.why


def test_acceptors_that_answer_for_one_another_count_once() -> None:
    cluster = Cluster()
    cluster.acceptors["c"] = acceptor("c")
    p = cluster.proposer("p")
    (send,) = p.acquire(cluster.now, cluster.wall_us)
    assert isinstance(send, Send)
    verdict = ask(cluster.acceptors["a"], send.item, cluster.now)
    for _ in range(3):
        assert p.on_verdict("a", send.attempt, verdict, cluster.now, 0) == []


def test_one_acceptor_whose_clock_is_wrong_refuses_for_itself_only() -> None:
    cluster = Cluster()
    cluster.acceptors["a"].config = cluster.acceptors["a"].config._replace(max_ttl_ns=1)
    assert isinstance(cluster.acquire(cluster.proposer("p")), Won)


def test_a_floor_far_ahead_of_the_others_is_not_followed_and_one_of_a_majority_is() -> None:
    cluster = Cluster()
    far = cluster.wall_us + 30 * DAY_US
    cluster.acceptors["a"].floor = far
    p = cluster.proposer("p")
    assert isinstance(cluster.acquire(p), Won)
    assert p.token < cluster.wall_us + SECOND
    for _ in range(3):  # the first finds that one lacks it, the second hears what it demands
        cluster.now += SECOND
        assert isinstance(cluster.renew(p), Kept)
    assert cluster.release(p) == Freed(0)
    cluster.acceptors["b"].floor = far + 1
    for name in "ab":
        cluster.acceptors[name].persisted(Durable(far + 1, 0))
        cluster.acceptors[name]._lead_us = None  # as after a restart
    won = cluster.acquire(cluster.proposer("q"))
    assert isinstance(won, Won)
    assert won.token > far, "two of three demand it"


def test_a_floor_some_hours_ahead_is_followed_so_that_all_take_the_lease_in() -> None:
    cluster = Cluster()
    cluster.acceptors["a"].floor = hours = cluster.wall_us + DAY_US // 4
    p = cluster.proposer("p")
    won = cluster.acquire(p)
    assert isinstance(won, Won)
    assert won.token == hours + 1


@pytest.mark.parametrize("wrong", ["a", "b", "c"])
def test_a_refusal_of_a_minority_fails_nothing(wrong: str) -> None:
    """Whenever it answers: its clock is wrong, or its settings are."""
    cluster = Cluster()
    cluster.acceptors[wrong] = Refusing(Config(wrong), NOTHING_PROMISED, 1)
    p = cluster.proposer("p")
    assert isinstance(cluster.acquire(p), Won)
    assert isinstance(cluster.renew(p), Kept)
    assert cluster.release(p) == Freed(0)
    q = cluster.proposer("q")
    assert isinstance(cluster.drive(q, q.again(cluster.now, cluster.wall_us)), Won)


def test_a_refusal_of_a_majority_is_one_whatever_was_asked() -> None:
    cluster = Cluster()
    p, q = cluster.proposer("p"), cluster.proposer("q")
    assert isinstance(cluster.acquire(p), Won)
    for name in "ac":
        cluster.acceptors[name] = Refusing(Config(name), NOTHING_PROMISED, 1)
    assert cluster.renew(p) == Refusal("no")
    assert cluster.release(p) == Refusal("no"), "it was told to be free, and is not"
    assert cluster.drive(q, q.again(cluster.now, cluster.wall_us)) == Refusal("no")
    assert cluster.acquire(q) == Refusal("no")


class Refusing(Acceptor):
    def refusal(self, slot: Slot, n: int, ttl_ns: int = 0, lock_delay_ns: int = 0, hold_ns: int = 0) -> str:
        return "no"


def test_a_renewal_that_failed_hands_the_lease_to_nobody() -> None:
    """It is over: an answer that comes late must not bring it back somewhere."""
    cluster = Cluster()
    p = cluster.proposer("p")
    assert isinstance(cluster.acquire(p), Won)
    (renewal,) = p.renew(TTL, cluster.now)
    assert isinstance(renewal, Send)
    gone = Gone(Loss.EXPIRED)
    assert p.on_verdict("a", renewal.attempt, gone, cluster.now, cluster.wall_us) == []
    assert p.on_verdict("b", renewal.attempt, gone, cluster.now, cluster.wall_us) == [Ended(Loss.EXPIRED)]
    assert p.on_verdict("c", renewal.attempt, gone, cluster.now, cluster.wall_us) == []


def test_one_that_answers_after_the_majority_that_it_lacks_the_lease_is_handed_it() -> None:
    cluster = Cluster()
    p = cluster.proposer("p")
    assert isinstance(cluster.acquire(p), Won)
    (renewal,) = p.renew(TTL, cluster.now)
    assert isinstance(renewal, Send)
    for who in "ab":
        kept = p.on_verdict(who, renewal.attempt, Ack(TTL, extended=True), cluster.now, cluster.wall_us)
    assert isinstance(kept[0], Kept)
    (mending,) = p.on_verdict("c", renewal.attempt, Gone(Loss.EXPIRED), cluster.now, cluster.wall_us)
    assert isinstance(mending, Send)
    assert mending.to == "c"
    assert isinstance(mending.item, Accept)
    assert mending.item.token == p.token


# --- floors that are far ahead ------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [13, 23])
def test_a_floor_that_is_not_heeded_shuts_nobody_out_where_there_is_no_majority_without_it(hours: int) -> None:
    cluster, ahead = Cluster(), hours * 3600 * 1_000_000
    cluster.acceptors["a"].floor = cluster.wall_us + ahead
    cluster.reachable = {"a", "b"}
    waiting = cluster.proposer("p")
    assert isinstance(cluster.acquire(waiting), BackOff)
    used = cluster.ballots.used
    won = cluster.drive(waiting, waiting.again(cluster.now, cluster.wall_us))
    assert isinstance(won, Won)
    assert won.token == cluster.acceptors["a"].floor + 1
    assert cluster.ballots.used == used + 1, "nobody else has to follow"


def test_a_floor_so_far_ahead_that_the_others_would_refuse_it_is_not_tried() -> None:
    cluster = Cluster()
    cluster.acceptors["a"].floor = cluster.wall_us + 30 * DAY_US
    cluster.reachable = {"a", "b"}
    waiting = cluster.proposer("p")
    assert isinstance(cluster.acquire(waiting), BackOff)
    assert isinstance(cluster.drive(waiting, waiting.again(cluster.now, cluster.wall_us)), BackOff)
    assert waiting.n < cluster.wall_us + DAY_US
    cluster.reachable = {"a", "b", "c"}
    assert isinstance(cluster.drive(waiting, waiting.again(cluster.now, cluster.wall_us)), Won)


def test_who_reached_too_far_for_most_is_not_refused_for_good() -> None:
    """Its own wall clock was ahead, so that the number seemed to be possible."""
    cluster = Cluster()
    waiting = cluster.proposer("p")
    waiting._reach = cluster.wall_us + 2 * DAY_US
    assert isinstance(cluster.drive(waiting, waiting.again(cluster.now, cluster.wall_us)), BackOff)
    assert isinstance(cluster.drive(waiting, waiting.again(cluster.now, cluster.wall_us)), Won)
