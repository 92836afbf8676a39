"""When to renew: the heap, and the arithmetic of the strategies."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.schedule import Latency, Schedule, attempt_timeout, interval, last_useful, renew_at, retry_at
from lessor.core.timing import MAX_TTL_NS, MIN_TTL_NS, Renewal, Timing

keys = st.integers(0, 9)
dues = st.integers(0, 50)
ttls = st.integers(MIN_TTL_NS, MAX_TTL_NS)
renewals = st.sampled_from(list(Renewal))
jitters = st.floats(0, 1)


class ScheduleMachine(RuleBasedStateMachine):
    """The heap against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule: Schedule[int] = Schedule()
        self.model: dict[int, int] = {}

    @rule(key=keys, due=dues)
    def set(self, key: int, due: int) -> None:
        self.schedule.set(key, due)
        self.model[key] = due

    @rule(key=keys, times=st.integers(50, 200))
    def move_often(self, key: int, times: int) -> None:
        for due in range(times):
            self.schedule.set(key, due)
        self.model[key] = times - 1

    @rule(key=keys)
    def remove(self, key: int) -> None:
        self.schedule.remove(key)
        self.model.pop(key, None)

    @rule(now=dues)
    def pop(self, now: int) -> None:
        popped = self.schedule.pop_due(now)
        assert [self.model[key] for key in popped] == sorted(due for due in self.model.values() if due <= now)
        assert len(set(popped)) == len(popped)
        for key in popped:
            del self.model[key]

    @invariant()
    def agrees(self) -> None:
        assert len(self.schedule) == len(self.model)
        assert self.schedule.next_due() == min(self.model.values(), default=None)
        assert all((key in self.schedule) == (key in self.model) for key in range(10))
        assert len(self.schedule._heap) <= max(64, 4 * len(self.model)) + 10


TestSchedule = ScheduleMachine.TestCase


def test_equal_times_come_in_the_order_they_were_set_and_keys_are_never_compared() -> None:
    schedule: Schedule[object] = Schedule()
    things = [object() for _ in range(5)]
    for thing in things:
        schedule.set(thing, 7)
    assert schedule.pop_due(7) == things
    assert schedule.pop_due(7) == []


# --- strategies ---------------------------------------------------------------------------------------------------


def measured(ns: int, samples: int = 20) -> Latency:
    latency = Latency()
    for _ in range(samples):
        latency.add(ns)
    return latency


@given(ttls, renewals, jitters, st.integers(0, 10**12))
def test_a_renewal_is_due_within_its_interval_and_at_most_a_jitter_early(
    ttl: int, renewal: Renewal, jitter: float, sent: int
) -> None:
    timing = Timing.from_ttl(ttl, renewal=renewal)
    due = renew_at(timing, sent, timing.safe_ns, Latency(), jitter)
    assert sent + timing.renew_every_ns * (1 - timing.jitter) - 1 <= due <= sent + timing.renew_every_ns


@given(jitters, st.floats(0, 0.9))
def test_the_jitter_can_be_set(chance: float, jitter: float) -> None:
    timing = Timing.from_ttl(30 * SECOND, jitter=jitter)
    due = renew_at(timing, 0, timing.safe_ns, None, chance)
    assert due == pytest.approx(timing.renew_every_ns * (1 - jitter * chance), abs=2)


def test_clients_that_begin_together_spread_over_almost_a_third_of_the_interval() -> None:
    timing = Timing.of(3)
    dues = [renew_at(timing, 0, timing.safe_ns, None, client / 7) for client in range(8)]
    assert max(dues) - min(dues) > 0.25 * SECOND


@given(ttls, renewals, st.integers(0, 10**12))
def test_what_was_granted_for_less_than_a_ttl_is_renewed_sooner_in_proportion(
    ttl: int, renewal: Renewal, sent: int
) -> None:
    timing = Timing.from_ttl(ttl, renewal=renewal)
    due = renew_at(timing, sent, timing.safe_ns // 10, None, 0.0)
    assert due - sent == pytest.approx(timing.renew_every_ns / 10, abs=2)


@pytest.mark.parametrize(("renewal", "part"), [("third", 1 / 3), ("eager", 1 / 2), ("lazy", 9 / 10), ("dhcp", 1 / 2)])
def test_the_fixed_strategies_don_t_mind_the_latency(renewal: str, part: float) -> None:
    timing = Timing.from_ttl(30 * SECOND, renewal=renewal)
    assert interval(timing, measured(SECOND)) == pytest.approx(timing.safe_ns * part, abs=2)


def test_adaptive_starts_as_third_does_until_there_are_measurements() -> None:
    timing = Timing.from_ttl(30 * SECOND, renewal="adaptive")
    assert interval(timing, measured(MILLISECOND, 7)) == timing.renew_every_ns
    assert interval(timing, measured(MILLISECOND, 8)) > timing.renew_every_ns


@given(ttls, st.lists(st.integers(1, 10**10), min_size=8, max_size=50))
def test_adaptive_leaves_room_for_three_slow_attempts_within_its_bounds(ttl: int, latencies: list[int]) -> None:
    timing = Timing.from_ttl(ttl, renewal="adaptive")
    latency = Latency()
    for ns in latencies:
        latency.add(ns)
    chosen = interval(timing, latency)
    assert timing.safe_ns / 6 - 1 <= chosen <= timing.safe_ns * 0.9
    if chosen > timing.safe_ns / 6:
        assert chosen + 3 * latency.high_ns < timing.safe_ns


def test_adaptive_renews_late_on_a_fast_store_and_early_on_a_slow_one() -> None:
    timing = Timing.from_ttl(30 * SECOND, renewal="adaptive")
    assert interval(timing, measured(50_000)) == pytest.approx(timing.safe_ns * 0.9, rel=0.01)
    assert interval(timing, measured(5 * SECOND)) == pytest.approx(timing.safe_ns / 6, rel=0.01)


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=60))
def test_the_measured_latency_stays_within_what_was_measured(latencies: list[int]) -> None:
    latency = Latency()
    for ns in latencies:
        latency.add(ns)
    assert min(latencies) - 1 <= latency.mean_ns <= max(latencies) + 1
    assert latency.high_ns >= latency.mean_ns
    assert latency.samples == len(latencies)


