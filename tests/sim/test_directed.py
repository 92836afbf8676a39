"""Schedules made by hand for mutants that chance finds too seldom. The real protocol gets through each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.ops import Loss, Release, Revoke
from lessor.core.paxos.ballots import DAY_US
from lessor.core.paxos.messages import Accept, Ack, Drop, End, Gone, Withdraw
from lessor.sim.checks import Violation
from lessor.sim.world import Cast
from tests.sim.mutants import CASTS
from tests.sim.stage import Fate, SessionActor, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

REAL = Cast()


def late_copy_of_a_request(cast: Cast) -> Stage:
    """A copy of an acquire arrives after the release."""
    stage = Stage(cast, fates=(Fate("c0", "b", Accept, (MILLISECOND, 300 * MILLISECOND)),))
    stage.at(0, stage.client("c0").want, "x")
    stage.at(100 * MILLISECOND, stage.client("c0").release, "x")
    stage.run(SECOND)
    return stage


def majority_completed_during_the_silence(cast: Cast) -> Stage:
    """A node takes a lease in and loses its disk; another node completes that lease's majority only then."""
    ttl = 4 * SECOND
    fates = (
        Fate("c0", "a", Accept, (300 * MILLISECOND,)),
        Fate("c0", "b", Accept, ()),
        Fate("c1", "a", object, ()),
    )
    stage = Stage(cast, ttl_ns=ttl, fates=fates)
    c = stage.nodes["c"]
    stage.client("c0")._wall_us += 1_000_000_000
    stage.at(10 * MILLISECOND, stage.client("c0").want, "x")
    stage.at(200 * MILLISECOND, c.crash)
    stage.at(200 * MILLISECOND, c.lose_disk)
    stage.at(200 * MILLISECOND, stage.world.checks.on_lost_disk, c)
    stage.at(210 * MILLISECOND, c.begin)
    stage.at(500 * MILLISECOND, stage.client("c0").die)
    stage.at(5 * SECOND, stage.client("c1").want, "x")
    stage.run(7 * SECOND)
    assert stage.world.tally.acquisitions == 2
    return stage


def clock_that_stood_still(cast: Cast) -> Stage:
    """A holder and its clock stand still for another's whole turn."""
    stage = Stage(cast, clocks=False)
    stage.at(0, stage.client("c0").want, "x")
    stage.stand_still("c0", 250 * MILLISECOND, 2800 * MILLISECOND)
    stage.at(1500 * MILLISECOND, stage.client("c1").want, "x")
    stage.at(1700 * MILLISECOND, stage.client("c1").release, "x")
    stage.run(4 * SECOND)
    assert stage.world.tally.acquisitions == 2
    return stage


def clocks_that_stood_still(cast: Cast) -> Stage:
    """So does the clock of one of its acceptors; and then it finds an acceptor that lacks its lease."""
    fates = (
        Fate("c0", "c", Accept, (), until_ns=SECOND),
        Fate("c", "c0", Gone, (2600 * MILLISECOND,), until_ns=SECOND),
    )
    stage = Stage(cast, fates=fates, clocks=False)
    b = stage.nodes["b"]
    stage.at(0, stage.client("c0").want, "x")
    stage.stand_still("c0", 400 * MILLISECOND, 2900 * MILLISECOND)
    stage.at(400 * MILLISECOND, lambda: b.clock.jump(stage.world.now, -2500 * MILLISECOND))
    stage.at(1500 * MILLISECOND, stage.client("c1").want, "x")
    stage.at(1700 * MILLISECOND, stage.client("c1").release, "x")
    stage.run(5 * SECOND)
    assert stage.world.tally.acquisitions == 2
    return stage


def clock_that_ran_ahead(cast: Cast) -> Stage:
    """A node's clock runs ahead, and another has a whole turn there and at the node that lacks the lease.

    What that node said before the turn arrives after what it said later. So the holder has drawn a number above the
    other's token, for a majority to confirm, when it hands the lease to that node.
    """
    sent, again = 100 * MILLISECOND, 150 * MILLISECOND
    fates = (
        Fate("c0", "c", Accept, (), until_ns=sent),
        Fate("c0", "c", Accept, (again + 20 * MILLISECOND - sent,), until_ns=again),
        Fate("b", "c0", Ack, (60 * MILLISECOND,), from_ns=again, until_ns=again + 5 * MILLISECOND),
        Fate("c", "c0", Gone, (70 * MILLISECOND,), from_ns=again, until_ns=again + 5 * MILLISECOND),
    )
    stage = Stage(cast, fates=fates, clocks=False)
    c0, c1, a = stage.client("c0"), stage.client("c1"), stage.nodes["a"]
    stage.at(0, c0.want, "x")
    stage.at(sent, c0.renew, "x")
    stage.at(again, c0.renew, "x")
    stage.at(again + 5 * MILLISECOND, lambda: a.clock.jump(stage.world.now, 2 * SECOND))
    stage.at(again + 6 * MILLISECOND, c1.want, "x")
    stage.at(again + 13 * MILLISECOND, c1.release, "x")
    stage.run(3 * SECOND)
    assert stage.world.tally.acquisitions == 2
    assert not c0.has("x"), "its token is the older one"
    return stage


