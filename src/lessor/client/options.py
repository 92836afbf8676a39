"""What a caller may say about a lease besides its name, its TTL and how long to wait: checked here, for both faces."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lessor.core.clock import HOUR, SECOND
from lessor.core.lease import encode_metadata, encode_state
from lessor.core.ops import LONGEST_RESERVATION_NS, Release
from lessor.core.timing import Renewal, Timing, shown_drift, to_ns
from lessor.errors import ConfigError
from lessor.patterns.options import Options
from lessor.runtime.cancellation import Cancellation
from lessor.runtime.tenure import Tenure
from lessor.stores.base import Capability
from lessor.stores.scarcity import scarce

if TYPE_CHECKING:
    from typing import Any

    from lessor.core.timing import Duration
    from lessor.stores.base import Guarantees

HIGHEST_PRIORITY = 2**31 - 1
LONGEST_NS = 366 * 24 * HOUR
"""What a store may be asked to count at most."""
LONGEST_DELAY_BELOW_NS = 60 * SECOND
"""For so long stores remember that a parent has ended; without that, nobody knows when the delay began."""


class Terms(NamedTuple):
    """How a lease is to be held."""

    timing: Timing
    ttl_ns: int
    """0: as long as the parent."""
    max_hold_ns: int | None = None
    stall_after_ns: int | None = None
    extras: tuple[Any, ...] = ()
    """What the request has from its ``metadata`` on, if there is anything."""
    parent: Tenure | None = None
    cancels: tuple[Cancellation, ...] = ()


def check_renewal(renewal: Any) -> Renewal:
    """Return the strategy of that name."""
    try:
        return Renewal(renewal)
    except (ValueError, TypeError):
        raise ConfigError(f"{renewal!r} is no renewal strategy; there are: {', '.join(Renewal)}") from None


class TermsBook:
    """Makes terms, and remembers the plain ones: most programs ask for the same few."""

    def __init__(self, guarantees: Guarantees, renewal: Renewal | str) -> None:
        self._guarantees = guarantees
        self._renewal = check_renewal(renewal)
        self._known: dict[object, Terms] = {}

    def terms(self, ttl: Duration | Timing | None, options: Options) -> Terms:
        """Return the terms, or raise `ConfigError` where they can't work on this store."""
        if options:
            return self._make(ttl, options)
        try:
            known = self._known.get((ttl, type(ttl)))  # the type too: True is 1 to a dictionary, not to us
        except TypeError:
            raise ConfigError("a TTL is a duration or a Timing") from None
        if known is None:
            known = self._make(ttl, options)
            if len(self._known) < 1000:
                self._known[ttl, type(ttl)] = known
        return known

    def _make(self, ttl: Duration | Timing | None, options: Options) -> Terms:
        with scarce(self._guarantees.store):
            return self._check(ttl, options)

    def _check(self, ttl: Duration | Timing | None, options: Options) -> Terms:
        for name in options:
            if name not in Options.__annotations__:
                raise ConfigError(f"there is no option {name!r}; there are: {', '.join(Options.__annotations__)}")
        parent = _check_parent(options.get("parent"))
        renewal, hold_ns = options.get("renewal"), _optional_ns(options, "max_hold", most=None)
        if ttl is None:
            timing = self._riding(parent, options)
        else:
            if hold_ns is not None and not isinstance(ttl, Timing):
                ttl = min(to_ns(ttl, "the TTL"), hold_ns) / 1e9  # more would keep others out for longer than it is held
            if parent is not None and not isinstance(ttl, Timing):
                ttl = min(to_ns(ttl, "the TTL"), parent.timing.ttl_ns) / 1e9  # it is never granted for longer
            timing = self._timing(ttl, renewal)
        return Terms(
            timing,
            0 if ttl is None else timing.ttl_ns,
            hold_ns,
            _optional_ns(options, "stall_after", most=None),
            self._extras(options, parent, hold_ns) if options else (),
            parent,
            _check_cancel(options.get("cancel")),
        )

    def _timing(self, ttl: Duration | Timing, renewal: Renewal | str | None) -> Timing:
        store = self._guarantees
        if not isinstance(ttl, Timing):
            timing = Timing.of(
                ttl, drift=store.drift, renewal=self._renewal if renewal is None else check_renewal(renewal)
            )
        elif renewal is not None:
            raise ConfigError("the strategy of renewal is part of the Timing: say it there")
        elif ttl.drift < store.drift:
            raise ConfigError(
                f"unsafe: the timing allows for a clock drift of {shown_drift(ttl.drift)}, and {store.store} declares "
                f"{shown_drift(store.drift)}: make it with Timing.of(..., drift={store.drift:g})"
            )
        else:
            timing = ttl
        if not store.min_ttl_ns <= timing.ttl_ns <= store.max_ttl_ns:
            raise ConfigError(
                f"the TTL is {timing.ttl_ns / 1e9:g} s; {store.store} takes {store.min_ttl_ns / 1e9:g} "
                f"to {store.max_ttl_ns / 1e9:g} s"
            )
        return timing

    def _riding(self, parent: Tenure | None, options: Options) -> Timing:
        """Return the parent's timing, for a lease that lasts as long."""
        if parent is None:
            raise ConfigError("without a TTL a lease lasts as long as its parent: say which, or give a TTL")
        for name in ("renewal", "max_hold", "stall_after"):
            if options.get(name) is not None:
                raise ConfigError(
                    f"{name} is about renewals, and without a TTL of its own the parent's are all there are"
                )
        require(self._guarantees, Capability.SESSIONS, "carry leases along with their parent")
        return parent.timing

    def _extras(self, options: Options, parent: Tenure | None, hold_ns: int | None) -> tuple[Any, ...]:
        """Return the fields of the request from ``metadata`` on."""
        grace, least = _optional_ns(options, "grace"), _optional_ns(options, "hold_at_least")
        if grace and parent is not None:
            raise ConfigError("a lease under a parent has no grace of its own: give the parent one")
        delay = _optional_ns(options, "lock_delay")
        if delay and parent is not None and delay > LONGEST_DELAY_BELOW_NS:
            raise ConfigError(
                f"lock_delay is {delay / 1e9:g} s, and under a parent 60 s are the most: stores forget the parent then"
            )
        if least and hold_ns is not None and least > hold_ns:
            raise ConfigError(f"hold_at_least is {least / 1e9:g} s, and max_hold only {hold_ns / 1e9:g} s")
        priority = _whole(options, "priority", -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
        limit = _whole(options, "queue_limit", 1, HIGHEST_PRIORITY)
        recover = options.get("recover", False)
        if not isinstance(recover, bool):
            raise ConfigError(f"recover is True or False, not {type(recover).__name__}")
        for wanted, needed, what in (
            (grace, Capability.GRACE, "give a grace"),
            (priority, Capability.PRIORITY, "order waiters by priority"),
            (limit, Capability.QUEUE_LIMIT, "bound its queues"),
            (recover, Capability.RECOVER, "end a lease for a challenger"),
        ):
            if wanted:
                require(self._guarantees, needed, what)
        return (
            encode_metadata(options.get("metadata"), limit=self._guarantees.max_metadata),
            None if parent is None else (parent.resource, parent.token),
            _optional_ns(options, "soft") or 0,
            grace or 0,
            delay or 0,
            least or 0,
            priority,
            limit,
            recover,
        )


def require(guarantees: Guarantees, needed: Capability, what: str) -> None:
    """Refuse what the store can't do."""
    if needed not in guarantees.capabilities:
        raise ConfigError(f"{guarantees.store} can't {what}: it doesn't declare {str(needed.name).lower()}")


def check_required(guarantees: Guarantees, required: Any) -> None:
    """Refuse a store that doesn't declare the capabilities, given as such or by name."""
    if isinstance(required, str):
        required = next((one for one in Capability if [required] == one.names), required)
    if not isinstance(required, Capability):
        raise ConfigError(f"no store has {required!r}; require one of: {', '.join((~Capability.NONE).names)}")
    missing = required & ~guarantees.capabilities
    if not missing:
        return
    lacks = f"it doesn't declare {', '.join(missing.names)}"
    if Capability.CROSS_PROCESS in missing:
        lacks = "other processes don't see its leases"
    elif Capability.CROSS_HOST in missing:
        lacks = "other hosts don't see its leases"
    raise ConfigError(f"{guarantees.store}:// can't be used where {', '.join(missing.names)} is required: {lacks}")


def handover(tenure: Tenure, guarantees: Guarantees, to: str, state: bytes, within: Duration) -> Release:
    """Return the release that hands a lease over."""
    require(guarantees, Capability.HANDOVER, "hand leases over")
    heir = check_holder(to)
    if heir is None:
        raise ConfigError("a lease is handed over to a holder's name")
    reserve_ns = positive_ns(within, "the time to come in", most=LONGEST_RESERVATION_NS)
    text = encode_state(state, limit=guarantees.max_metadata)
    return tenure._release._replace(successor=heir, state=text, reserve_ns=reserve_ns)


def check_holder(holder: Any) -> str | None:
    """Return the name if people can read it."""
    if holder is None:
        return None
    if not isinstance(holder, str) or not holder.isprintable() or not 1 <= len(holder.encode()) <= 256:
        raise ConfigError("a holder's name is 1 to 256 bytes of printable text")
    return holder


def positive_ns(duration: Duration, what: str, *, most: int | None = None) -> int:
    """Return the nanoseconds; none, or less, are refused."""
    ns = to_ns(duration, what)
    if ns <= 0 or (most is not None and ns > most):
        bound = f", and at most {most / 1e9:g} s" if most else ""
        raise ConfigError(f"{what} must be positive{bound}; it is {ns / 1e9:g} s")
    return ns


def _check_parent(parent: Any) -> Tenure | None:
    if parent is None or isinstance(parent, Tenure):
        return parent
    raise ConfigError(f"a parent is a lease that is held here, not {type(parent).__name__}")


def _check_cancel(cancel: Any) -> tuple[Cancellation, ...]:
    if cancel is None:
        return ()
    if isinstance(cancel, Cancellation):
        return (cancel,)
    raise ConfigError(f"cancel is a lessor.Cancellation, not {type(cancel).__name__}")


def _optional_ns(options: Any, name: str, *, most: int | None = LONGEST_NS) -> int | None:
    value = options.get(name)
    return None if value is None else positive_ns(value, name, most=most)


def _whole(options: Any, name: str, least: int, most: int) -> int:
    """Return the number, 0 for none; anything that isn't one, or out of bounds, is refused."""
    value = options.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} is a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value}; it must be from {least} to {most}")
    return value
