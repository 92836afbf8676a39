"""What each operation does to a resource: the meaning of a lease, in one place.

The stores that run Python under their own lock (memory, SQLite) execute these rules; the others, whose decisions run
in a server, are tested against them. A rule is handed the table, the operation and ``now`` on the store's clock; the
caller holds whatever lock makes the table exclusive, and took ``now`` after it got that lock.

Liveness is derived, never swept: a lease is over once ``now`` reaches its expiry or its parent's, and the queue's
reservations follow from the moment at which the resource came free. So a dead holder or waiter costs no work, and a
store needs no timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lessor.core import queue
from lessor.core.clock import SECOND
from lessor.core.entry import Waiting
from lessor.core.lease import TOKEN_LIMIT, Closed
from lessor.core.ops import (
    Acquire,
    Event,
    EventKind,
    Granted,
    Held,
    Loss,
    Lost,
    NotHeld,
    Notice,
    Release,
    Released,
    Renew,
    Renewed,
    Revoke,
    Summons,
)
from lessor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lessor.core.entry import Entry
    from lessor.core.lease import Record
    from lessor.core.ops import Op, Outcome

TOMBSTONE_NS = 60 * SECOND
"""How long an abandoned id is remembered: longer than any request stays on its way."""
MAX_DEPTH = 8
"""How many leases may stand above one another."""


class Table(Protocol):
    """What the rules need of a store while it holds its lock."""

    floor: int
    """No token up to this one is granted: what the store knows of tokens whose entries it has forgotten."""
    wall_us: int
    events: list[Event]
    notices: list[Notice]

    def load(self, resource: str) -> Entry:
        """Return the entry, or a fresh one."""
        ...

    def save(self, entry: Entry) -> None:
        """Keep the entry."""
        ...

    def children(self, resource: str, token: int) -> Iterable[Entry]:
        """Return the entries whose parent is this lease."""
        ...


@runtime_checkable
class BulkTable(Table, Protocol):
    """A table that can end many leases at once: a session may have thousands."""

    def end_quiet_children(self, resource: str, token: int, now: int, kind: EventKind) -> None:
        """End all under this lease that nobody waits for and that have nothing under them, as `end` would one by one."""
        ...


def apply(table: Table, op: Op, now: int) -> Outcome:
    """Carry out one operation."""
    entry = table.load(op.resource)
    kind = type(op)
    if kind is Acquire:
        return _acquire(table, entry, op, now)  # type: ignore[arg-type]
    if kind is Renew:
        return _renew(table, entry, op, now)  # type: ignore[arg-type]
    if kind is Release:
        return _release(table, entry, op, now)  # type: ignore[arg-type]
    return revoke(table, entry, op, now)  # type: ignore[arg-type]


def record(table: Table, entry: Entry, now: int) -> Record | None:
    """Return the lease as people may see it, the last one where the resource is closed, or None where it is free."""
    expiry = expiry_of(table, entry)
    if entry.lease_id is not None and now < expiry:
        return entry.record(now, expiry)
    free_at = free_from(entry, expiry)
    return entry.record(now, free_at, closed_by(entry)) if now < free_at else None


def expiry_of(table: Table, entry: Entry, depth: int = 0) -> int:
    """Return when the lease really ends: its own expiry or, if sooner, the end of its parent."""
    if entry.parent is None or entry.lease_id is None or depth > MAX_DEPTH:
        return entry.expiry_ns
    parent = table.load(entry.parent)
    if parent.token != entry.parent_token or parent.lease_id is None:
        # Ending a lease ends its children in the same step, so the store has forgotten this parent: long over.
        return 0
    bound = expiry_of(table, parent, depth + 1)
    return bound if entry.ttl_ns == 0 else min(entry.expiry_ns, bound)


def free_from(entry: Entry, expiry: int) -> int:
    """Return when others may acquire what nobody holds; ``expiry`` is the effective one."""
    return expiry if entry.lease_id is None else expiry + entry.lock_delay_ns


def closed_by(entry: Entry) -> Closed:
    """Return what keeps everybody out of a resource that nobody holds and that isn't free yet."""
    return Closed.HOLD_AT_LEAST if entry.lease_id is None else Closed.LOCK_DELAY