def crash_before_the_write(cast: Cast) -> Stage:
    """A node dies when what it promised has not reached the disk."""
    stage = Stage(cast)
    a = stage.nodes["a"]

    def crash() -> None:
        a.disk.unsynced.clear()
        a.crash()

    stage.at(10 * MILLISECOND, stage.client("c0").want, "x")
    stage.at(11_500_000, crash)
    stage.at(20 * MILLISECOND, a.begin)
    stage.at(30 * MILLISECOND, stage.client("c1").want, "x")
    stage.run(SECOND)
    assert stage.client("c0").has("x")
    return stage


def acceptor_that_lost_a_child(cast: Cast) -> Stage:
    """One acceptor is cut off until its session ran out, gives the child away, and is there again; then another goes."""
    end, later = 2 * SECOND, 2500 * MILLISECOND
    fates = (
        Fate("c0", "a", object, (), end, 100 * MILLISECOND),
        Fate("c0", "c", object, (), from_ns=later),
    )
    stage = Stage(cast, fates=fates, sessions=True)
    c0 = stage.client("c0")
    assert isinstance(c0, SessionActor)
    stage.at(0, c0.want, "s/c0")
    stage.at(20 * MILLISECOND, lambda: c0.want("x", c0.session))
    stage.at(1500 * MILLISECOND, stage.client("c1").want, "x")
    stage.at(1550 * MILLISECOND, stage.client("c1").die)
    stage.run(5 * SECOND)
    assert c0.has("x")
    return stage


def word_that_comes_too_late(cast: Cast) -> Stage:
    """An acceptor's word that it took the child in arrives when it has long given it away, between two answers."""
    back, mended, renewed = 2 * SECOND, 2228 * MILLISECOND, 2400 * MILLISECOND
    fates = (
        Fate("c0", "a", object, (), back, 100 * MILLISECOND),
        Fate("c1", "a", Withdraw, ()),
        Fate("a", "c0", Ack, (renewed,), 50 * MILLISECOND, 20 * MILLISECOND),
        Fate("c0", "c", object, (), from_ns=mended),
        Fate("b", "c0", Ack, (60 * MILLISECOND,), from_ns=renewed),
    )
    stage = Stage(cast, fates=fates, sessions=True)
    c0 = stage.client("c0")
    assert isinstance(c0, SessionActor)
    stage.at(0, c0.want, "s/c0")
    stage.at(20 * MILLISECOND, lambda: c0.want("x", c0.session))
    stage.at(1500 * MILLISECOND, stage.client("c1").want, "x")
    stage.at(1550 * MILLISECOND, stage.client("c1").die)
    stage.at(renewed, c0.renew_the_session)
    stage.run(2600 * MILLISECOND)
    assert c0.has("s/c0")
    return stage


def handover_that_one_acceptor_still_keeps(cast: Cast) -> Stage:
    """It has missed the heir's whole turn, and has what was left for it when the heir comes again."""
    stage = Stage(cast, fates=(Fate("c1", "a", object, (), 400 * MILLISECOND),))
    c0, c1 = stage.client("c0"), stage.client("c1")
    stage.at(0, c0.want, "x")
    stage.at(100 * MILLISECOND, c0.hand_over, "x", "c1")
    stage.at(200 * MILLISECOND, c1.want, "x")
    stage.at(300 * MILLISECOND, c1.release, "x")
    stage.at(500 * MILLISECOND, c1.want_again, "x")
    stage.run(600 * MILLISECOND)
    assert (stage.world.tally.acquisitions, stage.world.tally.handovers) == (3, 1)
    return stage


def handover_that_only_one_node_heard_of(cast: Cast) -> Stage:
    """Somebody else has a whole turn at the others before the heir comes."""
    fates = (Fate("c0", "b", Drop, ()), Fate("c0", "c", Drop, ()))
    stage = Stage(cast, fates=fates)
    c0, c1, c2 = (stage.client(name) for name in ("c0", "c1", "c2"))

    def hand_over() -> None:
        tenancy = c0.tenancies["x"]
        state = f"{tenancy.proposer.token}/c2"
        op = Release("x", tenancy.owner, successor="c2", state=state, reserve_ns=10 * SECOND)
        c0.let_go(tenancy, Loss.RELEASED)
        c0.do(tenancy, tenancy.proposer.release(op, c0.now))
        c0.die()

    stage.at(0, c0.want, "x")
    stage.at(100 * MILLISECOND, hand_over)
    stage.at(1500 * MILLISECOND, c1.want, "x")
    stage.at(1700 * MILLISECOND, c1.release, "x")
    stage.at(2 * SECOND, c2.want, "x")
    stage.run(3 * SECOND)
    assert c2.has("x")
    assert stage.world.tally.acquisitions == 3
    return stage


