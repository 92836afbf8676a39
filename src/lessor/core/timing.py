"""The five numbers of a lease and the two inequalities between them.

==============  ====================================================================================================
``ttl``         for how long the store keeps others out after a grant or a renewal
``renew_every`` how long after the start of one successful renewal the next one starts
``drift``       by how much the rates of the holder's and the store's clock may differ from true time
``round_trip``  how long one attempt to renew may take before it counts as failed
``margin``      how long before the store may free it the holder stops
==============  ====================================================================================================

From them follows the *safe time*: ``ttl * (1 - drift) / (1 + drift) - margin``, counted from before the request left.

*Safety*: the safe time is positive and the margin not negative. Then the holder stops before the store frees the
resource, whatever the delay of the replies, since both count from a moment that lies before the store's.

*Availability*: ``renew_every + round_trip + 2 * round_trip < safe time``: a renewal may fail, and so may the next one,
and a third attempt still comes in time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, Union

from lessor.core.clock import HOUR, MILLISECOND, SECOND
from lessor.errors import ConfigError

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Self

Duration: TypeAlias = Union[float, int, "timedelta"]
"""Seconds, or a timedelta."""

MIN_TTL_NS: Final = 50 * MILLISECOND
MAX_TTL_NS: Final = 24 * HOUR
MIN_ROUND_TRIP_NS: Final = MILLISECOND
ATTEMPTS: Final = 3
"""How many attempts to renew must fit in between the first one and the end of the safe time."""
JITTER: Final = 0.3
"""A renewal comes up to this part of its interval early, so that clients that began together don't stay together."""
MOST_JITTER: Final = 0.9


class Renewal(StrEnum):
    """When to renew, as a part of the safe time."""

    THIRD = "third"
    EAGER = "eager"
    """Half of it: fewer renewals, two chances fewer."""
    LAZY = "lazy"
    """Nine tenths of it: the fewest renewals; one slow answer may lose the lease."""
    DHCP = "dhcp"
    """T1 at 1/2, then, where that fails, again at half of what is left until T2 at 7/8, and so on after it."""
    ADAPTIVE = "adaptive"
    """As late as the measured latency of the renewals allows."""


FRACTION: Final = {
    Renewal.THIRD: 1 / 3,
    Renewal.EAGER: 1 / 2,
    Renewal.LAZY: 9 / 10,
    Renewal.DHCP: 1 / 2,
    Renewal.ADAPTIVE: 1 / 3,  # until there are measurements
}


UNSLEWED_DRIFT: Final = 0.005
"""The drift bound of clocks that are not slewed: those that holders, the embedded stores and our own nodes read."""
SLEWED_DRIFT: Final = 0.10
"""The drift bound of a server's CLOCK_REALTIME or CLOCK_MONOTONIC: chrony may slew either by 8 %."""


def shown_drift(drift: float) -> str:
    """Return a drift bound for people."""
    return f"{drift * 100:g} %"


def to_ns(duration: Duration, what: str) -> int:
    """Turn seconds or a timedelta into nanoseconds; anything else is refused."""
    if hasattr(duration, "total_seconds"):  # a timedelta: to import it only for this would cost 2 ms
        duration = duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, (int, float)):
        raise ConfigError(f"{what} is seconds or a timedelta, not {type(duration).__name__}")
    if not -1e12 < duration < 1e12:  # also refuses NaN
        raise ConfigError(f"{what} is {duration}, which is no duration")
    return round(duration * SECOND)


def _s(ns: float) -> str:
    return f"{ns / SECOND:.6g} s"


def _check_drift(drift: float) -> None:
    if not 0 <= drift < 0.5:
        raise ConfigError(f"the drift bound is {drift:g} ({shown_drift(drift)}); it must be from 0 to below 0.5 (50 %)")


class _Numbers(NamedTuple):
    ttl_ns: int
    renew_every_ns: int
    drift: float
    round_trip_ns: int
    margin_ns: int
    renewal: Renewal
    jitter: float
    """Up to which part of its interval a renewal comes early, at random; pauses between retries are shortened alike."""
    safe_ns: int
    """The safe time of a full TTL."""


