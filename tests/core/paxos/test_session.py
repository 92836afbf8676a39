"""Leases that ride on another one, over three acceptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Loss, Revoke
from lessor.core.paxos.messages import Accept, Ack, End, Extend, Gone, Low
from lessor.core.paxos.riders import fingerprint, riders, stamp
from lessor.core.paxos.session import Session
from lessor.core.paxos.steps import BackOff, Ended, Kept, NoAnswer, Refusal, Send, Won
from tests.core.paxos.cluster import TTL, Cluster, ask

if TYPE_CHECKING:
    from lessor.core.paxos.proposer import Proposer
    from lessor.core.paxos.steps import Step

NEVER = 10**18


class Family:
    """A session, and what rides on it."""

    def __init__(self, acceptors: int = 3) -> None:
        self.cluster = Cluster(acceptors)
        self.root = self.cluster.proposer("s", resource="session")
        assert isinstance(self.cluster.acquire(self.root), Won)

    def ask_for(self, name: str, parent: Proposer | None = None) -> Proposer:
        above = parent or self.root
        op = {"resource": name, "ttl_ns": 0, "parent": (above.op.resource, above.token)}
        rider = self.cluster.proposer(name, **op)
        rider.ride(above)
        return rider

    def get(self, name: str, parent: Proposer | None = None) -> Proposer:
        rider = self.ask_for(name, parent)
        assert isinstance(self.cluster.acquire(rider), Won)
        return rider

    def later(self, *reachable: str) -> None:
        self.cluster.now += TTL // 3
        self.cluster.reachable = set(reachable or self.cluster.acceptors)

    @property
    def session(self) -> Session:
        assert self.root.session is not None
        return self.root.session

    def is_kept(self, rider: Proposer, by: int = 2) -> bool:
        """Whether so many acceptors keep others out for as long as the session is believed to be held."""
        until = self.root.deadline_ns
        slots = [(node, node.load(rider.op.resource)) for node in self.cluster.acceptors.values()]
        owned = [node.expiry(slot) >= until for node, slot in slots if slot.lease_id == rider.op.lease_id]
        return sum(owned) >= by


def test_the_renewal_of_the_session_is_that_of_all_on_it_at_any_depth() -> None:
    family = Family()
    middle = family.get("middle")
    bottom = family.get("bottom", middle)
    for _ in range(5):
        family.later()
        kept = family.cluster.renew(family.root)
        assert kept == Kept(TTL, family.root.deadline_ns)
        assert family.is_kept(middle, 3)
        assert family.is_kept(bottom, 3)


def test_an_acceptor_says_that_it_has_all_or_lists_what_it_has() -> None:
    family = Family()
    riders = [family.get(f"r{number}") for number in range(3)]
    node, root = family.cluster.acceptors["a"], family.root
    renewal = root.renew(TTL, family.cluster.now)[0]
    assert isinstance(renewal, Send)
    assert isinstance(renewal.item, Extend)
    assert renewal.item.riders == fingerprint(stamp(rider.op.resource, rider.token) for rider in riders)
    assert ask(node, renewal.item, family.cluster.now) == Ack(TTL, extended=True)
    ask(node, End(Revoke("r1", force=True)), family.cluster.now)
    left = tuple(sorted(rider.stamp() for rider in riders if rider.op.resource != "r1"))
    assert ask(node, renewal.item, family.cluster.now) == Ack(TTL, extended=True, riders=left, ended=1)


def test_a_majority_for_the_session_is_none_for_a_rider_and_who_lacks_it_gets_it() -> None:
    family = Family()
    family.cluster.reachable = {"a", "b"}
    rider = family.get("rider")
    family.later("b", "c")
    kept = family.cluster.renew(family.root)
    assert isinstance(kept, Kept)
    assert kept.ended == 0
    assert family.is_kept(rider)


def test_an_acceptor_that_restarted_gets_all_of_it_again_within_one_renewal() -> None:
    family = Family()
    rider = family.get("rider")
    again = Cluster().acceptors["a"]
    again.incarnation, again.floor = 2, 10**9
    family.cluster.acceptors["a"] = again
    family.later()
    assert isinstance(family.cluster.renew(family.root), Kept)
    family.later("a", "b")
    kept = family.cluster.renew(family.root)
    assert isinstance(kept, Kept)
    assert family.is_kept(rider)


def test_what_is_not_certain_for_all_says_so_and_each_is_asked_for() -> None:
    """Others have the rider at a majority, without anybody's word to its owner."""
    family = Family()
    lost, kept = family.get("lost"), family.get("kept")
    for name in "ab":
        slot = family.cluster.acceptors[name].load("lost")
        slot.lease_id, slot.token, slot.promised_n, slot.expiry_ns = "other", NEVER, NEVER, NEVER
    family.later()
    renewed = family.cluster.renew(family.root)
    assert isinstance(renewed, Kept)
    assert renewed.ended == 1
    assert family.cluster.renew(lost, 0) == Ended(Loss.TAKEN)
    assert isinstance(family.cluster.renew(kept, 0), Kept)
    family.later()
    again = family.cluster.renew(family.root)
    assert isinstance(again, Kept)
    assert again.ended == 1


