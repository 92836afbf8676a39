"""The holder's state machine: what may be believed, and what is told about it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessor.core.holder import (
    Confirmed,
    Ending,
    Holder,
    HolderEvent,
    Over,
    Signal,
    State,
    Tick,
    Unconfirmed,
    granted,
    step,
)
from lessor.core.ops import Loss

EVENTS: list[HolderEvent] = [
    Confirmed(10),
    Confirmed(30),
    Unconfirmed(),
    Ending(Loss.STALLED),
    Ending(Loss.REVOKED, 12),
    Over(Loss.TAKEN),
    Tick(),
]


def check(before: Holder, event: HolderEvent, now: int) -> Holder:
    """Take one step and check all that must hold of any."""
    after, signal = step(before, event, now)
    if before.state is State.LOST:
        assert (after, signal) == (before, None), "LOST is final"
        return after
    # Never believed at or after the deadline, nor brought back after the grace.
    if now >= before.deadline_ns:
        assert after.state is State.LOST or after.stopped or (isinstance(event, Confirmed) and before.grace_ns)
    if now >= before.over_ns:
        assert after.state is State.LOST
    if after.stopped:
        assert after.state is State.JEOPARDY
        assert after.ending is None
        assert after.deadline_ns <= now < after.over_ns
    assert (after.state is State.LOST) == (after.loss is not None)
    # The deadline doesn't move back while held, and never forward without a confirmation.
    if after.state is State.HELD:
        assert after.deadline_ns >= before.deadline_ns
    if not isinstance(event, Confirmed):
        assert after.deadline_ns <= before.deadline_ns
    # Signals exactly on changes.
    known = (before.state, before.ending, before.stopped)
    changed = (after.state, after.ending, after.stopped) != known and after.state is not State.LOST
    expected = {State.HELD: Signal.SAFE, State.JEOPARDY: Signal.JEOPARDY}.get(after.state) if changed else None
    assert signal == (Signal.LOST if after.state is State.LOST else expected)
    return after


@pytest.mark.parametrize("grace", [0, 6])
@pytest.mark.parametrize("length", range(1, 5))
def test_every_short_story(length: int, grace: int) -> None:
    """All sequences of events, at times before, at and after the deadline, and the end of the grace."""
    moments = [(event, wait) for event in EVENTS for wait in (0, 7)]
    for story in itertools.product(moments, repeat=length):
        holder, now = granted(20, grace), 0
        for event, wait in story:
            now += wait
            holder = check(holder, event, now)


times = st.integers(0, 100)
losses = st.sampled_from(list(Loss))
events = st.one_of(
    st.builds(Confirmed, times), st.just(Unconfirmed()), st.builds(Ending, losses, st.none() | times),
    st.builds(Over, losses), st.just(Tick()),
)  # fmt: skip


@given(st.integers(1, 60), st.integers(0, 30), st.lists(st.tuples(events, st.integers(0, 15)), max_size=40))
def test_any_story(deadline: int, grace: int, story: list[tuple[HolderEvent, int]]) -> None:
    holder, now = granted(deadline, grace), 0
    for event, wait in story:
        now += wait
        holder = check(holder, event, now)
    final, _ = step(holder, Tick(), 10**6)
    assert final.state is State.LOST


def test_a_failed_renewal_and_the_next_one() -> None:
    holder, signal = step(granted(20), Unconfirmed(), 5)
    assert (holder.state, signal) == (State.JEOPARDY, Signal.JEOPARDY)
    holder, signal = step(holder, Unconfirmed(), 6)
    assert (holder.state, signal) == (State.JEOPARDY, None)
    holder, signal = step(holder, Confirmed(40), 7)
    assert (holder, signal) == (granted(40), Signal.SAFE)


def test_a_yes_that_comes_at_the_deadline_is_too_late() -> None:
    holder, signal = step(granted(20), Confirmed(40), 20)
    assert (holder.state, holder.loss, signal) == (State.LOST, Loss.EXPIRED, Signal.LOST)


def test_a_yes_overtaken_by_a_later_one_shortens_nothing() -> None:
    holder, _ = step(granted(40), Confirmed(30), 5)
    assert holder.deadline_ns == 40


def test_the_reason_of_an_ending_is_the_reason_of_the_loss() -> None:
    holder, signal = step(granted(20), Ending(Loss.REVOKED, 15), 5)
    assert (holder.state, holder.deadline_ns, signal) == (State.JEOPARDY, 15, Signal.JEOPARDY)
    holder, signal = step(holder, Tick(), 14)
    assert signal is None
    holder, signal = step(holder, Tick(), 15)
    assert (holder.loss, signal) == (Loss.REVOKED, Signal.LOST)


def test_a_promise_repeated_lengthens_nothing() -> None:
    holder, _ = step(granted(20), Ending(Loss.REVOKED, 99), 5)
    assert holder.deadline_ns == 20


def test_a_definite_no_ends_it_at_once_with_its_own_reason() -> None:
    jeopardy, _ = step(granted(20), Ending(Loss.STALLED), 5)
    holder, signal = step(jeopardy, Over(Loss.RELEASED), 6)
    assert (holder.state, holder.loss, signal) == (State.LOST, Loss.RELEASED, Signal.LOST)


def test_with_a_grace_the_deadline_stops_and_a_renewal_brings_it_back() -> None:
    holder, signal = step(granted(20, 10), Unconfirmed(), 15)
    assert (holder.state, holder.stopped, signal) == (State.JEOPARDY, False, Signal.JEOPARDY)
    holder, signal = step(holder, Tick(), 20)
    assert (holder.state, holder.stopped, holder.loss, signal) == (State.JEOPARDY, True, None, Signal.JEOPARDY)
    holder, signal = step(holder, Unconfirmed(), 25)
    assert (holder.stopped, signal) == (True, None)
    assert step(holder, Confirmed(29), 29)[0].stopped, "a yes that was on its way for too long"
    holder, signal = step(holder, Confirmed(50), 29)
    assert (holder, signal) == (granted(50, 10), Signal.SAFE)


def test_the_end_of_the_grace_is_the_end() -> None:
    stopped, _ = step(granted(20, 10), Tick(), 20)
    holder, signal = step(stopped, Confirmed(50), 30)
    assert (holder.state, holder.loss, signal) == (State.LOST, Loss.EXPIRED, Signal.LOST)


@pytest.mark.parametrize("event", [Over(Loss.TAKEN), Ending(Loss.REVOKED, 25)])
def test_a_definite_no_within_the_grace_ends_it(event: Over | Ending) -> None:
    stopped, _ = step(granted(20, 10), Tick(), 20)
    holder, signal = step(stopped, event, 22)
    assert (holder.state, holder.loss, signal) == (State.LOST, event.reason, Signal.LOST)


def test_what_will_not_be_renewed_has_no_grace() -> None:
    ending, _ = step(granted(20, 10), Ending(Loss.STALLED), 5)
    holder, signal = step(ending, Tick(), 20)
    assert (holder.state, holder.loss, signal) == (State.LOST, Loss.STALLED, Signal.LOST)