class Timing(_Numbers):
    """The five numbers and the jitter, checked. Made with `of`, which fills in what you don't say."""

    __slots__ = ()

    def __new__(  # noqa: PLR0917 - five numbers, a strategy and the jitter
        cls,
        ttl_ns: int,
        renew_every_ns: int,
        drift: float,
        round_trip_ns: int,
        margin_ns: int,
        renewal: Renewal = Renewal.THIRD,
        jitter: float = JITTER,
    ) -> Self:
        """Check that the numbers work together."""
        if not MIN_TTL_NS <= ttl_ns <= MAX_TTL_NS:
            raise ConfigError(f"the TTL is {_s(ttl_ns)}; it must be from 0.05 s to 86400 s (24 h)")
        _check_drift(drift)
        if not 0 <= jitter <= MOST_JITTER:
            raise ConfigError(f"the jitter is {jitter}; it must be from 0 to {MOST_JITTER}")
        safe_ns = safe_span(ttl_ns, drift) - margin_ns
        timing = super().__new__(cls, ttl_ns, renew_every_ns, drift, round_trip_ns, margin_ns, renewal, jitter, safe_ns)
        timing._check_safety()
        timing._check_availability()
        return timing

    def __getnewargs__(self) -> tuple[object, ...]:
        """Return what pickle and copy make it from again."""
        return tuple(self)[:-1]

    def _check_safety(self) -> None:
        if self.margin_ns < 0:
            raise ConfigError(f"unsafe: the margin must not be negative, and it is {_s(self.margin_ns)}")
        if self.safe_ns <= 0:
            raise ConfigError(
                "unsafe: ttl * (1 - drift) / (1 + drift) - margin > 0 does not hold: "
                f"{_s(self.ttl_ns)} * (1 - {self.drift}) / (1 + {self.drift}) - {_s(self.margin_ns)} = {_s(self.safe_ns)}"
            )

    def _check_availability(self) -> None:
        if self.renew_every_ns <= 0 or self.round_trip_ns < MIN_ROUND_TRIP_NS:
            raise ConfigError(
                f"the renewal interval must be positive and the round trip at least {_s(MIN_ROUND_TRIP_NS)}; "
                f"they are {_s(self.renew_every_ns)} and {_s(self.round_trip_ns)}"
            )
        needed = self.renew_every_ns + ATTEMPTS * self.round_trip_ns
        if needed >= self.safe_ns:
            raise ConfigError(
                "a single failure may lose the lease: renew_every + round_trip + 2 * round_trip < safe time "
                f"does not hold: {_s(self.renew_every_ns)} + {ATTEMPTS} * {_s(self.round_trip_ns)} = {_s(needed)}, "
                f"and the safe time is {_s(self.safe_ns)} (TTL {_s(self.ttl_ns)}, drift {shown_drift(self.drift)}, "
                f"margin {_s(self.margin_ns)}). Take a longer TTL, renew earlier, or allow less time for an attempt."
            )

    @classmethod
    def of(
        cls,
        ttl: Duration,
        *,
        renew_every: Duration | None = None,
        drift: float = UNSLEWED_DRIFT,
        round_trip: Duration | None = None,
        margin: Duration | None = None,
        renewal: Renewal | str = Renewal.THIRD,
        jitter: float = JITTER,
    ) -> Self:
        """Make it from seconds or timedeltas; what isn't given follows from the TTL. Hand it to ``acquire(ttl=...)``.

        ``drift`` must be at least the drift bound that the store declares, which ``lessor stores`` prints; the default
        is the one of the embedded stores and of PaxosLease. A smaller one is refused by ``acquire``.
        """
        return cls.from_ttl(
            to_ns(ttl, "the TTL"),
            drift=drift,
            renewal=renewal,
            jitter=jitter,
            renew_every_ns=None if renew_every is None else to_ns(renew_every, "the renewal interval"),
            round_trip_ns=None if round_trip is None else to_ns(round_trip, "the round trip"),
            margin_ns=None if margin is None else to_ns(margin, "the margin"),
        )

    @classmethod
    def from_ttl(
        cls,
        ttl_ns: int,
        *,
        drift: float = UNSLEWED_DRIFT,
        renewal: Renewal | str = Renewal.THIRD,
        renew_every_ns: int | None = None,
        round_trip_ns: int | None = None,
        margin_ns: int | None = None,
        jitter: float = JITTER,
    ) -> Self:
        """Make it from nanoseconds. What isn't given: a margin of 2 % (5 ms to 1 s), the strategy's interval, attempts that fit."""
        try:
            renewal = Renewal(renewal)
        except ValueError:
            known = ", ".join(Renewal)
            raise ConfigError(f"{renewal!r} is no renewal strategy; there are: {known}") from None
        _check_drift(drift)
        if margin_ns is None:
            margin_ns = min(max(ttl_ns // 50, 5 * MILLISECOND), SECOND)
        safe = safe_span(ttl_ns, drift) - margin_ns
        if renew_every_ns is None:
            renew_every_ns = int(safe * FRACTION[renewal])
        if round_trip_ns is None:
            fits = (safe - renew_every_ns) // (ATTEMPTS + 1)
            round_trip_ns = min(max(fits, MIN_ROUND_TRIP_NS), 5 * SECOND)
        return cls(ttl_ns, renew_every_ns, drift, round_trip_ns, margin_ns, renewal, jitter)

    @property
    def ttl(self) -> float:
        """The TTL in seconds."""
        return self.ttl_ns / SECOND

    @property
    def renew_every(self) -> float:
        """Seconds from the start of one successful renewal to the next."""
        return self.renew_every_ns / SECOND

    @property
    def safe(self) -> float:
        """The safe time of a full TTL, in seconds."""
        return self.safe_ns / SECOND

    def as_dict(self) -> dict[str, float | str]:
        """Return the numbers as a dict that ``json.dumps`` takes, in seconds."""
        said: dict[str, float | str] = {
            name.removesuffix("_ns"): value / SECOND if name.endswith("_ns") else value
            for name, value in self._asdict().items()
        }
        return {**said, "renewal": str(self.renewal)}

    def at_least(self, ns: int) -> int:
        """Return how long a span is on the holder's clock at least that lasts so long on the store's."""
        return safe_span(ns, self.drift)

    def safe_time(self, granted_ns: int) -> int:
        """Return for how long a grant of this length may be relied upon, from before the request was sent."""
        if granted_ns == self.ttl_ns:
            return self.safe_ns
        return safe_span(granted_ns, self.drift) - self.margin_ns


def safe_span(granted_ns: int, drift: float) -> int:
    """Return how long a span is on the holder's clock at least that lasts so long on the store's."""
    return int(granted_ns * (1 - drift) / (1 + drift))
