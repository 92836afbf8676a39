"""Leader election, as far as both APIs share it: terms, campaigns, who leads, and how long to rest after a loss.

A lease on the election's name is all there is to it. Two processes never both believe that they lead, by clocks that
drift no more than the store declares; but a leader that doesn't look goes on after its time: guard its writes with
``term.token``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from lessor.core.ops import EventKind, Loss
from lessor.core.view import View
from lessor.errors import LeaseLost
from lessor.runtime.cancellation import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import Any

    from lessor.core.timing import Duration
    from lessor.core.view import Event, Record
    from lessor.errors import Draining

FIRST_REST: Final = 0.1
LONGEST_REST: Final = 5.0
"""Seconds: the bounds of how long a candidate rests that has lost, or that the store doesn't answer."""


@dataclass(frozen=True, slots=True)
class Leader(View):
    """The leader of an election, as the store saw it when it answered."""

    holder: str
    token: int
    since: datetime
    """When its term began, in UTC, by the store's wall clock."""

    @classmethod
    def of(cls, record: Record | None) -> Leader | None:
        """Return the leader by the record of the election's lease."""
        return None if record is None or record.closed else cls(record.holder, record.token, record.granted)


class Leaders:
    """Turns what happens to the election's lease into a stream of leaders, None where there is none."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._leader: Leader | None = None

    def begin(self, leader: Leader | None) -> None:
        """Start from this one. Events from before it may still come, and say nothing new."""
        self._leader = leader

    def changes(self, event: Event) -> bool:
        """Take the event in; whether somebody else leads now, or nobody."""
        known = self._leader
        if event.resource != self._name or (known is not None and event.token < known.token):
            return False
        if event.kind is EventKind.GRANTED:
            leader = Leader(event.holder, event.token, event.at)
            if known is not None and known.token == leader.token:
                return False
            self._leader = leader
            return True
        if known is None or (event.kind is EventKind.REVOKED and event.remaining > 0):
            return False  # revoked, it lasts until the expiry already promised
        self._leader = None
        return True

    @property
    def leader(self) -> Leader | None:
        """Who leads, by what was heard so far."""
        return self._leader


class Rest:
    """How long a candidate stays away: longer each time in a row, and at random, so that a sick one doesn't insist."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._in_a_row = 0

    def after(self, *, well: bool) -> float:
        """Return the seconds to rest after a term that went well, or after a loss or a failure."""
        if well:
            self._in_a_row = 0
            return 0.0
        longest = min(LONGEST_REST, FIRST_REST * (1 << self._in_a_row))
        self._in_a_row = min(self._in_a_row + 1, 10)
        return longest * (0.5 + self._draw() / 2)


class BaseTerm:
    """What `Term` and `AsyncTerm` have in common."""

    lease: Any
    """The lease that it stands on."""
    prepared: Any
    """What the ``ready`` work returned."""
    _drain: Any = None
    """An event, once it is drained: set when that is over."""
    _new_event: Callable[[], Any]
    """Makes an event of the kind that the API has."""

    def __init__(self, lease: Any, prepared: Any) -> None:
        self.lease = lease
        self.prepared = prepared

    @property
    def resource(self) -> str:
        """The election's name."""
        return str(self.lease.resource)

    @property
    def token(self) -> int:
        """The fencing token of this term: higher than that of any term before. Guards take the term as it is."""
        return int(self.lease.token)

    @property
    def is_leader(self) -> bool:
        """Whether we lead now, for certain. Reads the clock, and does no I/O."""
        return bool(self.lease.held)

    @property
    def lost(self) -> Any:
        """An event to wait on: set when this term is over."""
        return self.lease.lost

    @property
    def loss(self) -> Loss | None:
        """Why the term is over; None while it isn't."""
        loss: Loss | None = self.lease.loss
        return loss

    @property
    def went_well(self) -> bool:
        """Whether it goes on, or was ended by ourselves."""
        return self.loss in (None, Loss.RELEASED)

    def check(self) -> None:
        """Raise `LeaseLost` unless we lead now. In the term's own ``with`` that ends the body, and goes no further."""
        self.lease.check()

    def require(self, seconds: Duration) -> None:
        """Raise `LeaseLost` unless we lead for that much longer for certain, without another renewal."""
        self.lease.require(seconds)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.resource!r} token={self.token} {self.lease.state}>"

    def _announce_drain(self) -> None:
        """Have the end of its ``with`` wait for the drain that follows."""
        if self._drain is None or self._drain.is_set():
            self._drain = self._new_event()

    def _refused(self, error: Draining) -> bool:
        """Whether the error says that this very term takes no more work."""
        return bool(self.lease._refused(error))

    def _is_own(self, error: BaseException | None) -> bool:
        """Whether the error says that this very term is lost."""
        return isinstance(error, LeaseLost) and (error.resource, error.token) == (self.resource, self.token)


T = TypeVar("T", bound=BaseTerm)


class BaseCampaign(Generic[T]):
    """What `Campaign` and `AsyncCampaign` have in common."""

    def __init__(
        self, name: str, draw: Callable[[], float], ready: Callable[[], Any] | None, cancel: Cancellation | None
    ) -> None:
        self._name = name
        self._ready = ready
        self._rest = Rest(draw)
        self._stop = Cancellation()
        self._cancels = (self._stop,) if cancel is None else (self._stop, cancel)
        self._term: T | None = None

    @property
    def name(self) -> str:
        """The election's name."""
        return self._name

    @property
    def is_leader(self) -> bool:
        """Whether we lead now, for certain. Any thread may ask."""
        term = self._term
        return term is not None and term.is_leader

    @property
    def stopped(self) -> bool:
        """Whether the campaign was stopped: there will be no further term."""
        return self._stop.cancelled

    def stop(self) -> None:
        """End the campaign, at once and for good. Any thread or task may call it, and so may a signal handler.

        A candidate that waits leaves the queue, a lease that is granted to it all the same is given back, and its loop
        ends. A term that has begun goes on until its body ends: look at ``stopped`` there, or call ``drain()`` instead.
        """
        self._stop.cancel()

    def __repr__(self) -> str:
        state = "stopped" if self.stopped else "leading" if self.is_leader else "a candidate"
        return f"<{type(self).__name__} for {self._name!r}, {state}>"

    def _begin(self, term: T) -> bool:
        """Begin the term, unless the campaign was stopped meanwhile; then give it back in the background."""
        # First for all to see, then the look at the flag: whoever stops the campaign sees this term, or we see that.
        self._term = term
        if not self._stop.cancelled:
            return True
        self._term = None
        term.lease._engine.abandon(term.lease, Loss.RELEASED)
        return False

    def _announce_drain(self) -> T | None:
        """Stop the campaign, and have the end of its term wait for the drain that follows; return that term."""
        self.stop()
        term = self._term
        if term is not None:
            term._announce_drain()
        return term

    def _take_term(self) -> T | None:
        """Return the term before, which is over now. One that was drained was the last: this process takes no more work."""
        term, self._term = self._term, None
        if term is not None and term.lease._is_drained():
            self.stop()
        return term

    def _refused(self, error: Draining) -> bool:
        """Whether the work was refused because our term is drained."""
        term = self._term
        return term is not None and term._refused(error)