def test_a_rider_is_got_only_where_a_majority_keeps_it_for_as_long_as_the_session_is_held() -> None:
    family = Family()
    family.get("first")
    family.later("a", "b")
    family.cluster.renew(family.root)
    family.cluster.reachable = {"b", "c"}
    assert isinstance(family.cluster.acquire(family.ask_for("rider")), BackOff)
    family.cluster.renew(family.root)
    rider = family.get("rider")
    assert family.is_kept(rider)


def test_a_rider_that_no_majority_can_confirm_is_tried_again_and_then_falls_off_alone() -> None:
    family = Family()
    family.cluster.reachable = {"a", "b"}
    rider = family.get("rider")
    family.cluster.reachable = {"b", "c"}
    assert family.cluster.renew(rider, 0) == NoAnswer()
    family.cluster.now += 2 * TTL // 3
    fallen = family.cluster.renew(rider, 0)
    assert isinstance(fallen, Ended)
    assert 0 < fallen.remaining_ns < TTL // 3
    assert not family.session.riders


def test_what_was_ended_is_not_handed_to_anybody_again() -> None:
    family = Family()
    rider = family.get("rider")
    for node in family.cluster.acceptors.values():
        ask(node, End(Revoke("rider")), family.cluster.now)
    for _ in range(4):
        family.later()
        family.cluster.renew(family.root)
    assert not family.is_kept(rider, 1)


@pytest.mark.parametrize("revoked_by", ["abc", "a"])
def test_a_revoked_rider_lasts_as_long_as_a_majority_promises_and_not_by_the_word_of_one(revoked_by: str) -> None:
    family = Family()
    rider, cluster, certain = family.get("rider"), family.cluster, family.root.deadline_ns
    family.later("a")
    cluster.drive(family.root, family.root.renew(TTL, cluster.now))  # one acceptor alone keeps it for longer
    for name, node in cluster.acceptors.items():
        if name in revoked_by:
            ask(node, End(Revoke("rider")), cluster.now)
        else:
            node.slots.pop("rider")
    cluster.reachable = {"a", "b"}
    by_a_majority, known_before = TTL - TTL // 3, certain - cluster.now
    left = by_a_majority if revoked_by == "abc" else known_before
    assert cluster.renew(rider, 0) == Ended(Loss.REVOKED, left)


def test_something_rides_on_a_lease_that_was_taken_over_once_that_is_renewed() -> None:
    family = Family()
    other = family.cluster.proposer("s", resource="session")
    other.resume(family.root.token, NEVER)
    assert isinstance(family.cluster.renew(other), Kept)
    assert isinstance(family.cluster.acquire(family.ask_for("rider", other)), Won)


@pytest.mark.parametrize("level", ["middle", "bottom"])
def test_who_is_given_back_rides_no_longer_nor_does_what_rides_on_it(level: str) -> None:
    family = Family()
    middle = family.get("middle")
    bottom = family.get("bottom", middle)
    other = family.get("other")
    family.cluster.release(middle if level == "middle" else bottom)
    left = {other} if level == "middle" else {other, middle}
    assert set(family.session.riders.values()) == left
    assert family.session.fingerprint == fingerprint(rider.stamp() for rider in left)
    family.later()
    assert family.cluster.renew(family.root) == Kept(TTL, family.root.deadline_ns)


# --- what is over and was not heard of everywhere -----------------------------------------------------------------


def others_get(family: Family, name: str, *reachable: str) -> bool:
    family.cluster.reachable = set(reachable)
    return isinstance(family.cluster.acquire(family.cluster.proposer("other", resource=name)), Won)


