"""What users are shown of leases: durations in seconds, times as aware datetimes.

Stores count in nanoseconds and microseconds (see `lessor.core.lease` and `lessor.core.ops`); the clients convert. A view
is a snapshot: it shows what the store knew when it answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lessor.core.ops import EventKind

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def seconds(ns: int) -> float:
    """Return a duration in seconds."""
    return ns / 1e9


def instant(us: int) -> datetime:
    """Return a wall-clock time, given in microseconds since 1970, in UTC."""
    return EPOCH + timedelta(microseconds=us)


def iso(when: datetime) -> str:
    """Return a time as text in ISO 8601: UTC, milliseconds, a trailing ``Z``."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class View:
    """The base of all views."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that ``json.dumps`` takes: times as text in ISO 8601, in UTC."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, View):
        return value.as_dict()
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True, slots=True)
class Contender(View):
    """A waiter in the queue for a resource."""

    holder: str
    since: datetime
    """When it joined the queue, in UTC."""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Parent(View):
    """The lease that another one is a child of."""

    resource: str
    token: int


@dataclass(frozen=True, slots=True)
class Record(View):
    """A lease as the store saw it when it answered. It proves nothing: only the holder has the `Lease`.

    With ``closed`` set, nobody holds the resource and nobody can acquire it yet: this is its last lease.
    """

    resource: str
    holder: str
    token: int
    ttl: float
    """Seconds for which each grant and each renewal holds."""
    remaining: float
    """Seconds until the lease ends unless it is renewed or, if the resource is closed, until it opens. Counted by the
    store's clock, so an estimate here."""
    granted: datetime
    """When it was granted, in UTC, by the store's wall clock."""
    renewed: datetime
    """When it was last renewed, or granted, in UTC, by the store's wall clock."""
    renewals: int
    """How often it has been renewed."""
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What its holder said about it."""
    parent: Parent | None = None
    """The lease that it is a child of."""
    soft: float | None = None
    """Seconds after which an acquirer with ``recover`` may revoke it; None: never."""
    grace: float | None = None
    """Seconds after its expiry for which its holder may still renew it if nobody took it; None: not at all."""
    lock_delay: float | None = None
    """Seconds for which the resource stays closed after an expiry; None: not at all."""
    hold_at_least: float | None = None
    """Seconds after the grant before which a release doesn't free the resource; None: a release frees it at once."""
    revoked: bool = False
    """Whether it was revoked: it isn't renewed any more, and ends when ``remaining`` is over."""
    reserved_for: str | None = None
    """The holder that the resource is reserved for after this lease."""
    queue: tuple[Contender, ...] = ()
    """The waiters, in the order of their turns."""
    closed: str | None = None
    """Why the resource is closed: ``"hold_at_least"`` after an early release, ``"lock_delay"`` after an expiry. None: the
    lease is held."""


@dataclass(frozen=True, slots=True)
class Event(View):
    """A change to a resource. Events of one resource come in order."""

    kind: EventKind
    resource: str
    token: int
    holder: str
    at: datetime
    """When it happened, in UTC, by the store's wall clock; an expiry: when it was noticed."""
    remaining: float = 0.0
    """Seconds for which the lease lasted from then on unless renewed; 0 if it was over."""
    closed_for: float = 0.0
    """Seconds for which the resource stayed closed after a release within ``hold_at_least``."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that ``json.dumps`` takes. ``kind`` is named ``event``, as in ``lessor run --json``."""
        said = View.as_dict(self)
        return {"event": str(said.pop("kind")), **said}