def is_dead(entry: Entry, now: int, *, kept_ns: int = 0, table: Table | None = None) -> bool:
    """Whether nothing but its token is worth keeping, so that a store may forget the entry and raise its floor.

    Without the table, a lease that lasts as long as its parent counts as alive: its own expiry says nothing.
    """
    expiry = entry.expiry_ns
    if entry.parent is not None and entry.lease_id is not None and entry.ttl_ns == 0:
        if table is None:
            return False
        expiry = expiry_of(table, entry)
    over = max(expiry, entry.granted_ns) + entry.lock_delay_ns + entry.grace_ns + kept_ns
    waiting = entry.waiting
    return now >= over and (
        waiting is None
        or not (
            any(w.expiry_ns > now for w in waiting.queue)
            or any(until > now for until in waiting.tombstones.values())
            or (waiting.reservation is not None and waiting.reservation.until_ns > now)
        )
    )


# --- the four operations ------------------------------------------------------------------------------------------


def _acquire(table: Table, entry: Entry, op: Acquire, now: int) -> Granted | Held | Lost:
    if op.parent is not None:
        check_levels(table, op)
    waiting = entry.waiting
    if waiting is not None and waiting.tombstones.get(op.lease_id, 0) > now:
        return Lost(Loss.RELEASED)
    expiry = entry.expiry_ns if entry.parent is None else expiry_of(table, entry)
    if entry.lease_id is not None:
        if now < expiry:
            if entry.lease_id == op.lease_id:
                return Granted(entry.token, expiry - now, entry.state)
            return _challenge(table, entry, op, now, expiry)
        if entry.lease_id == op.lease_id:
            # Its own grant has run out: a request that was that late must not start a second turn by itself.
            return Lost(Loss.EXPIRED)
    free_at = free_from(entry, expiry)
    if now < free_at:
        return queue.wait(table, entry, op, now, by=entry.holder, free_at=free_at, closed=closed_by(entry))
    if waiting is None:
        return _grant(table, entry, op, now, ended_ns=expiry)
    reservation = queue.settle(table, entry, waiting, free_at, now, showing=op.lease_id)
    if reservation is not None and not queue.is_for(reservation, op):
        return queue.wait(table, entry, op, now, by="", free_at=reservation.until_ns)
    return _grant(table, entry, op, now, ended_ns=expiry, state=reservation.state if reservation else "")


def _challenge(table: Table, entry: Entry, op: Acquire, now: int, expiry: int) -> Held:
    """Answer whoever wants what somebody else holds and, where that was for longer than its soft limit, end it."""
    recover(table, entry, op, now, expiry)
    return queue.wait(table, entry, op, now, by=entry.holder, free_at=expiry)


def recover(table: Table, entry: Entry, op: Acquire, now: int, expiry: int) -> None:
    """If the asker wants that, end a live lease that was held for longer than its soft limit."""
    if op.recover and 0 < entry.soft_ns <= now - entry.granted_ns and not entry.revoked:
        _end_at_expiry(table, entry, now, expiry)


def _grant(table: Table, entry: Entry, op: Acquire, now: int, *, ended_ns: int, state: str = "") -> Granted | Lost:
    ttl = op.ttl_ns
    expiry = now + ttl
    if op.parent is not None:
        bound = parent_bound(table, op, now)
        if bound <= now:
            if entry.waiting is not None:
                table.save(entry)
            return Lost(Loss.EXPIRED)
        expiry = bound if ttl == 0 else min(expiry, bound)
    if entry.has_children:
        # What stood under the lease that ended before this one has ended with it, at that time.
        end_children(table, entry, now, ended_ns=ended_ns)
    token = max(entry.token, table.floor, op.seen_token) + 1
    token = max(token, table.wall_us)
    if token >= TOKEN_LIMIT:
        raise ConfigError(f"the next token, {token}, is not below 2^53: some clock was centuries ahead")
    fill(table, entry, op, now, token=token, expiry_ns=expiry, state=state)
    table.events.append(Event(EventKind.GRANTED, entry.resource, token, op.holder, table.wall_us, expiry - now))
    return Granted(token, expiry - now, state)


def fill(table: Table, entry: Entry, op: Acquire, now: int, *, token: int, expiry_ns: int, state: str = "") -> None:
    """Make the entry the lease of whoever asks here; ``state`` is what the one before has left for it."""
    entry.token = token
    entry.lease_id = op.lease_id
    entry.holder = op.holder
    entry.ttl_ns = op.ttl_ns
    entry.expiry_ns = expiry_ns
    entry.granted_ns = now
    entry.granted_us = entry.renewed_us = table.wall_us
    entry.renewals = 0
    entry.metadata = op.metadata
    entry.notify = op.notify
    entry.parent, entry.parent_token = op.parent or (None, 0)
    entry.soft_ns = op.soft_ns
    entry.grace_ns = op.grace_ns
    entry.lock_delay_ns = op.lock_delay_ns
    entry.hold_at_least_ns = op.hold_at_least_ns
    entry.ended = None
    entry.revoked = False
    entry.has_children = False
    entry.state = state
    entry.children_ended = 0
    if entry.waiting is not None:
        queue.leave(entry, op.lease_id)
        entry.waiting.reservation = None
        queue.tidy(entry, now)
    table.save(entry)


