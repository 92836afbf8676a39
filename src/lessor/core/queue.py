"""The queue for a resource: whose turn it is, who is called, and who has dropped out.

Who has the higher priority is served first, and among equals who came first. A waiter keeps its place while it shows up; a resource that comes free is kept for a moment
for the first one that is there. Nobody here acts on time: what time has done is worked out when somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.entry import Reservation, Waiter, Waiting
from lessor.core.ops import RESERVATION_NS, WAITER_LIFE_NS, Held, Notice, Summons

if TYPE_CHECKING:
    from lessor.core.entry import Entry
    from lessor.core.lease import Closed
    from lessor.core.ops import Acquire, Release
    from lessor.core.rules import Table


def wait(
    table: Table, entry: Entry, op: Acquire, now: int, *, by: str, free_at: int, closed: Closed | None = None
) -> Held:
    """Answer that it can't be had yet and, if asked to, keep or refresh the asker's place in the queue."""
    position, refused = 0, False
    if op.queue:
        if entry.waiting is None:
            entry.waiting = Waiting()
        places = entry.waiting.queue
        tidy(entry, now, keep_waiting=True)
        place = entry.waiting.find(op.lease_id)
        until = now + WAITER_LIFE_NS
        if place is None:
            position = _turn(places, op.priority)
            refused = 0 < op.queue_limit <= len(places)
            if not refused:
                place = Waiter(op.lease_id, op.holder, op.notify, table.wall_us, until, priority=op.priority)
                entry.waiting.insert(position, place)
        else:
            position = entry.waiting.position(place)
            entry.waiting.keep(place, until)
            place.passed = False
        if by:
            table.save(entry)
    elif entry.waiting is not None:
        position = _turn(entry.waiting.live(now), op.priority)
    if not by and entry.waiting is not None:
        position = max(position, 1)  # behind the one that it is reserved for
        table.save(entry)  # whose turn it is, or the next one to ask might find it otherwise
    return Held(by, entry.token, free_at - now, position, refused, closed)


def _turn(places: list[Waiter], priority: int) -> int:
    """Return how many would be before one that comes now."""
    position = len(places)
    while position and places[position - 1].priority < priority:
        position -= 1
    return position


def settle(
    table: Table, entry: Entry, waiting: Waiting, free_since: int, now: int, *, showing: str
) -> Reservation | None:
    """Return the reservation in force at ``now`` on a resource that is free since ``free_since``.

    Where nobody acted when the resource came free, this says what would have happened: each waiter in turn had it
    reserved for `RESERVATION_NS`, since all know when a lease ends. When a reservation runs out only the one knows that
    had it, so the next one's turn begins now. The one that shows up now has not missed its turn; one whose turn it is,
    and that isn't here, is called.
    """
    reservation = waiting.reservation
    start = free_since
    if reservation is not None:
        called = waiting.find(reservation.lease_id)
        if reservation.until_ns > now and (reservation.successor or called is not None):
            return reservation
        start = now
        if called is not None and called.lease_id != showing:
            called.passed = True
        waiting.reservation = None
    for waiter in waiting.queue:
        if waiter.lease_id == showing:
            return Reservation(now + RESERVATION_NS, waiter.lease_id)
        if waiter.passed or waiter.expiry_ns <= now:
            continue
        if start + RESERVATION_NS > now:
            _reserve(table, entry, waiting, waiter, start)
            return waiting.reservation
        waiter.passed = True
        start += RESERVATION_NS
    return None


def leave_and_call(table: Table, entry: Entry, waiting: Waiting, op: Release, now: int, *, free_at: int) -> None:
    """Take a waiter out of the queue; where it was its turn, it is the next one's."""
    if now >= free_at:
        settle(table, entry, waiting, free_at, now, showing="")
        table.notices[:] = [notice for notice in table.notices if notice.lease_id != op.lease_id]
    leave(entry, op.lease_id)
    if now >= free_at or entry.lease_id is None:
        call_next(table, entry, now)
    tidy(entry, now)
    table.save(entry)


