"""The operations that a store applies, and what it answers.

An outcome has three faces, because silence is neither yes nor no: a definite yes, a definite no, and `Unknown`.
They are named tuples: a store may make a hundred thousand of them a second.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lessor.core.clock import MILLISECOND, SECOND

if TYPE_CHECKING:
    from lessor.core import view
    from lessor.core.lease import Closed
    from lessor.errors import LessorError

RESERVATION_NS = 100 * MILLISECOND
"""How long a freed resource waits for the waiter whose turn it is."""
LONGEST_RESERVATION_NS = 60 * SECOND
"""How long it waits for a named successor at most."""
WAITER_LIFE_NS = 6 * SECOND
"""How long a waiter stays in the queue without showing up."""


class Loss(StrEnum):
    """Why a lease is no longer held."""

    EXPIRED = "expired"
    TAKEN = "taken"
    REVOKED = "revoked"
    RELEASED = "released"
    FORKED = "forked"
    STALLED = "stalled"
    CLOSED = "closed"
    PARENT = "parent"
    """The lease that it stands under is over."""


# --- operations ---------------------------------------------------------------------------------------------------


class Acquire(NamedTuple):
    """Grant the resource to this lease id, or say who has it.

    Safe to repeat: an id that holds already gets its grant back, with the same token. With ``queue`` set, an id that
    can't have it yet joins the queue or, when it is there already, says that it still lives.
    """

    resource: str
    lease_id: str
    holder: str
    ttl_ns: int
    queue: bool = False
    notify: str = ""
    """Where the store reaches the asker: the address of its subscription."""
    seen_token: int = 0
    """The highest token that the asker knows of: the new one will be above it, whatever the store forgot."""
    metadata: str = ""
    parent: tuple[str, int] | None = None
    soft_ns: int = 0
    grace_ns: int = 0
    lock_delay_ns: int = 0
    hold_at_least_ns: int = 0
    priority: int = 0
    """Waiters of a higher one come first; among equals, who came first."""
    queue_limit: int = 0
    """With so many waiters there already, don't queue up: `Held` with ``refused``. 0: however many there are."""
    recover: bool = False
    """If the holder has had it for its ``soft_ns``, revoke it: it ends at the expiry already promised."""


class Renew(NamedTuple):
    """Extend the lease with this id, if it is alive."""

    resource: str
    lease_id: str
    token: int
    ttl_ns: int


class Release(NamedTuple):
    """End the lease with this id, or take the id out of the queue."""

    resource: str
    lease_id: str
    successor: str | None = None
    """A holder's name: the resource is kept for it, for ``reserve_ns``."""
    abandon: bool = False
    """The id may be in a request that is still on its way: leave a tombstone, so that it is never granted."""
    state: str = ""
    """What the successor gets with its grant, and nobody else does."""
    reserve_ns: int = RESERVATION_NS


class Revoke(NamedTuple):
    """End somebody else's lease: at the expiry already promised or, by force, now.

    A resource that is closed after a release (``hold_at_least``) opens at once. One that is closed after an expiry
    (``lock_delay``) opens by force only: otherwise the answer is `Held`.
    """

    resource: str
    force: bool = False
    token: int | None = None
    """Only if this is still the token."""


Op: TypeAlias = Acquire | Renew | Release | Revoke

# --- outcomes -----------------------------------------------------------------------------------------------------


class Granted(NamedTuple):
    """It is yours for ``ttl_ns``, counted from before you asked."""

    token: int
    ttl_ns: int
    state: str = ""
    """What the holder before has handed over."""


class Held(NamedTuple):
    """Somebody else has it, or is about to."""

    by: str
    token: int
    remaining_ns: int
    """Until it may be free; with no holder, until it is not reserved any more; where it is closed, until it opens."""
    position: int
    """How many waiters are before you."""
    refused: bool = False
    """The queue is as long as you said that it may be: you are not in it."""
    closed: Closed | None = None
    """Why nobody can acquire it yet although nobody holds it: ``by`` and ``token`` are then those of the last lease."""


class Renewed(NamedTuple):
    """It is yours for another ``ttl_ns``, counted from before you asked."""

    ttl_ns: int
    ended: int = 0
    """How many leases under this one somebody else has ended since it was granted. While that stays the same, those
    that last as long as this one does are renewed with it; when it has changed, ask for each."""


class Lost(NamedTuple):
    """It is not renewed and will not be. For ``remaining_ns`` nobody else gets it."""

    reason: Loss
    remaining_ns: int = 0


class Released(NamedTuple):
    """It is over; the resource is free in ``free_in_ns``."""

    free_in_ns: int = 0


class NotHeld(NamedTuple):
    """There was nothing to end."""

    reason: str = "not held"


class Unknown(NamedTuple):
    """No answer: it may or may not have happened. Ask again, with the same id."""

    error: LessorError


AcquireOutcome: TypeAlias = Granted | Held | Lost | Unknown
RenewOutcome: TypeAlias = Renewed | Lost | Unknown
ReleaseOutcome: TypeAlias = Released | NotHeld | Unknown
RevokeOutcome: TypeAlias = Released | NotHeld | Held | Unknown
Outcome: TypeAlias = Granted | Held | Renewed | Lost | Released | NotHeld | Unknown

# --- what a store pushes ------------------------------------------------------------------------------------------


class EventKind(StrEnum):
    """What happened to a resource."""

    GRANTED = "granted"
    RELEASED = "released"
    REVOKED = "revoked"
    EXPIRED = "expired"
    """Never pushed: a watcher derives it, since nobody acts when time runs out."""


class Event(NamedTuple):
    """Something that happened, as stores push it. In order for each resource. Users get `lessor.core.view.Event`."""

    kind: EventKind
    resource: str
    token: int
    holder: str
    at_us: int
    ttl_ns: int = 0
    """How long the lease lasts from then on, if it does; of a release, how long the resource stays closed."""

    def as_view(self) -> view.Event:
        """Return it as users see it."""
        from lessor.core import view  # noqa: PLC0415 - dataclasses take longer to import than all of this

        at, remaining, closed_for = view.instant(self.at_us), view.seconds(self.ttl_ns), 0.0
        if self.kind is EventKind.RELEASED:
            remaining, closed_for = 0.0, remaining
        return view.Event(self.kind, self.resource, self.token, self.holder, at, remaining, closed_for)


class Summons(StrEnum):
    """Why a store calls one particular client."""

    RESERVED = "reserved"
    """Your turn: ask now."""
    REVOKED = "revoked"
    """Somebody ends your lease: ask, to learn how."""


class Notice(NamedTuple):
    """A word to one client, sent to the address that it gave."""

    address: str
    summons: Summons
    resource: str
    lease_id: str