def test_what_was_given_back_is_free_after_the_next_renewal_also_where_that_was_not_heard() -> None:
    family = Family()
    middle = family.get("middle")
    family.get("bottom", middle)
    family.cluster.reachable = {"a", "b"}
    family.cluster.release(middle)
    family.later()
    assert isinstance(family.cluster.renew(family.root), Kept)
    assert others_get(family, "middle", "b", "c")
    assert others_get(family, "bottom", "b", "c")


@pytest.mark.parametrize("low", [False, True])
def test_so_is_what_was_asked_for_in_vain(*, low: bool) -> None:
    family = Family()
    cluster, rider = family.cluster, family.ask_for("rider")
    cluster.reachable = {"c"}
    (asked,) = rider.acquire(cluster.now, cluster.wall_us)
    assert isinstance(asked, Send)
    assert cluster._send(rider, asked) == []
    if low:  # it asks again with a higher number, which the one that took it in doesn't hear of either
        rider.on_verdict("a", asked.attempt, Low(rider.n), cluster.now, cluster.wall_us)
        asked = asked._replace(attempt=asked.attempt + 1)
    assert isinstance(rider.on_timeout(asked.attempt, cluster.now)[-1], NoAnswer)
    family.later()
    assert isinstance(cluster.renew(family.root), Kept)
    assert others_get(family, "rider", "b", "c")


def test_what_is_lost_is_left_alone_for_as_long_as_its_owner_may_act_on_it() -> None:
    family = Family()
    family.cluster.reachable = {"a", "b"}
    rider = family.get("rider")
    until = family.root.deadline_ns
    family.cluster.now += 2 * TTL // 3
    family.cluster.reachable = {"b", "c"}
    fallen = family.cluster.renew(rider, 0)
    assert isinstance(fallen, Ended)
    assert fallen.remaining_ns == until - family.cluster.now
    family.cluster.reachable = {"a", "b", "c"}
    assert isinstance(family.cluster.renew(family.root), Kept)
    family.cluster.now = until - 1
    assert isinstance(family.cluster.renew(family.root), Kept)
    assert not others_get(family, "rider", "a", "b", "c")
    family.cluster.now = until + 1
    assert isinstance(family.cluster.renew(family.root), Kept)
    assert others_get(family, "rider", "a", "b", "c")


def test_who_says_that_it_has_what_it_was_asked_about_may_have_what_left_since() -> None:
    family = Family()
    rider, cluster = family.get("rider"), family.cluster
    (renewal,) = family.root.renew(TTL, cluster.now)
    assert isinstance(renewal, Send)
    cluster.reachable = {"a", "b"}
    cluster.release(rider)
    for who in "abc":
        family.root.on_verdict(who, renewal.attempt, Ack(TTL, extended=True), cluster.now, 0, incarnation=1)
    family.later()
    assert isinstance(cluster.renew(family.root), Kept)
    assert others_get(family, "rider", "b", "c")


def test_what_is_over_everywhere_is_forgotten_and_a_node_that_is_away_keeps_nothing_in_memory_for_long() -> None:
    family = Family()
    for _ in range(3):
        family.cluster.release(family.get("rider"))
    assert len(family.session._left) == 3
    for _ in range(2):
        assert isinstance(family.cluster.renew(family.root), Kept)
    assert not family.session._left
    for number in range(30):
        family.later("a", "b")
        family.cluster.release(family.get(f"r{number}"))
        assert isinstance(family.cluster.renew(family.root), Kept)
        assert len(family.session._left) <= 5


def test_what_left_while_a_node_was_away_is_not_brought_back_there_by_the_session() -> None:
    """Its record has run out with the session's, and nobody remembers it when that one is handed out again."""
    family = Family()
    rider = family.get("rider")
    family.later("a", "b")
    family.cluster.release(rider)
    for _ in range(8):
        assert isinstance(family.cluster.renew(family.root), Kept)
        family.later("a", "b")
    family.later()
    for _ in range(2):
        assert isinstance(family.cluster.renew(family.root), Kept)
    assert family.cluster.acceptors["c"].is_live(family.cluster.acceptors["c"].load("session"), family.cluster.now)
    assert others_get(family, "rider", "b", "c")