def _renew(table: Table, entry: Entry, op: Renew, now: int) -> Renewed | Lost:
    if entry.lease_id != op.lease_id:
        if entry.token == op.token and entry.ended is not None:
            return Lost(Loss(entry.ended))
        return Lost(Loss.TAKEN if entry.token > op.token else Loss.EXPIRED)
    expiry = entry.expiry_ns if entry.parent is None else expiry_of(table, entry)
    if now >= expiry and not in_grace(entry, expiry, now):
        return Lost(Loss.EXPIRED)
    if entry.revoked:
        return Lost(Loss.REVOKED, max(0, expiry - now))
    extended = max(entry.expiry_ns, now + op.ttl_ns)  # never shortened: an earlier promise may be relied upon
    if entry.parent is not None:
        parent = table.load(entry.parent)
        bound = expiry_of(table, parent)
        if parent.token != entry.parent_token or bound <= now:
            return Lost(Loss.EXPIRED)
        extended = bound if entry.ttl_ns == 0 else min(extended, bound)
    entry.expiry_ns = extended
    if entry.ttl_ns:
        entry.ttl_ns = max(entry.ttl_ns, op.ttl_ns)  # what a store that lost its clock must wait out
    entry.renewed_us = table.wall_us
    entry.renewals += 1
    table.save(entry)
    return Renewed(extended - now, entry.children_ended)


def _release(table: Table, entry: Entry, op: Release, now: int) -> Released | NotHeld:
    expiry = entry.expiry_ns if entry.parent is None else expiry_of(table, entry)
    if op.abandon:
        # Whatever has become of the id so far: a copy of the request that asked for it may still be on its way.
        if entry.waiting is None:
            entry.waiting = Waiting()
        entry.waiting.bury(op.lease_id, now + TOMBSTONE_NS)
        queue.tidy(entry, now)
    if entry.lease_id == op.lease_id and now < expiry:
        free_at = max(now, entry.granted_ns + entry.hold_at_least_ns) if entry.hold_at_least_ns else now
        end(table, entry, now, EventKind.RELEASED, free_at=free_at, to=op)
        return Released(free_at - now)
    waiting = entry.waiting
    if waiting is not None and waiting.find(op.lease_id) is not None:
        queue.leave_and_call(table, entry, waiting, op, now, free_at=free_from(entry, expiry))
        return NotHeld("was waiting")
    if entry.lease_id == op.lease_id:
        entry.grace_ns = 0  # it is not wanted any more: a renewal still on its way must not bring it back
        table.save(entry)
    elif op.abandon:
        table.save(entry)
    return NotHeld()


def revoke(table: Table, entry: Entry, op: Revoke, now: int) -> Released | NotHeld | Held:
    """End the lease at the expiry already promised or, by force, now; or open a closed resource."""
    expiry = expiry_of(table, entry)
    free_at = free_from(entry, expiry)
    if now >= free_at or (op.token is not None and op.token != entry.token):
        return NotHeld()
    if entry.lease_id is None or now >= expiry:
        return _reopen(table, entry, op, now, free_at)
    if op.force:
        _tell_of_the_end(table, entry)
        end(table, entry, now, EventKind.REVOKED, free_at=now)
        return Released()
    _end_at_expiry(table, entry, now, expiry)
    return Released(expiry - now)


def _reopen(table: Table, entry: Entry, op: Revoke, now: int, free_at: int) -> Released | Held:
    """Open a resource that nobody holds. A lock delay protects what can't check tokens: it takes force to end it."""
    closed = closed_by(entry)
    if closed is Closed.LOCK_DELAY and not op.force:
        return Held(entry.holder, entry.token, free_at - now, 0, closed=closed)
    queue.reopen(table, entry, now, earlier_ns=free_at - now)
    end(table, entry, now, EventKind.REVOKED, free_at=now)
    return Released()


# --- endings ------------------------------------------------------------------------------------------------------


