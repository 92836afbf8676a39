"""One of the 3 or 5 that keep the leases. Alone it promises nothing: a lease is what a majority of them took in.

Three rules carry the safety, and each is a small method here:

- a live record of another owner is never replaced, whatever the number (`accept`);
- a record is installed only with a number above all that was promised before (`may_install`), and what was promised
  is on the disk before anybody hears of it (`reserve`, and `Answer.persist`);
- a record goes by its expiry, by the exact release of its owner, or by force, and is never shortened.

Times are on the acceptor's own clock, which must never be fast.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from lessor.core import queue, rules
from lessor.core.clock import SECOND
from lessor.core.entry import Waiting
from lessor.core.lease import TOKEN_LIMIT
from lessor.core.ops import Event, EventKind, Held, Loss, NotHeld, Release
from lessor.core.paxos import queueing
from lessor.core.paxos.ballots import DAY_US, SECOND_US
from lessor.core.paxos.messages import (
    Accept,
    Ack,
    Drop,
    Dropped,
    End,
    Extend,
    Gone,
    HeldBy,
    Look,
    Low,
    Nothing,
    Prepare,
    Promised,
    Push,
    Refused,
    Reply,
    Scan,
    Seed,
    Seen,
    Withdraw,
)
from lessor.core.paxos.riders import missing_or_more
from lessor.core.paxos.slot import Slot
from lessor.core.timing import UNSLEWED_DRIFT
from lessor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lessor.core.entry import Entry, Reservation
    from lessor.core.lease import Record
    from lessor.core.ops import Acquire, Notice, Renew
    from lessor.core.paxos.messages import Item, Request, SeedQuery, Verdict

KEEP_AHEAD_US = 10 * SECOND_US
"""The high-water mark is raised when it is less than this ahead of the wall clock, so no grant waits for the disk."""
RAISE_BY_US = 30 * SECOND_US
"""How far ahead it is raised."""
REPLY_ROOM = 4 * 1024 * 1024
"""What one reply may show, in bytes or so. What is left over has to be asked for again."""
LOOK_COSTS = 20
"""To look at a lease under another one counts for so many bytes, whether or not it is shown."""


class Config(NamedTuple):
    """What an acceptor is told at its start."""

    id: str
    max_ttl_ns: int = 60 * SECOND
    max_lock_delay_ns: int = 60 * SECOND
    drift: float = UNSLEWED_DRIFT

    @property
    def longest_span_ns(self) -> int:
        """For how long a record may keep others out at most."""
        return self.max_ttl_ns + self.max_lock_delay_ns


class Durable(NamedTuple):
    """What is on the disk."""

    high_water: int
    """At least every number that was ever promised here and that anybody may have heard of."""
    span_ns: int
    """The longest time for which anybody was kept out here: for so long it is silent after a crash."""


class Answer(NamedTuple):
    """What to do about a request: first write and sync ``persist``, tell the acceptor, and only then send the rest."""

    reply: Reply | None
    persist: Durable | None = None
    push: Push | None = None


SILENCE = Answer(None)


class Acceptor:
    """The leases of one node. One thread drives it; `starting` makes it."""

    watched = True
    """Whether anybody wants to hear what happens."""

    def __init__(self, config: Config, durable: Durable, incarnation: int, *, silent_until_ns: int = 0) -> None:
        self.config = config
        self.durable = durable
        self.incarnation = incarnation
        self.silent_until_ns = silent_until_ns
        self.seeded = True
        """False while a node that lost its disk has not heard from the others how high the numbers may have gone."""
        self.floor = 0
        """No number up to this one is taken for any resource."""
        self.wall_us = 0
        self.ceiling = durable.high_water + DAY_US
        """No number above this one, or much above it, is taken for any resource: see `_move_on` and `refusal`."""
        self._lead_us: int | None = None
        self.events: list[Event] = []
        self.notices: list[Notice] = []
        self.slots: dict[str, Slot] = {}
        self._families: dict[str, set[str]] = {}
        self._rounds: deque[str] = deque()
        self._listed: tuple[str, list[str]] = ("", [])
        """The names under the prefix that is being looked through: to sort them anew for each page would take long."""
        self._reserved = 0
        self._span_ns = 0
        self.room = REPLY_ROOM
        """How much of it is left in the reply that is being made."""
        self._rules: dict[type, Callable[[Any, int], Verdict]] = {
            Accept: self.accept,
            Extend: self.extend,
            Drop: self.drop,
            Withdraw: self.withdraw,
            Prepare: self.prepare,
            End: self.end,
            Look: self.look,
            Scan: self.scan,
        }

    # --- driving it -----------------------------------------------------------------------------------------------

    def is_silent(self, now: int) -> bool:
        """Whether nothing may be answered yet: what was known before the crash may still be relied upon."""
        return now < self.silent_until_ns or not self.seeded

    def handle(self, request: Request, now: int, wall_us: int) -> Answer:
        """Carry out the items in order, and return what to write and what to send."""
        if self.is_silent(now):
            return SILENCE
        self.wall_us = wall_us
        self._move_on(now, wall_us)
        self.room = REPLY_ROOM
        verdicts = tuple([self._judge(item, now) for item in request.items])
        reply = Reply(request.serial, self.config.id, self.incarnation, verdicts)
        return Answer(reply, self._unwritten(), self._push())

    def _move_on(self, now: int, wall_us: int) -> None:
        """Say where the numbers are by now, and so how high they may go.

        That is where the wall clock is, or where the numbers were at the start and the time since; whichever is higher,
        and never back. Not where clients have taken them meanwhile: one could lead them on by a day, again and again.
        """
        elapsed_us = now // 1000
        lead_us = self.durable.high_water - elapsed_us if self._lead_us is None else self._lead_us
        self._lead_us = max(lead_us, wall_us - elapsed_us)
        self.ceiling = self._lead_us + elapsed_us + DAY_US

    def _judge(self, item: Item, now: int) -> Verdict:
        return self._rules[type(item)](item, now)

    def seed(self, query: SeedQuery, now: int) -> Seed | None:
        """Tell a node that lost its disk how high the numbers may have gone, and for how long a lease may last."""
        if self.is_silent(now):
            return None
        span = max(self.durable.span_ns, self.config.longest_span_ns)
        return Seed(query.serial, self.config.id, self.durable.high_water, span)

    def top_up(self, wall_us: int) -> Durable | None:
        """Return what to write so that no grant has to wait for it. To be asked every few seconds."""
        if not self.seeded:
            return None  # a disk with a mark on it must not look like one that was never lost
        if self.durable.high_water >= wall_us + KEEP_AHEAD_US:
            return None
        return self.durable._replace(high_water=wall_us + RAISE_BY_US)

    def persisted(self, durable: Durable) -> None:
        """Take note that this is on the disk, and synced. Writes may be reported in any order."""
        self.durable = Durable(
            max(self.durable.high_water, durable.high_water), max(self.durable.span_ns, durable.span_ns)
        )

    def _unwritten(self) -> Durable | None:
        n, span, durable = self._reserved, self._span_ns, self.durable
        self._reserved = self._span_ns = 0
        if n <= durable.high_water and span <= durable.span_ns:
            return None
        ahead = max(n, self.wall_us) + RAISE_BY_US if n > durable.high_water else durable.high_water
        return Durable(ahead, max(span, durable.span_ns))

    def _push(self) -> Push | None:
        if not self.events and not self.notices:
            return None
        named = {event.resource for event in self.events} | {notice.resource for notice in self.notices}
        floor = max(self.floor_of(self.load(resource)) for resource in named)
        push = Push(self.config.id, self.incarnation, floor, tuple(self.events), tuple(self.notices))
        self.events, self.notices = [], []
        return push

    # --- the rules ------------------------------------------------------------------------------------------------

    def accept(self, item: Accept, now: int) -> Verdict:
        """Take a lease in."""
        op, n = item.op, item.n
        slot = self.load(op.resource)
        why = self.refusal(slot, n, op.ttl_ns, op.lock_delay_ns, op.hold_at_least_ns)
        why = why or ("" if op.parent is None else self._misplaced(op))
        if why:
            return Refused(why)
        waiting = slot.waiting
        if waiting is not None and waiting.tombstones.get(op.lease_id, 0) > now:
            return Gone(Loss.RELEASED)
        expiry = self.expiry(slot)
        mine = slot.lease_id == op.lease_id
        if self.is_live(slot, now):
            if not mine:
                rules.recover(self, slot, op, now, expiry)
                return queueing.wait(self, slot, item, now, by=slot.holder, free_at=expiry)
            verdict = self._extended(slot, n, item.token or n, op.ttl_ns, now)
            # It may be asked again, with a higher number, by an owner that hasn't got it yet.
            return verdict._replace(state=slot.state, after=slot.after) if isinstance(verdict, Ack) else verdict
        if mine and not item.token and n <= slot.n:
            return Gone(Loss.EXPIRED)  # so late a request, or a copy of it, must not start a second turn by itself
        free_at = expiry if mine else rules.free_from(slot, expiry)
        if now < free_at:
            closed = rules.closed_by(slot)
            return queueing.wait(self, slot, item, now, by=slot.holder, free_at=free_at, closed=closed)
        reservation = None
        if waiting is not None and not item.token:
            reservation = queue.settle(self, slot, waiting, free_at, now, showing=op.lease_id)
            if reservation is not None and not queue.is_for(reservation, op):
                return queueing.wait(self, slot, item, now, by="", free_at=reservation.until_ns)
        if not self.may_install(slot, n, op.lease_id):
            return Low(self.floor_of(slot))
        return self._installed(slot, item, now, reservation)

    def may_install(self, slot: Slot, n: int, lease_id: str) -> bool:
        """Whether a new record may be made with this number: it is above all promises, or is the promise itself."""
        return n > self.floor_of(slot) or (n, lease_id) == (slot.promised_n, slot.promised_by)

    def prepare(self, item: Prepare, now: int) -> Verdict:
        """Promise to take nobody with a lower number."""
        slot = self.load(item.resource)
        why = self.refusal(slot, item.n)
        if why:
            return Refused(why)
        if self.is_live(slot, now) and slot.lease_id != item.lease_id:
            left = self.expiry(slot) - now
            return HeldBy(slot.holder, slot.token, left, 0, 0, self.floor_of(slot))
        if item.n <= self.floor_of(slot):
            return Low(self.floor_of(slot))
        self.promise(slot, item.n, item.lease_id)
        self.save(slot)
        return Promised()

    def extend(self, item: Extend, now: int) -> Verdict:
        """Renew a live record."""
        op = item.op
        slot = self.load(op.resource)
        why = self.refusal(slot, item.n, op.ttl_ns, slot.lock_delay_ns)
        if why:
            return Refused(why)
        expiry = self.expiry(slot)
        if slot.lease_id != op.lease_id or not (now < expiry or rules.in_grace(slot, expiry, now)):
            return Gone(_reason(slot, op), 0, self.floor_of(slot))
        if item.riders is not None and self.room <= 0:
            return Refused("too much rides on the leases of one request: ask for fewer at once")
        verdict = self._extended(slot, item.n, op.token, op.ttl_ns, now)
        if isinstance(verdict, Ack) and (item.riders is not None or slot.children_ended):
            here = None if item.riders is None else missing_or_more(self, slot, item.riders)
            return verdict._replace(riders=here, ended=slot.children_ended)
        return verdict

    def withdraw(self, item: Withdraw, now: int) -> Verdict:
        """Undo an attempt that came to nothing."""
        slot = self.load(item.resource)
        why = self.refusal(slot, item.n)
        if why:
            return Refused(why)
        had = slot.lease_id == item.lease_id and slot.n <= item.n and self.is_live(slot, now)
        self.close(slot, item.n, item.lease_id)
        if had:
            slot.give_up_inheritance()
            rules.end(self, slot, now, EventKind.RELEASED, free_at=now)
        elif item.leave and slot.waiting is not None:
            free_at = rules.free_from(slot, self.expiry(slot))
            op = Release(item.resource, item.lease_id)
            queue.leave_and_call(self, slot, slot.waiting, op, now, free_at=free_at)
        return Dropped() if had else Nothing()

    def drop(self, item: Drop, now: int) -> Verdict:
        """End a lease that its owner is done with, or take the owner out of the queue."""
        op = item.op
        slot = self.load(op.resource)
        why = self.refusal(slot, item.n)
        if why:
            return Refused(why)
        own = slot.n if slot.lease_id == op.lease_id else 0
        n = item.n or max(own, slot.promised_n if slot.promised_by == op.lease_id else 0)
        expiry = self.expiry(slot)
        if op.abandon:
            if slot.waiting is None:
                slot.waiting = Waiting()
            slot.waiting.bury(op.lease_id, now + rules.TOMBSTONE_NS)
            queue.tidy(slot, now)
            self.save(slot)
        self.close(slot, n, op.lease_id)
        if slot.lease_id == op.lease_id and now < expiry and slot.n <= n:
            free_at = max(now, slot.granted_ns + slot.hold_at_least_ns) if slot.hold_at_least_ns else now
            rules.end(self, slot, now, EventKind.RELEASED, free_at=free_at, to=op)
            return Dropped(free_at - now)
        waiting = slot.waiting
        if waiting is not None and waiting.find(op.lease_id) is not None:
            queue.leave_and_call(self, slot, waiting, op, now, free_at=rules.free_from(slot, expiry))
            return Nothing("was waiting")
        if slot.lease_id == op.lease_id:
            slot.grace_ns = 0  # it is not wanted any more: a renewal still on its way must not bring it back
            self.save(slot)
        return Nothing()

    def close(self, slot: Slot, n: int, lease_id: str) -> None:
        """See to it that nothing this owner has sent so far is taken in any more."""
        if n > self.floor_of(slot) or (slot.promised_by == lease_id and slot.promised_n <= n):
            slot.promised_n, slot.promised_by = n, ""
            self.reserve(n)
            self.save(slot)

    def end(self, item: End, now: int) -> Verdict:
        """Revoke whoever has it; not a later lease than the one that is meant."""
        slot = self.load(item.op.resource)
        if item.op.token is not None and slot.token > item.op.token:
            return Nothing()
        outcome = rules.revoke(self, slot, item.op._replace(token=None), now)
        if isinstance(outcome, Held):
            return HeldBy(
                outcome.by, outcome.token, outcome.remaining_ns, 0, 0, self.floor_of(slot), closed=outcome.closed
            )
        if isinstance(outcome, NotHeld):
            return Nothing(outcome.reason)
        if item.op.force:
            slot.promised_by = ""  # a copy of the request that took it in must not bring it back
        return Dropped(outcome.free_in_ns)

    def look(self, item: Look, now: int) -> Verdict:
        """Show who holds this."""
        if self.room <= 0:
            return Seen((), more=True)
        slot = self.load(item.resource)
        record = self._show(slot, now)
        return Seen(() if record is None else (record,), queue=queueing.places(slot, now))

    def scan(self, item: Scan, now: int) -> Verdict:
        """Show what is held under the prefix."""
        if self.room <= 0:
            return Seen((), more=True)
        prefix, names = self._listed
        if not item.after or prefix != item.prefix or not names:
            names = sorted([name for name in self.slots if name.startswith(item.prefix)])
            self._listed = (item.prefix, names)
            self.room -= min(5 * len(self.slots), REPLY_ROOM // 2)
        found: list[Record] = []
        for at in range(bisect_right(names, item.after), len(names)):
            slot = self.slots.get(names[at])
            record = None if slot is None else self._show(slot, now)
            if record is not None:
                found.append(record)
                if len(found) > item.limit or self.room <= 0:
                    return Seen(tuple(found[: item.limit]), more=True)
        self._listed = ("", [])
        return Seen(tuple(found))

    def _show(self, slot: Slot, now: int) -> Record | None:
        """Return the record for people, and take note of the room that it takes."""
        record = rules.record(self, slot, now)
        self.room -= 50 if record is None and slot.waiting is None else _size(slot)
        return record

    # --- what the rules are made of -------------------------------------------------------------------------------

    def floor_of(self, slot: Slot) -> int:
        """Return the number that a new owner has to exceed."""
        return max(self.floor, slot.promised_n)

    def expiry(self, slot: Slot) -> int:
        """Return when the record ends: its own time or, if sooner, its parent's."""
        return slot.expiry_ns if slot.parent is None else rules.expiry_of(self, slot)

    def is_live(self, slot: Slot, now: int) -> bool:
        """Whether somebody has it."""
        return slot.lease_id is not None and now < self.expiry(slot)

    def refusal(self, slot: Slot, n: int, ttl_ns: int = 0, lock_delay_ns: int = 0, hold_ns: int = 0) -> str:
        """Say why this can't be had from any acceptor with these settings; empty: it can."""
        longest = self.config.max_ttl_ns
        if ttl_ns > longest or hold_ns > longest:
            asked = max(ttl_ns, hold_ns) / SECOND
            return f"the TTL is {asked:.6g} s, and {longest / SECOND:.6g} s are the most here: see the nodes' --max-ttl"
        if lock_delay_ns > self.config.max_lock_delay_ns:
            most = self.config.max_lock_delay_ns / SECOND
            return f"the lock delay is {lock_delay_ns / SECOND:.6g} s, and {most:.6g} s are the most here: see the nodes' --max-ttl"
        if n <= self.ceiling and n < TOKEN_LIMIT:
            return ""
        # A little above the floor is always possible, or who has driven that up to the ceiling would have shut all out.
        highest = max(self.ceiling, min(self.floor_of(slot) + SECOND_US, self.ceiling + DAY_US))
        if n > highest or n >= TOKEN_LIMIT:
            ahead = n - self.ceiling + DAY_US
            return f"the number is {ahead / DAY_US:.1f} days ahead of this node's: some clock is wrong"
        return ""

    def promise(self, slot: Slot, n: int, lease_id: str) -> None:
        """Remember the highest number, and whose it is."""
        if n > slot.promised_n:
            slot.promised_n, slot.promised_by = n, lease_id
        self.reserve(n)

    def reserve(self, n: int) -> None:
        """See to it that the disk has this number before anybody hears of it."""
        self._reserved = max(self._reserved, n)

    def _installed(self, slot: Slot, item: Accept, now: int, reservation: Reservation | None) -> Verdict:
        op = item.op
        expiry = now + op.ttl_ns
        if op.parent is not None:
            bound = rules.parent_bound(self, op, now)
            if bound <= now or (op.ttl_ns == 0 and self.ends_apart(op.parent[0])):
                return Gone(Loss.EXPIRED)
            expiry = bound if op.ttl_ns == 0 else min(expiry, bound)
        if slot.has_children:
            # With the same token too: here it had run out, and what is still wanted under it is handed out again.
            rules.end_children(self, slot, now, ended_ns=self.expiry(slot))
        state = slot.take_on(reservation, self.floor)
        token = item.token or item.n
        rules.fill(self, slot, op, now, token=token, expiry_ns=expiry, state=state)
        slot.n = item.n
        self.promise(slot, item.n, op.lease_id)
        lasts = expiry - now
        if op.parent is not None and op.lock_delay_ns:
            lasts = self.config.max_ttl_ns  # its parent's renewals lengthen it without a word here
        self._span_ns = max(self._span_ns, lasts + op.lock_delay_ns, op.hold_at_least_ns)
        self._enlist(slot)
        if not item.token:
            self._tell_granted(slot, expiry - now)
        return Ack(expiry - now, extended=False, state=state, after=slot.after)

    def _extended(self, slot: Slot, n: int, token: int, ttl_ns: int, now: int) -> Verdict:
        expiry = self.expiry(slot)
        if slot.revoked or (slot.ttl_ns == 0 and self.ends_apart(slot.parent)):
            return Gone(Loss.REVOKED, max(0, expiry - now), self.floor_of(slot))
        if n < slot.n:
            return Low(max(slot.n, self.floor_of(slot)))
        extended = self.extension(slot, ttl_ns, now)
        if slot.parent is not None:
            bound = rules.expiry_of(self, self.load(slot.parent))
            extended = bound if slot.ttl_ns == 0 else min(extended, bound)
            self._enlist(slot)  # its parent may have been forgotten here, and be back
        slot.expiry_ns = extended
        if slot.ttl_ns:
            slot.ttl_ns = max(slot.ttl_ns, ttl_ns)
        slot.n = n
        if slot.token < token <= n:  # its owner had to begin again, with a higher number, before it got its lease
            slot.token = token
            self._tell_granted(slot, extended - now)
        else:
            slot.renewals += 1
            slot.renewed_us = self.wall_us
        self.promise(slot, n, slot.lease_id or "")
        self._span_ns = max(self._span_ns, extended - now + slot.lock_delay_ns)
        return Ack(extended - now, extended=True)

    def ends_apart(self, parent: str | None) -> bool:
        """Whether what rides under this lease ends here before its root does, since one in between is revoked.

        Its owner counts an acceptor that has it for as long as the root lasts there.
        """
        for _ in range(rules.MAX_DEPTH):
            if parent is None:
                break
            above = self.load(parent)
            if above.revoked or above.ttl_ns:  # the root, unless it is revoked: then it has a time, and a parent
                return bool(above.revoked) and above.parent is not None
            parent = above.parent
        return False

    def extension(self, slot: Slot, ttl_ns: int, now: int) -> int:
        """Return until when a record lasts that is renewed: never shorter, for an earlier promise is relied upon."""
        return max(slot.expiry_ns, now + ttl_ns)

    def _tell_granted(self, slot: Slot, ttl_ns: int) -> None:
        if not self.watched:
            return
        event = Event(EventKind.GRANTED, slot.resource, slot.token, slot.holder, self.wall_us, ttl_ns)
        self.events.append(event)

    def _misplaced(self, op: Acquire) -> str:
        try:
            rules.check_levels(self, op)
        except ConfigError as error:
            return str(error)
        return ""

    # --- memory ---------------------------------------------------------------------------------------------------

    def load(self, resource: str) -> Slot:
        """Return the slot, or a fresh one."""
        return self.slots.get(resource) or Slot(resource)

    def save(self, entry: Entry) -> None:
        """Keep the slot."""
        if entry.resource not in self.slots:
            assert isinstance(entry, Slot)
            self.slots[entry.resource] = entry
            self._rounds.append(entry.resource)

    def adopt(self, slot: Slot) -> None:
        """Keep a slot that comes from before a shutdown."""
        self.save(slot)
        if slot.parent is not None:
            self._families.setdefault(slot.parent, set()).add(slot.resource)

    def _enlist(self, slot: Slot) -> None:
        """Count a lease among what stands under its parent."""
        if slot.parent is not None:
            self.load(slot.parent).has_children = True
            self._families.setdefault(slot.parent, set()).add(slot.resource)

    def children(self, resource: str, token: int) -> Iterable[Slot]:
        """Return the slots whose parent is this lease, by name."""
        return sorted(self.family(resource, token), key=lambda slot: slot.resource)

    def family(self, resource: str, token: int) -> list[Slot]:
        """Return the slots whose parent is this lease, in no order. To look at all of them takes time, and so room."""
        names = self._families.get(resource)
        if names is None:
            return []
        self.room -= LOOK_COSTS * len(names)
        found = [slot for name in names if (slot := self.slots.get(name)) is not None and slot.parent == resource]
        if len(found) < len(names):  # those that ran out with their parent stand under nothing any more
            self._families[resource] = {slot.resource for slot in found}
        return [slot for slot in found if slot.parent_token == token]

    def collect(self, now: int, at_most: int = 1000) -> int:
        """Look at some slots, and forget those that matter no more. To be called now and then; returns how many went."""
        gone = 0
        for _ in range(min(at_most, len(self._rounds))):
            name = self._rounds.popleft()
            slot = self.slots[name]
            if rules.is_dead(slot, now, table=self):
                self.forget(slot)
                gone += 1
            else:
                self._rounds.append(name)
        return gone

    def forget(self, slot: Slot) -> None:
        """Forget a slot; what it promised is promised for all from here on."""
        self.floor = max(self.floor, slot.promised_n)
        if slot.has_children:
            ended = self.expiry(slot)
            rules.end_children(self, slot, ended, ended_ns=ended)  # or nobody would know when their lock delays began
        del self.slots[slot.resource]
        self._families.pop(slot.resource, None)
        siblings = self._families.get(slot.parent) if slot.parent is not None else None
        if siblings is not None:
            siblings.discard(slot.resource)


def _size(slot: Slot) -> int:
    """Return how much room a record takes, with all who wait."""
    queue = slot.waiting.queue if slot.waiting is not None else ()
    return 200 + len(slot.holder) + len(slot.metadata) + sum([50 + len(waiter.holder) for waiter in queue])


def _reason(slot: Slot, op: Renew) -> Loss:
    """Say why there is no live record of this owner, as far as this acceptor knows."""
    if slot.lease_id != op.lease_id:
        if slot.token == op.token and slot.ended is not None:
            return Loss(slot.ended)
        if slot.token > op.token:
            return Loss.TAKEN
    return Loss.EXPIRED