def test_a_rider_whose_renewal_is_refused_is_held_all_the_same_and_still_rides() -> None:
    family = Family()
    rider, cluster = family.ask_for("rider"), family.cluster
    rider.op = rider.op._replace(lock_delay_ns=5 * SECOND)
    assert isinstance(cluster.acquire(rider), Won)
    settings = {name: node.config for name, node in cluster.acceptors.items()}
    for name in "ab":
        cluster.acceptors[name].config = settings[name]._replace(max_lock_delay_ns=SECOND)
    assert isinstance(cluster.renew(rider, 0), Refusal)
    assert set(family.session.riders.values()) == {rider}
    for name in "ab":
        cluster.acceptors[name].config = settings[name]
    del cluster.acceptors["a"].slots["rider"]
    for _ in range(2):
        family.later()
        assert isinstance(cluster.renew(family.root), Kept)
    assert family.is_kept(rider, 3)


def test_what_was_taken_for_lost_and_is_renewed_rides_again() -> None:
    family = Family()
    rider = family.get("rider")
    family.session.leave(rider, family.cluster.now)
    for _ in range(2):
        assert isinstance(family.cluster.renew(rider, 0), Kept)
        assert set(family.session.riders.values()) == {rider}
        assert family.session.fingerprint == rider.stamp()


def test_a_rider_is_listed_again_where_its_session_was_forgotten_and_is_back() -> None:
    family = Family()
    rider, node = family.get("rider"), family.cluster.acceptors["a"]
    for _ in range(4):
        family.later("b", "c")
        family.cluster.renew(family.root)
    node.forget(node.slots["session"])
    node._rounds.remove("session")
    for _ in range(2):
        family.later()
        family.cluster.renew(family.root)
    assert riders(node, node.load("session")) == [rider.stamp()]


@pytest.mark.parametrize("reason", [Loss.EXPIRED, Loss.TAKEN])
def test_who_has_lost_the_session_has_lost_what_rides_on_it(reason: Loss) -> None:
    family = Family()
    rider, now = family.get("rider"), family.cluster.now
    renewal = family.root.renew(TTL, now)[0]
    assert isinstance(renewal, Send)
    for who in "bc":
        family.root.on_verdict(who, renewal.attempt, Ack(TTL, extended=True), now, 0, incarnation=1)
    (mending,) = family.root.on_verdict("a", renewal.attempt, Gone(reason), now, 0, incarnation=1)
    assert isinstance(mending, Send)
    assert "a" not in family.session._kept
    handed = family.root.on_verdict("a", mending.attempt, Ack(TTL, extended=False), now, 0, incarnation=1)
    assert [step.item.op for step in handed if isinstance(step, Send) and isinstance(step.item, Accept)] == [rider.op]


def test_who_takes_the_session_in_afresh_has_nothing_that_rides_on_it_whatever_it_had() -> None:
    family = Family()
    rider, now = family.get("rider"), family.cluster.now
    renewal = family.root.renew(TTL, now)[0]
    assert isinstance(renewal, Send)
    for who in "bc":
        family.root.on_verdict(who, renewal.attempt, Ack(TTL, extended=True), now, 0, incarnation=1)
    family.root._mending.add("a")
    family.root.on_verdict("a", family.root._healing, Ack(TTL, extended=False), now, 0, incarnation=1)
    assert rider.stamp() not in family.session._kept["a"].riders


class Counting(Session):
    """Counts how often all riders are looked at."""

    looks = 0

    def lacks(self, until_ns: int) -> bool:
        self.looks += 1
        return super().lacks(until_ns)


def test_while_many_riders_are_handed_out_nobody_looks_at_all_of_them_for_each() -> None:
    family = Family()
    family.root.make_session = Counting
    for number in range(100):
        family.get(f"r{number}")
    family.cluster.acceptors["b"].incarnation = 2
    family.later("a", "b")
    assert isinstance(family.cluster.renew(family.root), Kept)
    assert isinstance(family.session, Counting)
    assert family.session.looks < 10


def test_who_agrees_with_what_it_was_asked_about_says_nothing_of_a_rider_that_came_since() -> None:
    """It took that one in, and was told to revoke it, before it heard of the renewal."""
    family = Family()
    family.get("first")
    rider, cluster = family.ask_for("rider"), family.cluster
    wanted = rider.acquire(cluster.now, cluster.wall_us)[0]
    assert isinstance(wanted, Send)
    node = cluster.acceptors["a"]

    def taken_in_by(who: str) -> None:
        verdict = ask(cluster.acceptors[who], wanted.item, cluster.now)
        rider.on_verdict(who, wanted.attempt, verdict, cluster.now, 0, incarnation=1)

    taken_in_by("a")
    ask(node, End(Revoke("rider")), cluster.now)
    family.later("a", "b")
    family.cluster.renew(family.root)
    taken_in_by("b")
    assert not rider.token, "one acceptor alone keeps it for as long as the session"


