"""The five numbers and their two inequalities."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessor.core.clock import HOUR, MILLISECOND, SECOND
from lessor.core.timing import ATTEMPTS, MAX_TTL_NS, MIN_TTL_NS, Renewal, Timing, to_ns
from lessor.errors import ConfigError

ttls = st.integers(MIN_TTL_NS, MAX_TTL_NS)
strategies = st.sampled_from(list(Renewal))
drifts = st.sampled_from([0.0, 0.005, 0.1])


@given(ttls, strategies, drifts)
def test_a_ttl_alone_gives_numbers_that_hold(ttl: int, renewal: Renewal, drift: float) -> None:
    timing = Timing.from_ttl(ttl, drift=drift, renewal=renewal)
    assert timing.safe_ns > 0
    assert timing.renew_every_ns + ATTEMPTS * timing.round_trip_ns < timing.safe_ns


@pytest.mark.parametrize("drift", [0.005, 0.1])
@pytest.mark.parametrize("renewal", list(Renewal))
@pytest.mark.parametrize("ttl", [50 * MILLISECOND, 51 * MILLISECOND, 100 * MILLISECOND, SECOND, 10 * SECOND, 24 * HOUR])
def test_the_ends_of_the_range_construct(ttl: int, renewal: Renewal, drift: float) -> None:
    assert Timing.from_ttl(ttl, drift=drift, renewal=str(renewal)).ttl_ns == ttl


@given(ttls, st.floats(0, 0.1), st.floats(-1, 1), st.floats(-1, 1), st.integers(0, 10**12))
def test_the_holder_stops_before_the_store_frees_it(
    ttl: int, drift: float, holder: float, store: float, delay: int
) -> None:
    """Safety: whatever the rates of the clocks within the bound, and however long the request was on its way."""
    timing = Timing.from_ttl(ttl, drift=drift)
    holder_rate, store_rate = 1 + Fraction(drift) * Fraction(holder), 1 + Fraction(drift) * Fraction(store)
    holder_stops = timing.safe_ns / holder_rate  # true time since it was sent
    store_frees = delay + ttl / store_rate
    assert holder_stops < store_frees


@given(ttls, st.integers(1, MAX_TTL_NS), drifts, st.integers(1, 10**10), st.integers(-10, 10**10))
def test_what_is_accepted_holds_and_what_is_refused_does_not(
    ttl: int, renew_every: int, drift: float, round_trip: int, margin: int
) -> None:
    safe = int(ttl * (1 - drift) / (1 + drift)) - margin
    good = margin >= 0 and safe > 0 and round_trip >= MILLISECOND and renew_every + 3 * round_trip < safe
    try:
        timing = Timing(ttl, renew_every, drift, round_trip, margin)
    except ConfigError:
        assert not good
    else:
        assert good
        assert timing.safe_ns == safe


@given(ttls, st.integers(1, MAX_TTL_NS), drifts)
def test_the_safe_time_grows_with_the_grant(ttl: int, granted: int, drift: float) -> None:
    timing = Timing.from_ttl(ttl, drift=drift)
    assert timing.safe_time(ttl) == timing.safe_ns
    assert timing.safe_time(granted) <= granted - timing.margin_ns
    assert (timing.safe_time(granted) > timing.safe_ns) <= (granted > ttl)


def test_the_refusals_have_the_inequality_and_its_numbers() -> None:
    with pytest.raises(ConfigError) as availability:
        Timing(10 * SECOND, 9 * SECOND, 0.005, SECOND, SECOND // 5)
    for part in (
        "renew_every + round_trip + 2 * round_trip < safe time",
        "9 s + 3 * 1 s = 12 s",
        "9.7",
        "10 s",
        "drift 0.5 %",
    ):
        assert part in str(availability.value)
    with pytest.raises(ConfigError) as safety:
        Timing(SECOND, 1, 0.1, MILLISECOND, 2 * SECOND)
    for part in ("ttl * (1 - drift) / (1 + drift) - margin > 0", "1 s", "0.1", "2 s", "-1.18"):
        assert part in str(safety.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"ttl_ns": MIN_TTL_NS - 1}, "0.05 s to 86400 s"),
        ({"ttl_ns": MAX_TTL_NS + 1}, "0.05 s to 86400 s"),
        ({"ttl_ns": -1}, "0.05 s to 86400 s"),
        ({"drift": -0.01}, "-0.01"),
        ({"drift": 0.5}, "below 0.5"),
        ({"drift": -1.0}, "-1.0"),
        ({"drift": float("nan")}, "nan"),
        ({"drift": float("inf")}, "inf"),
        ({"margin_ns": -1}, "negative"),
        ({"margin_ns": 20 * SECOND}, "unsafe"),
        ({"renew_every_ns": 0}, "positive"),
        ({"renew_every_ns": -5}, "positive"),
        ({"renew_every_ns": 10 * SECOND}, "may lose the lease"),
        ({"round_trip_ns": 0}, "at least 0.001 s"),
        ({"round_trip_ns": 5 * SECOND}, "may lose the lease"),
        ({"renewal": "sometimes"}, "third, eager, lazy, dhcp, adaptive"),
    ],
)
def test_impossible_settings_are_refused_at_construction(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Timing.from_ttl(**{"ttl_ns": 10 * SECOND, **change})


@pytest.mark.parametrize(("renewal", "part"), [("third", 3), ("eager", 2), ("dhcp", 2), ("adaptive", 3)])
def test_the_interval_is_the_strategys_part_of_the_safe_time(renewal: str, part: int) -> None:
    timing = Timing.from_ttl(30 * SECOND, renewal=renewal)
    assert abs(timing.renew_every_ns - timing.safe_ns / part) < 2


def test_it_can_be_copied_and_pickled() -> None:
    timing = Timing.from_ttl(10 * SECOND, renewal="lazy", drift=0.1)
    assert pickle.loads(pickle.dumps(timing)) == copy.copy(timing) == timing


@pytest.mark.parametrize(
    ("duration", "ns"),
    [(1, SECOND), (0.05, 50 * MILLISECOND), (timedelta(minutes=1), 60 * SECOND), (0, 0), (-1, -SECOND)],
)
def test_durations(duration: Any, ns: int) -> None:
    assert to_ns(duration, "it") == ns


@pytest.mark.parametrize("duration", ["1", None, True, float("nan"), float("inf"), 10**13, -1e300, [1]])
def test_what_is_no_duration_is_refused(duration: Any) -> None:
    with pytest.raises(ConfigError, match="the TTL"):
        to_ns(duration, "the TTL")


def test_the_numbers_in_seconds() -> None:
    timing = Timing.of(10, renew_every=2, drift=0.1, round_trip=0.5, margin=0.25, renewal="eager", jitter=0.5)
    assert (timing.ttl, timing.renew_every) == (10.0, 2.0)
    said = timing.as_dict()
    assert json.loads(json.dumps(said)) == said
    assert said == {
        "ttl": 10.0,
        "renew_every": 2.0,
        "drift": 0.1,
        "round_trip": 0.5,
        "margin": 0.25,
        "renewal": "eager",
        "jitter": 0.5,
        "safe": timing.safe,
    }


@pytest.mark.parametrize("jitter", [-0.1, 0.91, 1, float("nan")])
def test_a_jitter_out_of_bounds_is_refused(jitter: float) -> None:
    with pytest.raises(ConfigError, match="the jitter"):
        Timing.of(10, jitter=jitter)