def call_next(table: Table, entry: Entry, now: int) -> None:
    """Where nobody has the free resource reserved, reserve it for the first live waiter, and call it."""
    waiting = entry.waiting
    if waiting is None:
        return
    if waiting.reservation is not None and waiting.reservation.until_ns > now:
        if waiting.reservation.successor:
            _tell_first(table, entry, waiting, now)  # who would have told the others when that is over has gone
        return
    waiting.reservation = None
    for waiter in waiting.queue:
        if waiter.expiry_ns > now and not waiter.passed:
            # Closed for a while yet (minimum hold): the turn begins when it opens.
            _reserve(table, entry, waiting, waiter, max(now, entry.expiry_ns))
            return


def reopen(table: Table, entry: Entry, now: int, *, earlier_ns: int) -> None:
    """Let the turns begin now on a resource that was closed for longer by ``earlier_ns``, and call whose turn it is."""
    waiting = entry.waiting
    reservation = waiting.reservation if waiting is not None else None
    if waiting is None or reservation is None:
        return
    reservation.until_ns -= earlier_ns
    reserved = waiting.find(reservation.lease_id)
    if reserved is not None and reserved.expiry_ns > now:
        _call(table, entry, reserved)
    elif not reservation.successor:
        waiting.reservation = None


def hand_over(table: Table, entry: Entry, op: Release, now: int, *, free_at: int) -> None:
    """Keep the resource for the successor that its holder has named: the first waiter of that name, or whoever has it."""
    assert op.successor
    if entry.waiting is None:
        entry.waiting = Waiting()
    waiting = entry.waiting
    until = free_at + op.reserve_ns
    heir = next((w for w in waiting.queue if w.expiry_ns > now and w.holder == op.successor), None)
    if heir is None:
        waiting.reservation = Reservation(until, successor=op.successor, state=op.state, after=entry.token)
    else:
        waiting.reservation = Reservation(until, heir.lease_id, state=op.state, after=entry.token)
        _call(table, entry, heir)
    _tell_first(table, entry, waiting, now)


def _tell_first(table: Table, entry: Entry, waiting: Waiting, now: int) -> None:
    """Call the first waiter that the resource isn't reserved for: it asks, and so learns when to come by itself."""
    reserved = waiting.reservation.lease_id if waiting.reservation else ""
    first = next((w for w in waiting.queue if w.expiry_ns > now and not w.passed and w.lease_id != reserved), None)
    if first is not None:
        _call(table, entry, first)


def _reserve(table: Table, entry: Entry, waiting: Waiting, waiter: Waiter, start: int) -> None:
    """Keep the resource for this waiter, and call it."""
    waiting.reservation = Reservation(start + RESERVATION_NS, waiter.lease_id)
    _call(table, entry, waiter)


def _call(table: Table, entry: Entry, waiter: Waiter) -> None:
    if waiter.notify:
        table.notices.append(Notice(waiter.notify, Summons.RESERVED, entry.resource, waiter.lease_id))


def is_for(reservation: Reservation, op: Acquire) -> bool:
    """Whether the resource is kept for whoever asks here."""
    return op.holder == reservation.successor if reservation.successor else op.lease_id == reservation.lease_id


def leave(entry: Entry, lease_id: str) -> None:
    """Take this id out of the queue, and what is reserved for it back."""
    waiting = entry.waiting
    if waiting is None:
        return
    waiter = waiting.find(lease_id)
    if waiter is not None:
        waiting.remove(waiter)
    if waiting.reservation is not None and waiting.reservation.lease_id == lease_id:
        waiting.reservation = None


def tidy(entry: Entry, now: int, *, keep_waiting: bool = False) -> None:
    """Forget dead waiters and old tombstones."""
    waiting = entry.waiting
    if waiting is None:
        return
    waiting.tidy(now)
    if not (keep_waiting or waiting.queue or waiting.tombstones or waiting.reservation):
        entry.waiting = None