# --- whose word counts --------------------------------------------------------------------------------------------

RIDER = 77


def book() -> tuple[Session, Proposer]:
    """A rider that acceptors a and b took in, until 100."""
    family = Family()
    rider = family.get("rider")
    session = family.session
    session.riders = {RIDER: rider}
    session._kept.clear()
    session.begin(0)
    for who in "ab":
        session.acked(RIDER, who, 1, 100, 0)
    return session, rider


def test_a_rider_lasts_as_long_as_a_majority_supports() -> None:
    session, _ = book()
    assert session.deadline(RIDER) == 100
    assert session.renewed("a", 1, None, 200, 50) == []
    assert session.deadline(RIDER) == 100
    assert session.renewed("b", 1, [RIDER], 180, 50) == []
    assert session.deadline(RIDER) == 180
    assert not session.lacks(180)
    assert session.lacks(181)


def test_an_acceptor_that_never_took_the_rider_does_not_count() -> None:
    session, rider = book()
    assert session.renewed("c", 1, [RIDER], 200, 50) == [rider]
    assert session.renewed("a", 1, None, 200, 50) == []
    assert session.deadline(RIDER) == 100
    session.acked(RIDER, "c", 1, 200, 60)
    assert session.deadline(RIDER) == 200


def test_nor_one_that_restarted_or_lost_it_or_whose_time_ran_out() -> None:
    for incarnation, listed, now in ((2, None, 50), (1, [], 50), (1, None, 100)):
        session, rider = book()
        session.renewed("b", 1, None, 200, 50)
        assert session.renewed("a", incarnation, listed, 200, now) == [rider]
        assert session.deadline(RIDER) == 0


def test_nor_does_a_word_that_comes_after_its_time() -> None:
    session, _ = book()
    session.renewed("b", 1, None, 200, 50)
    assert session.renewed("a", 1, [], 200, 50) != []
    session.acked(RIDER, "a", 1, 100, 150)
    assert session.deadline(RIDER) == 0


def test_what_asks_for_a_rider_is_an_ordinary_request() -> None:
    family = Family()
    rider = family.get("rider")
    send = family.session.hand_out([rider], "c", family.cluster.now)[0]
    assert isinstance(send.item, Accept)
    assert (send.to, send.item.n, send.item.token) == ("c", rider.confirmed_n, rider.token)


def test_what_is_over_is_not_raised_because_a_node_demands_more_of_it() -> None:
    """Or the word that it is over would be too low for all of them, for as long as the session lives."""
    family = Family()
    cluster = family.cluster
    rider = family.get("rider")
    node = cluster.acceptors["c"]
    node.forget(node.slots["rider"])
    node.floor = cluster.ballots.used + 1000
    cluster.now += TTL // 3
    (renewal,) = [step for step in family.root.renew(TTL, cluster.now) if isinstance(step, Send)]
    steps: list[Step] = []
    for who in "abc":
        verdict = ask(cluster.acceptors[who], renewal.item, cluster.now, cluster.wall_us)
        steps += family.root.on_verdict(who, renewal.attempt, verdict, cluster.now, cluster.wall_us, incarnation=1)
    (handed,) = [step for step in steps if isinstance(step, Send)]
    low = ask(node, handed.item, cluster.now, cluster.wall_us)
    assert isinstance(low, Low)
    family.session.leave(rider, cluster.now)  # it is lost to its owner meanwhile
    assert family.root.on_verdict("c", handed.attempt, low, cluster.now, cluster.wall_us, incarnation=1) == []


def test_what_is_given_back_twice_was_held_all_the_same() -> None:
    """A release without an answer is tried again. What its holder had inherited is not left to another one then."""
    family = Family()
    cluster = family.cluster
    before = cluster.proposer("before", resource="rider")
    assert isinstance(cluster.acquire(before), Won)
    cluster.release(before, successor="holder-rider", state="S", reserve_ns=60 * SECOND)
    heir = family.ask_for("rider")
    assert isinstance(cluster.acquire(heir), Won)
    cluster.reachable = {"a"}
    cluster.release(heir)
    cluster.release(heir)
    cluster.reachable = set("abc")
    cluster.now += TTL // 4
    cluster.renew(family.root)
    other = cluster.proposer("other", resource="rider")
    other.op = other.op._replace(holder="holder-rider")
    won = cluster.acquire(other)
    assert isinstance(won, Won)
    assert won.state == ""
