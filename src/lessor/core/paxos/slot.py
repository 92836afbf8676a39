"""All that an acceptor keeps about one resource: the entry that every store has, and what has been promised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from lessor.core.entry import Entry, Reservation, Waiting
from lessor.core.paxos.riders import stamp


@dataclass(slots=True)
class Slot(Entry):
    """One resource on one acceptor. ``lease_id`` is the owner, ``expiry_ns`` the deadline of its record."""

    n: int = 0
    """The highest number under which the owner was taken in or extended."""
    promised_n: int = 0
    promised_by: str = ""
    """Whose number ``promised_n`` is; empty once that owner has given it back, so that nothing of it counts any more."""
    inherited: Reservation | None = None
    """What was reserved for the owner by the holder before it: in force again, should the owner withdraw."""
    _stamp: int = 0
    _stamped: int = 0
    after: int = 0
    """The token of the holder before, or one above it where that is forgotten: no later one has been here."""
    withdrawn: bool = False
    """The last attempt here was withdrawn: it was no holder's."""

    def stamp(self) -> int:
        """Return the number that stands for this lease where it rides on another one."""
        if self._stamped != self.token:
            self._stamp, self._stamped = stamp(self.resource, self.token), self.token
        return self._stamp

    def take_on(self, reservation: Reservation | None, floor: int) -> str:
        """Note that a new owner uses this reservation; return what was left with it.

        ``floor`` is at least the token of any holder that was forgotten.
        """
        self.inherited = reservation if reservation is not None and reservation.after else None
        if self.inherited is not None:
            self.after = self.inherited.after
        elif not self.withdrawn:
            self.after = self.token or floor
        self.withdrawn = False
        return "" if self.inherited is None else self.inherited.state

    def give_up_inheritance(self) -> None:
        """Put back what was reserved for an owner that didn't get it after all: for its name, as it waits no more."""
        self.withdrawn = True
        if self.inherited is not None:
            if self.waiting is None:
                self.waiting = Waiting()
            self.waiting.reservation = replace(self.inherited, lease_id="", successor=self.holder)
            self.inherited = None

    def freeze(self, now: int) -> Frozen:
        """Return it for the file that a clean shutdown leaves, with times as spans that are left.

        Waiters are left out: they show up again by themselves. What was handed over to one is kept for its name.
        """
        waiting = self.waiting
        reserved = None if waiting is None else _handed_over(waiting)
        return Frozen(
            self.resource,
            self.lease_id,
            self.n,
            self.promised_n,
            self.promised_by,
            self.token,
            self.expiry_ns - now,
            self.granted_ns - now,
            self.holder,
            self.ttl_ns,
            self.granted_us,
            self.renewed_us,
            self.renewals,
            self.metadata,
            self.notify,
            self.parent,
            self.parent_token,
            self.soft_ns,
            self.grace_ns,
            self.lock_delay_ns,
            self.hold_at_least_ns,
            self.ended,
            bool(self.revoked),
            bool(self.has_children),
            self.state,
            self.after,
            self.withdrawn,
            _moved(reserved, -now),
            _moved(self.inherited, -now),
        )


def _handed_over(waiting: Waiting) -> Reservation | None:
    reservation = waiting.reservation
    if reservation is None or not reservation.after:
        return None
    heir = waiting.find(reservation.lease_id)
    return reservation if heir is None else replace(reservation, lease_id="", successor=heir.holder)


def _moved(reservation: Reservation | None, by_ns: int) -> Reservation | None:
    return None if reservation is None else replace(reservation, until_ns=reservation.until_ns + by_ns)


class Frozen(NamedTuple):
    """A slot as a clean shutdown leaves it."""

    resource: str
    lease_id: str | None
    n: int
    promised_n: int
    promised_by: str
    token: int
    remaining_ns: int
    granted_ns: int
    holder: str
    ttl_ns: int
    granted_us: int
    renewed_us: int
    renewals: int
    metadata: str
    notify: str
    parent: str | None
    parent_token: int
    soft_ns: int
    grace_ns: int
    lock_delay_ns: int
    hold_at_least_ns: int
    ended: str | None
    revoked: bool
    has_children: bool
    state: str = ""
    after: int = 0
    withdrawn: bool = False
    reserved: Reservation | None = None
    inherited: Reservation | None = None

    def thaw(self, now: int) -> Slot:
        """Return it as a slot again. The time in between doesn't count, which only makes it last longer."""
        values = self._asdict()
        values["expiry_ns"] = now + values.pop("remaining_ns")
        values["granted_ns"] += now
        reserved = _moved(values.pop("reserved"), now)
        values["waiting"] = reserved and Waiting(reservation=reserved)
        values["inherited"] = _moved(self.inherited, now)
        return Slot(**values)
