"""The queue for a resource as one acceptor keeps it. What several of them know of it is put together in `merging`.

Acceptors may see waiters come in different orders. So each waiter gets a ticket: at first the next one that each
acceptor has, and from then on the highest that a majority gave. Among equal priorities, turns go by tickets.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from lessor.core import queue
from lessor.core.paxos.marks import mark
from lessor.core.paxos.messages import HeldBy, Place

if TYPE_CHECKING:
    from lessor.core.entry import Waiter, Waiting
    from lessor.core.lease import Closed
    from lessor.core.paxos.acceptor import Acceptor
    from lessor.core.paxos.messages import Accept
    from lessor.core.paxos.slot import Slot


def wait(
    acceptor: Acceptor, slot: Slot, item: Accept, now: int, *, by: str, free_at: int, closed: Closed | None = None
) -> HeldBy:
    """Answer that somebody else has it and, if asked to, keep or refresh the asker's place in the queue."""
    held = queue.wait(acceptor, slot, item.op, now, by=by, free_at=free_at, closed=closed)
    position, ticket = held.position, 0
    if item.op.queue and not held.refused and slot.waiting is not None:
        place = slot.waiting.find(item.op.lease_id)
        assert place is not None
        place.since_us = item.since_us or place.since_us
        ticket = _draw(slot.waiting, place, item.ticket)
        position = max(slot.waiting.position(place), 0 if by else 1)
    floor = acceptor.floor_of(slot)
    return HeldBy(held.by, held.token, held.remaining_ns, position, ticket, floor, held.refused, held.closed)


def places(slot: Slot, now: int) -> tuple[Place, ...]:
    """Return who waits here."""
    waiting = slot.waiting
    if waiting is None:
        return ()
    return tuple([Place(mark(w.lease_id), w.holder, w.since_us, w.priority, w.ticket) for w in waiting.live(now)])


def _draw(waiting: Waiting, place: Waiter, ticket: int) -> int:
    """Return the asker's ticket: the majority's, where it has one already, or else the next one here."""
    if not place.ticket or ticket not in {0, place.ticket}:
        waiting.remove(place)
        place.ticket = ticket or waiting.last_ticket + 1
        waiting.last_ticket = max(waiting.last_ticket, place.ticket)
        waiting.insert(bisect_right(waiting.queue, _turn(place), key=_turn), place)
    return place.ticket


def _turn(waiter: Waiter) -> tuple[int, int]:
    return -waiter.priority, waiter.ticket
