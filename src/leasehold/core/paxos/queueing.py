"""The queue for a resource as one acceptor keeps it. What several of them know of it is put together in `merging`.

Acceptors may see waiters come in different orders. So each waiter gets a ticket: at first the next one that each
acceptor has, and from then on the highest that a majority gave. Among equal priorities, turns go by tickets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.core import queue
from leasehold.core.paxos.marks import mark
from leasehold.core.paxos.messages import HeldBy, Place

if TYPE_CHECKING:
    from leasehold.core.entry import Waiting
    from leasehold.core.paxos.acceptor import Acceptor
    from leasehold.core.paxos.messages import Accept
    from leasehold.core.paxos.slot import Slot


def wait(acceptor: Acceptor, slot: Slot, item: Accept, now: int, *, by: str, free_at: int) -> HeldBy:
    """Answer that somebody else has it and, if asked to, keep or refresh the asker's place in the queue."""
    held = queue.wait(acceptor, slot, item.op, now, by=by, free_at=free_at)
    position, ticket = held.position, 0
    if item.op.queue and not held.refused and slot.waiting is not None:
        ticket = _draw(slot.waiting, item)
        places = [waiter.lease_id for waiter in slot.waiting.queue]
        position = max(places.index(item.op.lease_id), 0 if by else 1)
    floor = acceptor.floor_of(slot)
    return HeldBy(held.by, held.token, held.remaining_ns, position, ticket, floor, held.refused)


def places(slot: Slot, now: int) -> tuple[Place, ...]:
    """Return who waits here."""
    waiting = slot.waiting
    if waiting is None:
        return ()
    return tuple([Place(mark(w.lease_id), w.holder, w.since_us, w.priority, w.ticket) for w in waiting.live(now)])


def _draw(waiting: Waiting, item: Accept) -> int:
    """Return the asker's ticket: the majority's, where it has one already, or else the next one here."""
    place = next(waiter for waiter in waiting.queue if waiter.lease_id == item.op.lease_id)
    place.since_us = item.since_us or place.since_us
    place.ticket = item.ticket or place.ticket or max(waiter.ticket for waiter in waiting.queue) + 1
    waiting.queue.sort(key=lambda waiter: (-waiter.priority, waiter.ticket))
    return place.ticket
