"""What an answer to an acquire means for whoever asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessor.core.claim import (
    FIRST_RETRY_NS,
    LONGEST_RETRY_NS,
    REFRESH_NS,
    STAGGER_NS,
    Claim,
    GiveUp,
    Sleep,
    StartOver,
    Take,
)
from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.ops import RESERVATION_NS, WAITER_LIFE_NS, Acquire, Granted, Held, Loss, Lost, Renewed, Unknown
from lessor.core.timing import Timing
from lessor.errors import ConfigError, LeaseHeld, LeaseLost, QueueFull, StoreUnavailable

TTL = 10 * SECOND
TIMING = Timing.from_ttl(TTL)
GONE = Unknown(StoreUnavailable("sqlite", "it is gone"))


def claim(*, queue: bool = True, until: int | None = None, patience: int = 5 * SECOND) -> Claim:
    op = Acquire("r", "A", "h-A", TTL, queue=queue)
    return Claim(op, TIMING, made_ns=0, wait_until_ns=until, patience_ns=patience)


def test_the_deadline_counts_from_before_the_request_was_sent() -> None:
    assert claim().after(Granted(7, TTL), sent_ns=100, now=SECOND) == Take(7, 100 + TIMING.safe_ns)


def test_a_grant_given_back_late_is_worth_what_is_left_of_it() -> None:
    taken = claim().after(Granted(7, SECOND), sent_ns=100, now=200)
    assert taken == Take(7, 100 + TIMING.safe_time(SECOND))


@given(st.integers(0, 2 * TTL), st.integers(0, 2 * TTL))
def test_nobody_takes_what_is_over(ttl: int, took: int) -> None:
    patience = 5 * SECOND
    attempt = claim(patience=patience)
    decision = attempt.after(Granted(7, ttl), sent_ns=0, now=took)
    if took >= TIMING.safe_time(ttl) and took >= patience:
        assert isinstance(decision, GiveUp)
        assert isinstance(decision.error, StoreUnavailable)
        assert attempt.queued, "the store believes that it granted something: it has to be given back"
    elif took >= TIMING.safe_time(ttl):
        assert decision == StartOver()
    else:
        assert isinstance(decision, Take)
        assert decision.deadline_ns > took


def test_a_store_that_is_always_too_late_is_not_asked_for_ever() -> None:
    attempt = claim(until=3 * SECOND)
    assert attempt.after(Granted(7, TTL), sent_ns=0, now=2 * TTL) != StartOver()


@pytest.mark.parametrize("reason", [Loss.EXPIRED, Loss.RELEASED])
def test_a_spent_id_starts_over(reason: Loss) -> None:
    assert claim().after(Lost(reason), 0, 0) == StartOver()


def under(parent: tuple[str, int]) -> Claim:
    op = Acquire("r", "A", "h-A", TTL, queue=True, parent=parent)
    return Claim(op, TIMING, made_ns=0, wait_until_ns=None, patience_ns=5 * SECOND)


def test_nobody_asks_again_under_a_parent_that_is_over() -> None:
    decision = under(("p", 3)).after(Lost(Loss.EXPIRED), 0, 0)
    assert isinstance(decision, GiveUp)
    assert isinstance(decision.error, LeaseLost)
    assert (decision.error.resource, decision.error.token) == ("p", 3)
    assert under(("p", 3)).after(Lost(Loss.RELEASED), 0, 0) == StartOver()


def test_nobody_asks_again_under_a_parent_that_is_about_to_be() -> None:
    attempt = under(("p", 3))
    decision = attempt.after(Granted(7, TIMING.margin_ns), 0, 0)
    assert isinstance(decision, GiveUp)
    assert isinstance(decision.error, LeaseLost)
    assert attempt.queued, "the store believes that it granted something: it has to be given back"


def test_what_was_handed_over_is_taken_along() -> None:
    taken = claim().after(Granted(7, TTL, "state"), sent_ns=100, now=SECOND)
    assert taken == Take(7, 100 + TIMING.safe_ns, "state")


def test_whoever_finds_the_queue_full_does_not_wait() -> None:
    attempt = claim()
    decision = attempt.after(Held("h-B", 7, 3 * SECOND, 2, refused=True), 0, 0)
    assert isinstance(decision, GiveUp)
    assert isinstance(decision.error, QueueFull)
    assert decision.error.position == 2
    assert not attempt.queued


def test_behind_a_reservation_one_comes_when_it_is_over() -> None:
    assert claim().after(Held("", 7, SECOND, 1), 0, 50) == Sleep(50 + SECOND)
    assert claim().after(Held("", 7, SECOND, 3), 0, 50) == Sleep(50 + SECOND + 2 * RESERVATION_NS)


def test_whoever_does_not_wait_is_told_who_has_it() -> None:
    decision = claim(queue=False).after(Held("h-B", 7, 3 * SECOND, 2), 0, 0)
    assert isinstance(decision, GiveUp)
    error = decision.error
    assert isinstance(error, LeaseHeld)
    assert (error.holder, error.token, error.remaining, error.position) == ("h-B", 7, 3.0, 2)


def test_waiters_come_when_the_lease_ends_a_little_apart() -> None:
    held = Held("h-B", 7, 500 * MILLISECOND, 3)
    assert claim().after(held, 0, 50) == Sleep(50 + 500 * MILLISECOND + 3 * STAGGER_NS)


def test_behind_a_reservation_a_waiter_comes_after_the_turns_before_its_own() -> None:
    assert claim().after(Held("", 7, 0, 3), 0, 50) == Sleep(50 + 3 * RESERVATION_NS)


def test_a_waiter_shows_up_often_enough_to_stay_in_the_queue() -> None:
    decision = claim().after(Held("h-B", 7, 3600 * SECOND, 0), 0, 0)
    assert decision == Sleep(REFRESH_NS)
    assert 2 * REFRESH_NS < WAITER_LIFE_NS


@given(st.integers(-SECOND, 100 * SECOND), st.integers(0, 50), st.integers(1, 100 * SECOND))
def test_nobody_sleeps_past_the_end_of_its_wait(remaining: int, position: int, until: int) -> None:
    decision = claim(until=until).after(Held("h-B", 7, remaining, position), 0, 0)
    assert isinstance(decision, Sleep)
    assert 0 <= decision.until_ns <= until


@pytest.mark.parametrize("late", [0, 1])
def test_when_the_wait_is_over_it_is_over(late: int) -> None:
    decision = claim(until=1000).after(Held("h-B", 7, SECOND, 0), 0, 1000 + late)
    assert isinstance(decision, GiveUp)
    assert isinstance(decision.error, LeaseHeld)


def test_silence_is_asked_again_with_growing_pauses_until_patience_ends() -> None:
    asked, now, pauses = claim(patience=3 * SECOND), 0, []
    while isinstance(decision := asked.after(GONE, now, now), Sleep):
        pauses.append(decision.until_ns - now)
        now = decision.until_ns
    assert isinstance(decision, GiveUp)
    assert decision.error is GONE.error
    assert pauses[0] == FIRST_RETRY_NS
    assert pauses == sorted(pauses)
    assert max(pauses) == LONGEST_RETRY_NS
    assert 3 * SECOND <= now <= 4 * SECOND


def test_an_answer_in_between_renews_the_patience() -> None:
    asked = claim(patience=SECOND)
    assert isinstance(asked.after(GONE, 0, 900 * MILLISECOND), Sleep)
    asked.after(Held("h-B", 7, SECOND, 0), 0, SECOND)
    assert asked.after(GONE, SECOND, 2 * SECOND - 1) == Sleep(2 * SECOND - 1 + FIRST_RETRY_NS)


def test_patience_counts_from_when_the_first_unanswered_request_was_sent() -> None:
    assert isinstance(claim(patience=SECOND).after(GONE, 0, SECOND), GiveUp)


def test_a_setting_that_can_t_work_is_not_asked_again() -> None:
    error = ConfigError("two kernels")
    assert claim().after(Unknown(error), 0, 0) == GiveUp(error)


def test_an_answer_to_something_else_is_a_defect() -> None:
    outcome: Any = Renewed(5)
    with pytest.raises(AssertionError, match="no answer to an acquire"):
        claim().after(outcome, 0, 0)


def test_a_request_is_in_doubt_until_an_answer_is_there() -> None:
    asked = claim()
    assert asked.sending() is asked.op
    asked.after(GONE, 0, 0)
    assert asked.in_doubt
    asked.after(Held("h-B", 7, SECOND, 0), 0, 0)
    assert (asked.in_doubt, asked.queued) == (False, True)
    asked.sending()
    assert asked.in_doubt
    asked.restart("B")
    assert (asked.op.lease_id, asked.in_doubt, asked.queued) == ("B", False, False)


def test_whoever_does_not_wait_has_no_place_in_the_queue() -> None:
    asked = claim(queue=False)
    asked.after(Held("h-B", 7, SECOND, 0), 0, 0)
    assert not asked.queued
