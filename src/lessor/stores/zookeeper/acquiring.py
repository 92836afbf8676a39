"""Acquire: in one transaction where nothing stands in the way; else look, and take it, or wait for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import KazooException, SessionExpiredError

from lessor.core.lease import TOKEN_LIMIT
from lessor.core.ops import RESERVATION_NS, WAITER_LIFE_NS, Event, EventKind, Granted, Held, Loss, Lost, Revoke
from lessor.errors import ConfigError
from lessor.stores.zookeeper import family
from lessor.stores.zookeeper.bells import Waiter
from lessor.stores.zookeeper.ending import revoke
from lessor.stores.zookeeper.layout import fingerprint, place, priority_of
from lessor.stores.zookeeper.ledger import Holding
from lessor.stores.zookeeper.sight import (
    Seen,
    Sight,
    closed_by,
    closed_for_ns,
    deletion,
    held_for_ns,
    identity,
    look,
    own_holding,
)
from lessor.stores.zookeeper.wire import (
    ANY_VERSION,
    EPHEMERAL,
    SEQUENCE,
    CheckVersion,
    Create,
    CreateContainer,
    Delete,
    Failure,
    GetData,
    Multi,
    SetData,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lessor.core.lease import Closed
    from lessor.core.ops import Acquire, AcquireOutcome
    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.session import Session

    Steps = Generator[list[Any], list[Any], Any]

MOST_PATIENCE = 1000
"""Resources of which it is remembered since when they are free: those whose first waiters don't come."""
SMALL = 1000
"""The length of metadata up to which a hundred grants fit into one transaction."""


def acquire(desk: Desk, op: Acquire, start: int, give_up: int) -> Generator[list[Any], list[Any], AcquireOutcome]:
    """Carry it out."""
    outcome: AcquireOutcome = yield from Acquisition(desk, op, start, give_up).run()
    # Whatever became of earlier requests for this id is known now. A grant that was found again must not be given back.
    desk.doubts.pop(op.lease_id, None)
    return outcome


def is_plain(desk: Desk, op: Acquire) -> bool:
    """Whether it is likely to take nothing but one transaction, which it may share with others."""
    known = op.resource in desk.wanted or op.lease_id in desk.bells.waiters
    return not known and op.parent is None and len(json.dumps(op.metadata)) <= SMALL


def acquire_all(
    desk: Desk, ops: Sequence[Acquire], start: int, give_up: int
) -> Generator[list[Any], list[Any], list[AcquireOutcome | None]]:
    """Take what is free in one transaction, for one session; None for each that is to be tried by itself.

    All of them have the same token, its zxid, each for its own resource.
    """
    acquisitions = [Acquisition(desk, op, start, give_up) for op in ops]
    session = desk.session_for(ops[0].ttl_ns + ops[0].lock_delay_ns, give_up)
    assert desk.root is not None
    root = desk.root
    taking: list[Any] = []
    for one in acquisitions:
        one.session = session
        taking += (*one.taking(root.offset), *one.where_nobody_waits())
    try:
        with desk.in_doubt(ops):
            results, failure = yield from desk.commit(session, (desk.beat(session),), *taking, root=root)
    except KazooException:
        return [None] * len(ops)  # each is to hear for itself what it is refused for
    if failure is not None:
        for one in acquisitions:
            if failure.path in (desk.layout.lease(one.op.resource), desk.layout.queue(one.op.resource)):
                desk.want(one.op.resource)
        return [None] * len(ops)
    outcomes: list[AcquireOutcome | None] = [one.granted(results[0], root.offset) for one in acquisitions]
    answers = [*zip(acquisitions, outcomes, strict=True)]
    too_low = [deletion(desk, one.op.resource, one.mark, 0) for one, outcome in answers if outcome is None]
    if too_low:
        yield [session.multi(*undoing) for undoing in too_low]
    for one, outcome in answers:
        if outcome is not None:
            desk.doubts.pop(one.op.lease_id, None)
    return outcomes