def attempts(timing: Timing, chance: float, *, silent: bool) -> list[int]:
    """Return when a lease is renewed, in virtual time, on a store that never answers, or that refuses at once."""
    deadline = timing.safe_ns
    due: int | None = renew_at(timing, 0, timing.safe_ns, None, chance)
    started: list[int] = []
    while due is not None:
        started.append(due)
        assert len(started) < 2500
        timeout = attempt_timeout(timing.round_trip_ns, deadline, due)
        assert due + 2 * timeout < deadline  # an answer that takes as long as it may still comes in time
        due = retry_at(timing, deadline, due + timeout if silent else due, len(started), chance)
    return started


@given(ttl=ttls, renewal=renewals, chance=jitters, silent=st.booleans())
def test_a_store_without_an_answer_is_asked_a_few_times_and_not_in_the_last_moment(
    ttl: int, renewal: Renewal, chance: float, *, silent: bool
) -> None:
    timing = Timing.from_ttl(ttl, renewal=renewal)
    started = attempts(timing, chance, silent=silent)
    assert len(started) >= 3  # what the availability inequality promises
    if ttl <= 60 * SECOND:
        assert len(started) <= (6 if silent else 16)
    shortest = min((1 - timing.jitter) * last_useful(timing, n) for n in range(1, len(started) + 1)) - 1
    assert all(later - earlier >= shortest for earlier, later in itertools.pairwise(started))
    assert timing.safe_ns - started[-1] >= shortest


@given(st.integers(SECOND, 60 * SECOND), st.floats(0.01, 0.9), st.floats(0.001, 0.999), st.floats(0, 0.9), jitters)
def test_three_attempts_fit_whatever_the_round_trip(
    ttl: int, part: float, tight: float, jitter: float, chance: float
) -> None:
    """Also where the numbers are such that they only just work together."""
    safe = Timing.from_ttl(ttl).safe_ns
    every = int(safe * part)
    round_trip = max(int((safe - every) / 3 * tight), MILLISECOND)
    assume(every + 3 * round_trip < safe)
    timing = Timing.from_ttl(ttl, renew_every_ns=every, round_trip_ns=round_trip, jitter=jitter)
    assert 3 <= len(attempts(timing, chance, silent=True)) <= 100


def test_a_silent_store_is_asked_four_times_by_a_lease_of_three_seconds() -> None:
    started = attempts(Timing.of(3), 0.0, silent=True)
    assert [round(at / SECOND, 2) for at in started] == [0.97, 1.94, 2.48, 2.74]


def test_a_store_that_comes_back_is_found_within_a_minute_however_long_the_lease() -> None:
    started = attempts(Timing.from_ttl(MAX_TTL_NS), 0.0, silent=False)
    assert max(later - earlier for earlier, later in itertools.pairwise(started)) <= 60 * SECOND


def test_dhcp_tries_again_at_half_of_what_is_left_until_t2_and_then_until_the_end() -> None:
    timing = Timing.from_ttl(80 * SECOND, renewal="dhcp")
    deadline = timing.safe_ns
    t1, t2 = deadline // 2, deadline - deadline // 8
    assert renew_at(timing, 0, timing.safe_ns, Latency(), 0) == t1
    again = retry_at(timing, deadline, t1, 1, 0)
    assert again == pytest.approx((t1 + t2) / 2, abs=2)
    late = retry_at(timing, deadline, t2, 5, 0)
    assert late == pytest.approx((t2 + deadline) / 2, abs=2)


def test_the_others_back_off_from_the_round_trip_but_never_beyond_a_third_of_what_is_left() -> None:
    timing = Timing.from_ttl(30 * SECOND)
    deadline = timing.safe_ns
    waits = [retry_at(timing, deadline, 0, n, 0) or 0 for n in range(1, 8)]
    assert waits[0] == timing.round_trip_ns
    assert waits == sorted(waits)
    assert max(waits) == deadline // 3


@given(ttls, renewals, st.integers(-(10**9), 10**15))
def test_an_attempt_takes_at_most_the_round_trip_and_a_third_of_what_is_left(
    ttl: int, renewal: Renewal, left: int
) -> None:
    timing = Timing.from_ttl(ttl, renewal=renewal)
    timeout = attempt_timeout(timing.round_trip_ns, left, 0)
    assert 1 <= timeout <= max(1, min(timing.round_trip_ns, left // 3))