def lease_in_the_middle_that_one_node_revokes(cast: Cast) -> Stage:
    """One node ends what a lease rides on, and the lease with it; another one has it for somebody who died."""
    fates = (Fate("c1", "a", object, ()), Fate("c1", "c", object, ()))
    stage = Stage(cast, fates=fates, sessions=True)
    c0, c2 = stage.client("c0"), stage.client("c2")
    assert isinstance(c0, SessionActor)
    stage.at(0, c0.want, "s/c0")
    stage.at(20 * MILLISECOND, lambda: c0.want("x", c0.session))
    stage.at(40 * MILLISECOND, stage.client("c1").want, "y")
    stage.at(45 * MILLISECOND, stage.client("c1").die)
    stage.at(60 * MILLISECOND, lambda: c0.want("y", c0.tenancies["x"]))
    stage.at(100 * MILLISECOND, lambda: c2.transmit((End(Revoke("x")),), [], ["a"]))
    stage.run(3 * SECOND)
    assert c0.has("x")
    assert not c0.has("y")
    return stage


def rider_that_one_node_revokes(cast: Cast) -> Stage:
    """Another node doesn't have it, and so no majority renews it: it ends as promised, and is protected until then."""
    stage = Stage(cast, fates=(Fate("c0", "a", Accept, (), from_ns=10 * MILLISECOND),), sessions=True)
    c0, c2 = stage.client("c0"), stage.client("c2")
    assert isinstance(c0, SessionActor)
    stage.at(0, c0.want, "s/c0")
    stage.at(20 * MILLISECOND, lambda: c0.want("x", c0.session))
    stage.at(100 * MILLISECOND, lambda: c2.transmit((End(Revoke("x")),), [], ["b"]))
    stage.at(150 * MILLISECOND, c0.renew_the_session)
    stage.at(300 * MILLISECOND, c0.renew_the_session)
    stage.run(600 * MILLISECOND)
    assert c0.has("x")
    stage.run(2 * SECOND)
    assert c0.has("s/c0")
    assert not c0.has("x")
    return stage


@pytest.mark.parametrize(
    ("schedule", "mutant", "invariant"),
    [
        (rider_that_one_node_revokes, "says it too soon", "I3"),
        (late_copy_of_a_request, "does not close", "I6"),
        (majority_completed_during_the_silence, "seeds before the silence", "I2"),
        (crash_before_the_write, "answers before it is written", "I5"),
        (acceptor_that_lost_a_child, "counts after the bound", "I7"),
        (word_that_comes_too_late, "counts late words", "I7"),
        (handover_that_one_acceptor_still_keeps, "takes whatever was left", "I9"),
        (handover_that_only_one_node_heard_of, "takes whatever was left", "I9"),
        (lease_in_the_middle_that_one_node_revokes, "keeps what rides under the revoked", "I7"),
        (clock_that_stood_still, "counts fresh installs", "I2"),
        (clocks_that_stood_still, "mends under a new number", "I2"),
        (clock_that_ran_ahead, "mends under its own number", "I2"),
    ],
)
def test_a_schedule_made_by_hand(schedule: Callable[[Cast], Stage], mutant: str, invariant: str) -> None:
    schedule(REAL)
    with pytest.raises(Violation) as caught:
        schedule(CASTS[mutant])
    assert caught.value.invariant == invariant


def test_the_loser_of_a_split_vote_is_not_waited_for() -> None:
    """Each of three gets one vote; nobody sleeps until the others' leases, which never were, run out."""

    def acquired_soon(cast: Cast) -> bool:
        slow = (5 * MILLISECOND,)
        own = {"c0": "a", "c1": "b", "c2": "c"}
        fates = tuple(Fate(c, n, Accept, slow, 10 * MILLISECOND) for c in own for n in "abc" if own[c] != n)
        stage = Stage(cast, ttl_ns=4 * SECOND, fates=fates)
        for name in own:
            stage.at(0, stage.client(name).want, "x")
        stage.run(2 * SECOND)
        return stage.world.tally.acquisitions > 0

    assert acquired_soon(REAL)
    assert not acquired_soon(CASTS["believes a minority"])


def with_a_floor_that_is_a_month_ahead(cast: Cast, fates: tuple[Fate, ...] = ()) -> Stage:
    """The wall clock of one node was a month ahead when it crashed, and is right again."""
    stage = Stage(cast, ttl_ns=SECOND, fates=fates)
    c = stage.nodes["c"]
    c.disk.synced(c.disk.durable._replace(high_water=c.wall_us + 30 * DAY_US))  # type: ignore[union-attr]
    stage.at(0, c.crash)
    stage.at(0, c.begin)
    return stage


