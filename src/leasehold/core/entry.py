"""All that a store keeps about one resource: the lease, the queue for it, and who it is reserved for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from leasehold.core.lease import Contender, Record, decode_metadata


@dataclass(slots=True)
class Waiter:
    """A place in the queue. It dies by itself unless the waiter shows up."""

    lease_id: str
    holder: str
    notify: str
    since_us: int
    expiry_ns: int
    passed: bool = False
    """It did not come when it was its turn. It keeps its place, but is not called again before it shows up."""
    ticket: int = 0
    """Its number where several nodes keep the queue, each for itself; elsewhere the queue's order says it all."""


@dataclass(slots=True)
class Reservation:
    """Nobody but this waiter, or a holder of this name, gets the resource before ``until_ns``."""

    until_ns: int
    lease_id: str = ""
    successor: str = ""


@dataclass(slots=True)
class Waiting:
    """The part of an entry that most entries don't have."""

    queue: list[Waiter] = field(default_factory=list)
    reservation: Reservation | None = None
    tombstones: dict[str, int] = field(default_factory=dict)
    """Lease ids that must never be granted, and until when that is remembered."""

    def dumps(self) -> str:
        """Return it as the text that a store can keep in one field."""
        reservation = self.reservation
        return json.dumps(
            {
                "q": [[w.lease_id, w.holder, w.notify, w.since_us, w.expiry_ns, int(w.passed)] for w in self.queue],
                "r": reservation and [reservation.until_ns, reservation.lease_id, reservation.successor],
                "t": self.tombstones,
            },
            separators=(",", ":"),
        )

    @classmethod
    def loads(cls, text: str) -> Waiting:
        """Read what `dumps` wrote."""
        data = json.loads(text)
        return cls(
            queue=[Waiter(i, h, n, s, e, bool(p)) for i, h, n, s, e, p in data["q"]],
            reservation=Reservation(*data["r"]) if data["r"] else None,
            tombstones=data["t"],
        )


@dataclass(slots=True)
class Entry:
    """One resource. All times are on the store's own clock, but those in ``_us``, which are for people."""

    resource: str
    token: int = 0
    """The highest ever granted, so it outlives the lease."""
    lease_id: str | None = None
    """None: nobody can renew it (never granted, released, or revoked by force)."""
    holder: str = ""
    ttl_ns: int = 0
    """0 under a parent: lasts exactly as long as the parent does."""
    expiry_ns: int = 0
    """Closed to others until then, whether or not somebody still holds it."""
    granted_ns: int = 0
    granted_us: int = 0
    renewed_us: int = 0
    renewals: int = 0
    metadata: str = ""
    notify: str = ""
    parent: str | None = None
    parent_token: int = 0
    soft_ns: int = 0
    grace_ns: int = 0
    lock_delay_ns: int = 0
    hold_at_least_ns: int = 0
    ended: str | None = None
    """How the lease with this token ended, where somebody ended it."""
    revoked: bool | int = False
    """It will not be renewed any more."""
    has_children: bool | int = False
    waiting: Waiting | None = None

    def record(self, now: int, expiry_ns: int) -> Record:
        """Return what people may see of it. ``expiry_ns`` is the effective one, parents considered."""
        waiting = self.waiting
        queue = [w for w in waiting.queue if w.expiry_ns > now] if waiting else []
        reservation = waiting.reservation if waiting and waiting.reservation else None
        reserved_for = None
        if reservation and reservation.until_ns > now:
            names = [w.holder for w in queue if w.lease_id == reservation.lease_id]
            reserved_for = reservation.successor or (names[0] if names else None)
        return Record(
            resource=self.resource,
            holder=self.holder,
            token=self.token,
            ttl_ns=self.ttl_ns,
            remaining_ns=max(0, expiry_ns - now),
            granted_us=self.granted_us,
            renewed_us=self.renewed_us,
            renewals=self.renewals,
            metadata=decode_metadata(self.metadata),
            parent=(self.parent, self.parent_token) if self.parent is not None else None,
            soft_ns=self.soft_ns,
            grace_ns=self.grace_ns,
            lock_delay_ns=self.lock_delay_ns,
            hold_at_least_ns=self.hold_at_least_ns,
            revoked=bool(self.revoked),
            reserved_for=reserved_for,
            queue=tuple(Contender(w.holder, w.since_us) for w in queue),
        )
