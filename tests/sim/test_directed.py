"""Schedules made by hand for mutants that chance finds too seldom. The real protocol gets through each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.core.clock import MILLISECOND, SECOND
from leasehold.core.paxos.messages import Accept, Ack, Gone, Withdraw
from leasehold.sim.checks import Violation
from leasehold.sim.world import Cast
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


@pytest.mark.parametrize(
    ("schedule", "mutant", "invariant"),
    [
        (late_copy_of_a_request, "does not close", "I6"),
        (majority_completed_during_the_silence, "seeds before the silence", "I2"),
        (crash_before_the_write, "answers before it is written", "I5"),
        (acceptor_that_lost_a_child, "counts after the bound", "I7"),
        (word_that_comes_too_late, "counts late words", "I7"),
        (handover_that_one_acceptor_still_keeps, "takes whatever was left", "I9"),
        (clock_that_stood_still, "counts fresh installs", "I2"),
        (clocks_that_stood_still, "mends under a new number", "I2"),
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
