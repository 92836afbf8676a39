"""What proposers and acceptors say to each other: named tuples of plain values, which the node turns into frames.

A request carries many items, and its reply a verdict for each. Most items are an operation of the store contract
together with the number of the attempt, so that an acceptor knows all that people may want to see of a lease.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from lessor.core.lease import Closed, Record  # noqa: TC001 - here and below: what makes frames of these reads their types
from lessor.core.ops import Acquire, Event, Loss, Notice, Release, Renew, Revoke  # noqa: TC001

# --- items: what is asked of an acceptor --------------------------------------------------------------------------


class Accept(NamedTuple):
    """Take this lease in: for an acquisition or, with a token, for one that is held and that this acceptor lacks."""

    op: Acquire
    n: int
    ticket: int = 0
    """The place in the queue that a majority gave, once there is one."""
    token: int = 0
    """0: this is an acquisition, and its token is ``n``."""
    since_us: int = 0
    """Since when the owner waits, by its own wall clock, so that all acceptors say the same; for people."""


class Prepare(NamedTuple):
    """Promise to take nobody with a lower number: for a retry after a split vote."""

    resource: str
    lease_id: str
    n: int


class Extend(NamedTuple):
    """Renew: extend the live record of this owner. It never brings one back."""

    op: Renew
    n: int
    riders: int | None = None
    """What its owner believes to ride on it, as a fingerprint (see `riders`); None: nothing does."""


class Withdraw(NamedTuple):
    """Undo an attempt that came to nothing. The owner may go on, with a higher number, and keeps its place."""

    resource: str
    lease_id: str
    n: int
    leave: bool = False
    """It doesn't keep its place: a majority has refused it one."""


class Drop(NamedTuple):
    """Release: the owner is done."""

    op: Release
    n: int = 0
    """The highest number that the owner has used; 0 where whoever releases doesn't know it."""


class End(NamedTuple):
    """Revoke whoever has it."""

    op: Revoke


class Look(NamedTuple):
    """Show who holds this."""

    resource: str


class Scan(NamedTuple):
    """Show what is held under the prefix, by name, from after that name on."""

    prefix: str
    after: str = ""
    limit: int = 1000


Item: TypeAlias = Accept | Prepare | Extend | Withdraw | Drop | End | Look | Scan

# --- verdicts: what an acceptor answers ---------------------------------------------------------------------------


class Ack(NamedTuple):
    """It is in: nobody else gets it here for ``ttl_ns`` from now."""

    ttl_ns: int
    extended: bool
    state: str = ""
    """What the holder before has handed over."""
    after: int = 0
    """Nobody with a higher token had it here before. The state, if there is one, was handed over with that very lease."""
    riders: tuple[int, ...] | None = None
    """The stamps of all that rides on it here, where that isn't what its owner believes."""
    ended: int = 0
    """How many leases under it somebody else has ended here."""


class Promised(NamedTuple):
    """Nobody with a lower number will be taken."""


class HeldBy(NamedTuple):
    """Somebody else has it here. One acceptor alone is no proof: it may be the loser of a split vote."""

    by: str
    """Empty: it is free, and kept for a waiter whose turn it is."""
    token: int
    remaining_ns: int
    position: int
    ticket: int
    floor: int
    refused: bool = False
    """The queue is as long here as the asker said that it may be: it has no place."""
    closed: Closed | None = None
    """Why nobody gets it here although nobody holds it."""


class Low(NamedTuple):
    """The number is too low: take one above ``floor``."""

    floor: int


class Gone(NamedTuple):
    """There is no live record of this owner here, or none that may be extended."""

    reason: Loss
    remaining_ns: int = 0
    floor: int = 0


class Dropped(NamedTuple):
    """It is over here; the resource is free in ``free_in_ns``."""

    free_in_ns: int = 0


class Nothing(NamedTuple):
    """There was nothing to end here."""

    reason: str = "not held"


class Refused(NamedTuple):
    """No acceptor with these settings does that, now or later."""

    why: str


class Place(NamedTuple):
    """A waiter, as one acceptor has it."""

    mark: int
    """Tells that two acceptors mean the same one: the lease id, which is a secret, is not shown."""
    holder: str
    since_us: int
    priority: int
    ticket: int


class Seen(NamedTuple):
    """What is held here, of what was asked for."""

    records: tuple[Record, ...]
    more: bool = False
    """There is more. With no records: the reply had no room for them, and the question has to be asked again."""
    queue: tuple[Place, ...] = ()
    """Who waits, where one resource was asked for; also while nobody holds it."""


Verdict: TypeAlias = Ack | Promised | HeldBy | Low | Gone | Dropped | Nothing | Refused | Seen

# --- what travels -------------------------------------------------------------------------------------------------


class Request(NamedTuple):
    """Some items, carried out one after the other. The serial ties the reply to it."""

    serial: int
    items: tuple[Item, ...]


class Reply(NamedTuple):
    """A verdict for each item."""

    serial: int
    acceptor: str
    incarnation: int
    verdicts: tuple[Verdict, ...]


class Push(NamedTuple):
    """What happened here, for those who asked to be told; one acceptor's view."""

    acceptor: str
    incarnation: int
    floor: int
    """At least the floor of every resource that is mentioned, so that a called waiter gets in at the first try."""
    events: tuple[Event, ...]
    notices: tuple[Notice, ...]


class SeedQuery(NamedTuple):
    """A node that lost its disk asks how high the numbers may have gone."""

    serial: int


class Seed(NamedTuple):
    """What whoever lost its disk has to know."""

    serial: int
    acceptor: str
    high_water: int
    """No number above this one has been promised here."""
    span_ns: int = 0
    """For so long, and no longer, anybody was kept out here, or may be."""