def test_a_floor_that_is_a_month_ahead_costs_nobody_anything() -> None:
    """Whoever hears of it first: the others would refuse a number above it."""

    def acquired(cast: Cast, slow: str) -> bool:
        fates = (Fate("c0", slow, Accept, (5 * MILLISECOND,)),)
        stage = with_a_floor_that_is_a_month_ahead(cast, fates)
        c0, c1 = stage.client("c0"), stage.client("c1")
        stage.at(10 * MILLISECOND, c0.want, "x")
        stage.at(3 * SECOND, c0.die)  # it was renewed by then, some times
        stage.at(5 * SECOND, c1.want, "x")
        stage.run(5500 * MILLISECOND)
        return c1.has("x") and stage.world.tally.acquisitions == 2 and stage.world.tally.renewals > 2

    for slow in "abc":
        assert acquired(REAL, slow)
    assert not acquired(CASTS["follows every floor"], "b")


def test_a_lease_outlives_a_node_that_comes_back_with_a_floor_a_month_ahead() -> None:
    """Its holder is asked for a number that the others would refuse, when it hands the lease to that node."""

    def kept(cast: Cast) -> bool:
        stage = Stage(cast)
        c0, c = stage.client("c0"), stage.nodes["c"]
        stage.at(0, c0.want, "x")
        stage.at(100 * MILLISECOND, lambda: c.disk.synced(c.disk.durable._replace(high_water=c.wall_us + 30 * DAY_US)))  # type: ignore[union-attr]
        stage.at(100 * MILLISECOND, c.crash)
        stage.at(200 * MILLISECOND, c.begin)
        stage.run(6 * SECOND)
        return c0.has("x")

    assert kept(REAL)
    assert not kept(CASTS["follows every floor"])


def test_a_lease_outlives_one_node_after_another_though_somebody_waits() -> None:
    """Whoever waits asks more often than the holder renews, and so leads the node on that was away."""

    def kept(cast: Cast) -> bool:
        stage = Stage(cast)
        c0, c1, a, c = stage.client("c0"), stage.client("c1"), stage.nodes["a"], stage.nodes["c"]
        stage.at(0, c0.want, "x")
        stage.at(100 * MILLISECOND, c.crash)
        stage.at(200 * MILLISECOND, c.begin)
        for turn in range(100):
            stage.at((300 + 51 * turn) * MILLISECOND, c1.want_again, "x")
        stage.at(4 * SECOND, a.crash)
        stage.run(6 * SECOND)
        return c0.has("x")

    assert kept(REAL)
    assert not kept(CASTS["waits for the next renewal"])


def test_what_was_given_back_does_not_live_on_with_its_session_where_that_was_not_heard() -> None:
    """One node doesn't hear of it, and is needed for a majority when another one fails."""

    def free(cast: Cast) -> bool:
        stage = Stage(cast, fates=(Fate("c0", "c", Drop, (), until_ns=SECOND),), sessions=True)
        c0, c1 = stage.client("c0"), stage.client("c1")
        assert isinstance(c0, SessionActor)
        stage.at(0, c0.want, "s/c0")
        stage.at(20 * MILLISECOND, lambda: c0.want("x", c0.session))
        stage.at(100 * MILLISECOND, c0.release, "x")
        stage.at(3 * SECOND, stage.nodes["a"].crash)
        stage.at(3100 * MILLISECOND, c1.want, "x")
        stage.run(4 * SECOND)
        assert c0.has("s/c0")
        return c1.has("x")

    assert free(REAL)
    assert not free(CASTS["says it once"])


def test_nobody_leads_the_numbers_on_by_a_day_again_and_again() -> None:
    """A client that asks for nearly a day more with each request: the numbers stay within a day of the clocks."""

    def led_on_us(cast: Cast) -> int:
        stage = Stage(cast)
        c0 = stage.client("c0")
        n = c0.wall_us

        def ask_for_more() -> None:
            nonlocal n
            n += DAY_US * 9 // 10
            c0.transmit((Withdraw("x", "nobody", n),), [], list(stage.nodes))

        for step in range(20):
            stage.at(step * 10 * MILLISECOND, ask_for_more)
        stage.at(500 * MILLISECOND, stage.client("c1").want, "x")
        stage.run(SECOND)
        assert stage.client("c1").has("x"), "it is left unusable"
        return stage.client("c1").tenancies["x"].proposer.token - stage.client("c1").wall_us

    assert led_on_us(REAL) <= DAY_US
    assert led_on_us(CASTS["is led on"]) > 10 * DAY_US