class Acquisition:
    """One acquire on its way."""

    def __init__(self, desk: Desk, op: Acquire, start: int, give_up: int) -> None:
        self.desk = desk
        self.op = op
        self.start = start
        self.give_up = give_up
        self.mark = fingerprint(op.lease_id)
        self.session: Session
        self.above: family.Above | None = None
        self.inherited = ""
        """What the holder before has left for this one."""
        self.node: dict[str, Any] = {}
        """What the lease's node says, once that was sent."""

    def run(self) -> Steps:
        """Take it, or say who has it."""
        desk, op = self.desk, self.op
        if op.parent is not None:
            self.above = yield from family.find(desk, op, self.start, self.give_up)
            if self.above is None:
                return Lost(Loss.EXPIRED)
        above = self.above
        if above is not None and above.holding is not None and not (op.ttl_ns or op.lock_delay_ns):
            self.session = above.holding.session  # it lasts as long as that one does
        else:
            ttl = op.ttl_ns or (above.ttl_ns if above else 0)
            self.session = desk.session_for(ttl + op.lock_delay_ns, self.give_up)
        reader, fresh = self.session, True
        waiter = desk.bells.waiters.get(op.lease_id)
        if waiter is None:
            outcome = yield from self._quick()
        elif waiter.is_first and waiter.was_called:
            outcome = yield from self._take_turn(waiter)
        else:
            outcome, reader, fresh = None, desk.main(self.give_up), False
        if outcome is not None:
            desk.wanted.pop(op.resource, None)
            return outcome
        desk.want(op.resource)
        while True:
            sight = yield from look(desk, reader, op.resource, self.mark, fresh=fresh)
            outcome, wrote = yield from self._decide(sight, reader)
            if outcome is not None:
                return outcome
            # Somebody was quicker. Whoever of our sessions wrote last sees what that was.
            reader, fresh = (self.session, True) if wrote else (reader, False)

    # --- the quick way --------------------------------------------------------------------------------------------

    def _quick(self) -> Steps:
        """Take what is free, and has no queue."""
        while True:
            outcome, failure = yield from self._grant((), self.where_nobody_waits())
            if outcome is not None or failure.path != self.desk.layout.root:
                return outcome

    def _take_turn(self, waiter: Waiter) -> Steps:
        """Take what the first in the queue was called for, if it is free."""
        queue = self.desk.layout.queue(self.op.resource)
        waiter.was_called = False
        still_first = CheckVersion(queue, waiter.queue_version)
        outcome, _ = yield from self._grant((still_first,), (Delete(f"{queue}/{waiter.name}", ANY_VERSION),))
        if outcome is not None:
            self.desk.main(self.give_up).call(Delete(queue, ANY_VERSION))  # which fails if others wait
        return outcome

    # --- the long way ---------------------------------------------------------------------------------------------

    def _decide(self, sight: Sight, reader: Session) -> Steps:
        """Return the outcome and whether the lease's session wrote; the outcome is None if all is to be seen anew."""
        desk, op = self.desk, self.op
        now = desk.clock.now()
        lease = sight.lease
        if sight.is_torn(self.mark):
            return None, False
        if sight.identity is not None:
            return (yield from self._again(sight, now)), False
        evict: tuple[Any, ...] = ()
        holding: Holding | None = None
        mine, self.inherited = False, ""
        if lease is not None:
            remaining = closed_for_ns(desk, lease, now)
            kept = 0 < remaining <= lease.node.get("reserve", 0)
            mine = kept and lease.is_for(self.mark, op.holder)
            if remaining > 0 and not (mine or (kept and sight.heir_is_gone)):
                return (yield from self._challenge(sight, lease, remaining, kept=kept)), False
            self.inherited = lease.node.get("state", "") if mine else ""
            [answer] = yield [reader.call(GetData(desk.layout.id(lease.mark), None))]
            found = identity(answer)
            if found is None or found.is_spent:
                return None, False
            holding = own_holding(desk, lease)
            evict = deletion(desk, op.resource, lease.mark, found.version)
        ahead = [] if mine else self._ahead(sight, free=True)
        if ahead and not self._out_of_patience(ahead, now):
            return (yield from self._wait(sight, "", lease.token if lease else 0, 0)), False
        if holding is not None and not desk.ledger.give_up(holding, now):
            return None, False
        outcome, _ = yield from self._grant(evict, self._queue_behind(sight))
        if outcome is not None:
            desk.patience.pop(op.resource, None)
        if holding is not None:
            desk.reaper.sweep(holding)  # it is given up in any case
        return outcome, True

    def _challenge(self, sight: Sight, lease: Seen, remaining: int, *, kept: bool) -> Steps:
        """Wait for what somebody else has; and where that was for longer than its soft limit, end it."""
        desk, op = self.desk, self.op
        desk.patience.pop(op.resource, None)
        if op.recover and lease.is_overdue(desk.clock.wall_us()):
            yield from revoke(desk, Revoke(op.resource, token=lease.token), self.give_up)
        closed, _ = (None, 0) if kept else closed_by(desk, lease, desk.clock.now())
        return (yield from self._wait(sight, "" if kept else lease.holder, lease.token, remaining, closed))

    def _again(self, sight: Sight, now: int) -> Steps:
        """Answer for an id that is known already: its own grant, once more; or it must never be granted again."""
        desk, op, lease = self.desk, self.op, sight.lease
        if lease is None or sight.identity is None or not sight.holds(self.mark) or lease.is_closed:
            return Lost(desk.ledger.ended(op.lease_id) or Loss.RELEASED)
        holding = own_holding(desk, lease)
        if holding is not None:
            remaining = held_for_ns(desk, lease, now)
            inherited = holding.node.get("inherited", "")
            return Granted(holding.token, remaining, inherited) if remaining > 0 else Lost(Loss.EXPIRED)
        if lease.stat.ephemeralOwner != self.session.id:
            return Lost(Loss.EXPIRED)
        # The answer to the request that got it was lost. It counts from a write of its session that is answered.
        same = CheckVersion(desk.layout.id(self.mark), sight.identity.version)
        _, failure = yield from desk.commit(self.session, (desk.beat(self.session),), same)
        if failure is not None:
            return None
        self.node = lease.node
        holding = self._holding(lease.stat.ephemeralOwner, lease.token)
        holding.version = sight.identity.version
        return Granted(holding.token, holding.until_ns() - self.start, lease.node.get("inherited", ""))

    def _ahead(self, sight: Sight, *, free: bool = False) -> list[str]:
        """Return who comes before us. What is free is for those in the queue."""
        for at, name in enumerate(sight.waiters):
            if name.startswith(self.mark):
                return sight.waiters[:at]
        return [name for name in sight.waiters if free or priority_of(name) >= self.op.priority]

    def _out_of_patience(self, ahead: list[str], now: int) -> bool:
        """Whether all before us had their time to come, since we first saw the resource free."""
        patience = self.desk.patience
        first, since = patience.get(self.op.resource, ("", 0))
        if first != ahead[0]:
            if len(patience) >= MOST_PATIENCE:
                patience.clear()
            patience[self.op.resource] = (ahead[0], now)
            return False
        return now - since >= len(ahead) * RESERVATION_NS

    def _queue_behind(self, sight: Sight) -> tuple[Any, ...]:
        """Return the operations that take us out of the queue, and the queue away if nobody else is in it."""
        if sight.queue_version is None:
            return self.where_nobody_waits()
        queue = self.desk.layout.queue(self.op.resource)
        own = [name for name in sight.waiters if name.startswith(self.mark)]
        ops = [Delete(f"{queue}/{name}", ANY_VERSION) for name in own]
        if len(own) == len(sight.waiters):
            ops.append(Delete(queue, ANY_VERSION))
        return tuple(ops)

    # --- granting -------------------------------------------------------------------------------------------------

    def taking(self, offset: int) -> tuple[Any, ...]:
        """Return the operations that make the lease, and tell of it."""
        desk, op = self.desk, self.op
        self.node = self._node(offset)
        return (
            Create(desk.layout.id(self.mark), b"", desk.acl, EPHEMERAL),
            Create(desk.layout.lease(op.resource), json.dumps(self.node).encode(), desk.acl, EPHEMERAL),
            Event(EventKind.GRANTED, op.resource, 0, op.holder, self.node["granted"], op.ttl_ns),
        )

    def where_nobody_waits(self) -> tuple[Any, ...]:
        """Return the operations that fail if there is a queue: what can be made and deleted again was not there."""
        queue = self.desk.layout.queue(self.op.resource)
        return Create(queue, b"", self.desk.acl, 0), Delete(queue, ANY_VERSION)

    def granted(self, beat: Any, offset: int) -> Granted | None:
        """Enter the grant that was made together with a write to the session's node; None if its token is too low."""
        desk, op = self.desk, self.op
        token = beat.mzxid + offset  # all that a transaction makes has its zxid
        if token <= op.seen_token or token >= TOKEN_LIMIT:
            return None
        if op.lease_id in desk.bells.waiters:
            desk.bells.leave(desk.main(self.give_up), op.lease_id)
        holding = self._holding(beat.ephemeralOwner, token)
        return Granted(token, holding.until_ns() - self.start, self.inherited)

    def _grant(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> Steps:
        """Try to take it; return the outcome, or None and what stood in the way."""
        desk, op = self.desk, self.op
        assert desk.root is not None
        root = desk.root
        with desk.in_doubt([op]):
            results, failure = yield from desk.commit(
                self.session,
                (desk.beat(self.session),),
                *before,
                *self.taking(root.offset),
                *after,
                *(self.above.operations(desk, op.resource) if self.above else ()),
                root=root,
            )
        if failure is not None:
            if self.above and failure.path == self.above.path and failure.missing:
                return Lost(Loss.EXPIRED), failure
            return None, failure
        granted = self.granted(results[0], root.offset)
        if granted is None:
            yield from self._lift(results[0].mzxid + root.offset)
            return None, Failure(desk.layout.root, 0)
        return granted, None

    def _lift(self, token: int) -> Steps:
        """Undo the grant: its token is not above what the asker has seen. Let the namespace's tokens begin higher."""
        desk, op = self.desk, self.op
        known, layout = desk.root, desk.layout
        assert known is not None
        root = known._replace(offset=known.offset + max(0, op.seen_token - token) + 1)
        yield [self.session.multi(*deletion(desk, op.resource, self.mark, 0))]
        if token >= TOKEN_LIMIT or op.seen_token + 1 >= TOKEN_LIMIT:
            raise ConfigError(f"the next token, {max(token, op.seen_token + 1)}, is not below 2^53")
        _, answer = yield [
            self.session.call(SetData(layout.root, root.dumps(), root.version)),
            self.session.call(GetData(layout.root, None)),
        ]
        desk.learn_root(answer)

    def _node(self, offset: int) -> dict[str, Any]:
        """Return what the lease's node says."""
        op = self.op
        node: dict[str, Any] = {
            "v": 1,
            "resource": op.resource,
            "holder": op.holder,
            "id": self.mark,
            "ttl": op.ttl_ns,
            "granted": self.desk.clock.wall_us(),
        }
        optional = {
            "offset": offset,
            "notify": op.notify,
            "metadata": op.metadata,
            "soft": op.soft_ns,
            "grace": op.grace_ns,
            "lock_delay": op.lock_delay_ns,
            "hold_at_least": op.hold_at_least_ns,
            "inherited": self.inherited,
            "parent": self.above and [*(op.parent or ()), self.above.mark],
        }
        node.update((name, value) for name, value in optional.items() if value)
        return node

    def _holding(self, session_id: int, token: int) -> Holding:
        """Enter the grant into the ledger."""
        desk, op, node = self.desk, self.op, self.node
        self.session.answered()
        trusted = desk.trusted_ns(self.session) - op.lock_delay_ns
        asked = op.ttl_ns or (self.above.ttl_ns if self.above else 0)
        holding = Holding(
            resource=op.resource,
            lease_id=op.lease_id,
            mark=self.mark,
            token=token,
            session=self.session,
            session_id=session_id,
            expiry_ns=self.start + min(asked, trusted),
            granted_ns=self.start,
            node=node,
            lock_delay_ns=op.lock_delay_ns,
            hold_at_least_ns=op.hold_at_least_ns,
            notify=op.notify,
            renewed_us=node["granted"],
            parent=self.above.holding if self.above else None,
            follows_parent=op.ttl_ns == 0,
        )
        desk.ledger.add(holding)
        if self.session.closed:  # perhaps before this lease was seen to be in it
            desk.ledger.forget(holding)
            raise SessionExpiredError
        desk.reaper.note(holding.until_ns())
        return holding

    # --- waiting --------------------------------------------------------------------------------------------------

    def _wait(self, sight: Sight, by: str, token: int, remaining: int, closed: Closed | None = None) -> Steps:
        """Say who has it and, if asked to, get or keep a place in the queue."""
        desk, op = self.desk, self.op
        ahead = self._ahead(sight)
        own = [name for name in sight.waiters if name.startswith(self.mark)]
        refused = op.queue and not own and 0 < op.queue_limit <= len(sight.waiters)
        held = Held(by, token, remaining, len(ahead) if by else max(1, len(ahead)), refused, closed)
        if refused or not op.queue:
            return held
        main = desk.main(self.give_up)
        waiter = desk.bells.waiters.get(op.lease_id)
        if waiter is None:
            waiter = Waiter(op.resource, op.lease_id, self.mark, op.notify, self.start)
            desk.bells.waiters[op.lease_id] = waiter
        waiter.shown_ns = desk.clock.now()
        desk.reaper.note(waiter.shown_ns + WAITER_LIFE_NS)
        if not own:
            yield from self._join(main, waiter, sight)
            return None
        waiter.name, waiter.is_first, waiter.queue_version = own[0], not ahead, sight.queue_version or 0
        if op.notify in desk.callers:
            target = f"{desk.layout.queue(op.resource)}/{ahead[-1]}" if ahead else desk.layout.lease(op.resource)
            if waiter.watching != target:
                [there] = yield [desk.bells.watch(main, waiter, target)]
                if isinstance(there, Exception):
                    desk.bells.unwatch(main, waiter)
                    return None
        return held

    def _join(self, main: Session, waiter: Waiter, sight: Sight) -> Steps:
        """Get a place in the queue, if it is as it was seen. Those who come before others, or count them, change it."""
        desk, op = self.desk, self.op
        queue = desk.layout.queue(op.resource)
        said = json.dumps({"holder": op.holder, "since": desk.clock.wall_us(), "notify": op.notify}).encode()
        version = sight.queue_version or 0
        overtakes = any(priority_of(name) < op.priority for name in sight.waiters)
        changes = op.priority or op.queue_limit or overtakes
        same = SetData(queue, b"", version) if changes else CheckVersion(queue, version)
        path = f"{queue}/{place(self.mark, op.priority)}"
        joining = Multi((same, Create(path, said, desk.acl, EPHEMERAL | SEQUENCE)))
        _, joined = yield [main.call(CreateContainer(queue, desk.acl)), main.call(joining)]
        if joining.failure(joined) is None:
            waiter.name = joined[1].rpartition("/")[2]