def end(table: Table, entry: Entry, now: int, kind: EventKind, *, free_at: int, to: Release | None = None) -> None:
    """End a live lease, and in the same step whatever stands under it. ``to``: what says who is to have it next."""
    if entry.has_children:
        end_children(table, entry, now, ended_ns=now, kind=kind)
    entry.lease_id = None
    entry.expiry_ns = free_at
    entry.ended = str(kind)
    entry.has_children = False
    entry.notify = ""
    entry.state = ""
    if to is not None and to.successor:
        queue.hand_over(table, entry, to, now, free_at=free_at)
    elif entry.waiting is not None:
        queue.call_next(table, entry, now)
    table.save(entry)
    table.events.append(Event(kind, entry.resource, entry.token, entry.holder, table.wall_us, free_at - now))


def _end_at_expiry(table: Table, entry: Entry, now: int, expiry: int) -> None:
    """Renew a live lease no more, so that it ends as promised, and tell its holder."""
    _tell_of_the_end(table, entry)
    entry.revoked = True
    if entry.ttl_ns == 0:
        # It would last as long as its parent goes on; from here on it has the time that was promised, and no more.
        entry.ttl_ns, entry.expiry_ns = expiry - now, expiry
    table.save(entry)
    event = Event(EventKind.REVOKED, entry.resource, entry.token, entry.holder, table.wall_us, expiry - now)
    table.events.append(event)


def _tell_of_the_end(table: Table, entry: Entry) -> None:
    """Call the holder whose lease somebody else ends; and count it in all leases above.

    One that lasts as long as its parent is not renewed by itself, nor is a parent that does so too; so whichever of
    them is renewed tells, by the count, that something under it is over.
    """
    if entry.notify:
        assert entry.lease_id is not None
        table.notices.append(Notice(entry.notify, Summons.REVOKED, entry.resource, entry.lease_id))
    below = entry
    while below.parent is not None:
        above = table.load(below.parent)
        if above.token != below.parent_token or above.lease_id is None:
            return
        above.children_ended += 1
        table.save(above)
        below = above


def end_children(table: Table, entry: Entry, now: int, *, ended_ns: int, kind: EventKind = EventKind.EXPIRED) -> None:
    """End what stands under a lease that is over."""
    if kind is not EventKind.EXPIRED and isinstance(table, BulkTable):
        table.end_quiet_children(entry.resource, entry.token, now, kind)
    for child in table.children(entry.resource, entry.token):
        if child.lease_id is None:
            continue
        over = ended_ns
        if kind is not EventKind.EXPIRED and child.lock_delay_ns:
            over = expiry_of(table, child)
        if kind is EventKind.EXPIRED or over <= now < free_from(child, over):  # a lock delay goes on
            child.expiry_ns = over if child.ttl_ns == 0 else min(child.expiry_ns, over)
            child.parent, child.parent_token = None, 0
            child.grace_ns = 0  # it stood under a lease that is over: no renewal brings it back
            table.save(child)
        else:
            end(table, child, now, kind, free_at=now)


def check_levels(table: Table, op: Acquire) -> None:
    """Refuse a parent that stands under the resource itself, or too deep."""
    assert op.parent is not None
    name, token = op.parent
    if name == op.resource:
        raise ConfigError(f"{op.resource!r} can't stand under itself")
    above = table.load(name)
    depth = 1
    while above.parent is not None and above.token == token and above.lease_id is not None:
        if depth >= MAX_DEPTH or above.parent == op.resource:
            raise ConfigError(f"{op.resource!r} can't stand under {name!r}: a cycle, or more than {MAX_DEPTH} levels")
        token = above.parent_token
        above = table.load(above.parent)
        depth += 1


def parent_bound(table: Table, op: Acquire, now: int) -> int:
    """Return until when the parent lasts (0: it doesn't), and note there that it has a child."""
    assert op.parent is not None
    name, token = op.parent
    parent = table.load(name)
    if parent.token != token or parent.lease_id is None:
        return 0
    bound = expiry_of(table, parent)
    if bound <= now:
        return 0
    if not parent.has_children:
        parent.has_children = True
        table.save(parent)
    return bound


def in_grace(entry: Entry, expiry: int, now: int) -> bool:
    """Whether a lease that ran out may still be renewed: nobody has had it in between, or wants it."""
    waiting = entry.waiting
    wanted = waiting is not None and (waiting.reservation is not None or any(w.expiry_ns > now for w in waiting.queue))
    return now < expiry + entry.grace_ns and not wanted and entry.parent is None
