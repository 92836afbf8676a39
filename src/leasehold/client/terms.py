"""What a caller says about a lease, checked and turned into what the core works with. The same for both faces."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from leasehold.core.claim import Claim
from leasehold.core.lease import check_resource, encode_metadata
from leasehold.core.ops import Acquire, Loss
from leasehold.core.timing import Renewal, Timing, to_ns
from leasehold.errors import ConfigError, InvalidResource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from leasehold.core.timing import Duration
    from leasehold.runtime.engine import Engine
    from leasehold.stores.base import Guarantees

STATE_FILE = "leasehold/leases.db"
FOR_EVER_NS = 1 << 62
"""Later than any clock of ours."""


def default_url() -> str:
    """Return LEASEHOLD_URL, or a SQLite file in the user's state folder, whose folder is made."""
    url = os.environ.get("LEASEHOLD_URL")
    if url:
        return url
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = os.path.join(os.path.abspath(state), STATE_FILE)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder for the default store can't be made ({error}): set LEASEHOLD_URL or give a URL"
        ) from error
    return "sqlite:///" + path.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


def check_holder(holder: Any) -> str | None:
    """Return the name if people can read it."""
    if holder is None:
        return None
    if not isinstance(holder, str) or not holder.isprintable() or not 1 <= len(holder.encode()) <= 256:
        raise ConfigError("a holder's name is 1 to 256 bytes of printable text")
    return holder


class Terms(NamedTuple):
    """How a lease is to be held."""

    timing: Timing
    max_hold_ns: int | None
    stall_after_ns: int | None


def check_renewal(renewal: Any) -> Renewal:
    """Return the strategy of that name."""
    try:
        return Renewal(renewal)
    except (ValueError, TypeError):
        raise ConfigError(f"{renewal!r} is no renewal strategy; there are: {', '.join(Renewal)}") from None


class TermsBook:
    """Makes terms, and remembers them: most programs ask for the same few."""

    def __init__(self, guarantees: Guarantees, renewal: Renewal | str) -> None:
        self._guarantees = guarantees
        self._renewal = check_renewal(renewal)
        self._known: dict[object, Terms] = {}

    def terms(
        self,
        ttl: Duration | Timing,
        *,
        renewal: Renewal | str | None,
        max_hold: Duration | None,
        stall_after: Duration | None,
    ) -> Terms:
        """Return the terms, or raise `ConfigError` where they can't work on this store."""
        # The types too: True is 1 to a dictionary, not to us.
        key = (ttl, renewal, max_hold, stall_after, type(ttl), type(max_hold), type(stall_after))
        try:
            known = self._known.get(key)
        except TypeError:
            raise ConfigError("the terms of a lease are durations, a Timing and the name of a strategy") from None
        if known is None:
            hold_ns = None if max_hold is None else positive_ns(max_hold, "max_hold")
            stall_ns = None if stall_after is None else positive_ns(stall_after, "stall_after")
            if hold_ns is not None and not isinstance(ttl, Timing):
                ttl = min(to_ns(ttl, "the TTL"), hold_ns) / 1e9  # more would keep others out for longer than it is held
            known = Terms(self._timing(ttl, renewal), hold_ns, stall_ns)
            if len(self._known) < 1000:
                self._known[key] = known
        return known

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
                f"unsafe: the timing allows for a drift of {ttl.drift:g}, and {store.store} declares {store.drift:g}"
            )
        else:
            timing = ttl
        if not store.min_ttl_ns <= timing.ttl_ns <= store.max_ttl_ns:
            raise ConfigError(
                f"the TTL is {timing.ttl_ns / 1e9:g} s; {store.store} takes {store.min_ttl_ns / 1e9:g} "
                f"to {store.max_ttl_ns / 1e9:g} s"
            )
        return timing


def positive_ns(duration: Duration, what: str, *, most: int | None = None) -> int:
    """Return the nanoseconds; none, or less, are refused."""
    ns = to_ns(duration, what)
    if ns <= 0 or (most is not None and ns > most):
        bound = f", and at most {most / 1e9:g} s" if most else ""
        raise ConfigError(f"{what} must be positive{bound}; it is {ns / 1e9:g} s")
    return ns


def check_prefix(prefix: Any) -> str:
    """Return the prefix if names can start with it."""
    if not isinstance(prefix, str):
        raise InvalidResource(prefix, f"a prefix is str, not {type(prefix).__name__}")
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise InvalidResource(prefix, "it has a lone surrogate, which UTF-8 can't express") from None
    return prefix


def check_force(force: Any) -> bool:
    """Return it if it is a plain yes or no: whatever is merely true would end a lease at once."""
    if not isinstance(force, bool):
        raise ConfigError(f"force is True or False, not {type(force).__name__}")
    return force


def check_wait(wait: Duration) -> int:
    """Return the nanoseconds to wait; less than none are refused."""
    ns = to_ns(wait, "the wait")
    if ns < 0:
        raise ConfigError(f"the wait can't be negative, and it is {ns / 1e9:g} s")
    return ns


def make_claim(
    engine: Engine, resource: str, terms: Terms, *, wait: Duration | None, metadata: Mapping[str, str] | None
) -> Claim:
    """Return a fresh attempt, with a lease id of its own."""
    wait_ns = None if wait is None else check_wait(wait)
    now = engine.clock.now()
    op = Acquire(
        check_resource(resource),
        engine.ids.new(now),
        engine.holder,
        terms.timing.ttl_ns,
        wait_ns is None or wait_ns > 0,
        engine.waiters.address,
        engine.seen_token,
        "" if metadata is None else encode_metadata(metadata, limit=engine.store.guarantees.max_metadata),
    )
    until = None if wait_ns is None else now + wait_ns
    return Claim(op, terms.timing, wait_until_ns=until, patience_ns=int(engine.timeout * 1e9))


def start_over(engine: Engine, claim: Claim) -> None:
    """Go on with another lease id, and give the spent one back."""
    engine.waiters.leave(claim.op.lease_id)
    engine.keeper.dispose(claim.op.resource, claim.op.lease_id, claim.timing.ttl_ns)
    claim.restart(engine.ids.new(engine.clock.now()))
    engine.waiters.expect(claim.op.lease_id)


def drop_claim(engine: Engine, claim: Claim) -> None:
    """Leave nothing of an attempt behind that failed, was cancelled, timed out or was interrupted."""
    engine.waiters.leave(claim.op.lease_id)
    tenure = engine.held.get(claim.op.lease_id)
    if tenure is not None:
        engine.abandon(tenure, Loss.RELEASED)
    if claim.in_doubt or claim.queued:
        engine.keeper.dispose(claim.op.resource, claim.op.lease_id, claim.timing.ttl_ns, in_doubt=claim.in_doubt)
