"""Release and revoke: only what is still the lease that was meant, and whatever stands under it."""

from __future__ import annotations

import json
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from lessor.core.lease import Closed
from lessor.core.ops import Event, EventKind, Held, Loss, NotHeld, Released
from lessor.stores.zookeeper import family
from lessor.stores.zookeeper.layout import fingerprint, mark_of
from lessor.stores.zookeeper.sight import (
    Seen,
    Sight,
    closed_by,
    deletion,
    held_for_ns,
    identity,
    in_order,
    look,
    own_holding,
    parent_is_gone,
    seen,
)
from lessor.stores.zookeeper.wire import (
    ANY_VERSION,
    EPHEMERAL,
    CheckVersion,
    Create,
    Delete,
    GetChildren,
    GetData,
    SetData,
    Sync,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lessor.core.ops import Release, ReleaseOutcome, Revoke, RevokeOutcome
    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.ledger import Holding
    from lessor.stores.zookeeper.session import Session

    Steps = Generator[list[Any], list[Any], Any]

TOGETHER = 100
"""How many leases are released in one transaction."""
TOMBSTONE_VERSION = 8
"""Above all that the node of a lease's id ever has: so nobody takes a tombstone for a lease that it is to delete."""


# --- release ------------------------------------------------------------------------------------------------------


def release(desk: Desk, op: Release, start: int, give_up: int) -> Generator[list[Any], list[Any], ReleaseOutcome]:
    """Carry it out."""
    holding = desk.ledger.by_id.get(op.lease_id)
    if holding is not None and holding.alive(start) and (not op.abandon or _stays_closed(op, holding, start)):
        outcome = yield from _let_go(desk, op, holding, start)
        if outcome is not None:
            return outcome  # type: ignore[no-any-return]
    main = desk.main(give_up)
    mark = fingerprint(op.lease_id)
    while True:
        sight = yield from look(desk, main, op.resource, mark, fresh=False)
        outcome = yield from _clear(desk, op, mark, sight, main)
        if outcome is not None:
            desk.doubts.pop(op.lease_id, None)
            return outcome  # type: ignore[no-any-return]


def _stays_closed(op: Release, holding: Holding, start: int) -> bool:
    """Whether the resource isn't free at once. So long its id stays, at which a request fails that is still on its way."""
    return op.successor is not None or start < holding.granted_ns + holding.hold_at_least_ns


def is_simple(holding: Holding, op: Release, start: int) -> bool:
    """Whether its release is nothing but the end of two nodes, as far as we know."""
    special = op.abandon or op.successor or holding.hold_at_least_ns or holding.version or "parent" in holding.node
    return holding.alive(start) and holding.resource == op.resource and not (special or holding.swept)


def release_all(
    desk: Desk, ops: Sequence[Release], holdings: Sequence[Holding], start: int, give_up: int
) -> Generator[list[Any], list[Any], list[ReleaseOutcome]]:
    """Release leases of one session in one transaction; those that are not as we know them, one by one."""
    outcomes: dict[int, ReleaseOutcome] = {}
    together = [*range(len(ops))]
    while together:
        chunk = together[:TOGETHER]
        ending = [_deletion(desk, holdings[at]) for at in chunk]
        _, failure = yield from desk.commit(holdings[0].session, (), *chain.from_iterable(ending))
        if failure is None:
            for at in chunk:
                desk.ledger.end(holdings[at], Loss.RELEASED)
                desk.ledger.forget(holdings[at])
                outcomes[at] = Released()
        elif failure.path != desk.layout.root:
            at = next(at for at, mine in zip(chunk, ending, strict=True) if failure.path in _paths(mine))
            outcomes[at] = yield from release(desk, ops[at], start, give_up)
        together = [at for at in together if at not in outcomes]
    return [outcomes[at] for at in range(len(ops))]


def _paths(changes: Sequence[Any]) -> set[str]:
    return {change.path for change in changes if not isinstance(change, Event)}


def _deletion(desk: Desk, holding: Holding) -> tuple[Any, ...]:
    """Return the operations that end a lease of ours, and tell of it."""
    own = deletion(desk, holding.resource, holding.mark, holding.version)
    return (*own, *family.entry_of(desk, holding.node), _released(desk, holding))


def _released(desk: Desk, holding: Holding, closed_ns: int = 0) -> Event:
    who = holding.node["holder"]
    return Event(EventKind.RELEASED, holding.resource, holding.token, who, desk.clock.wall_us(), closed_ns)


def _let_go(desk: Desk, op: Release, holding: Holding, start: int) -> Steps:
    """End a lease of ours; None if it is not as we know it."""
    session = holding.session
    while holding.session_id == session.id and not holding.swept:
        free_at = max(start, holding.granted_ns + holding.hold_at_least_ns)
        children = yield from _children(desk, session, holding.mark, holding.version, EventKind.RELEASED)
        heir = (yield from _heir(desk, session, op.resource, op.successor)) if op.successor else None
        if free_at > start or op.successor:
            ending = _closing(desk, holding, op, heir, free_at - start)
        else:
            ending = _deletion(desk, holding)
        _, failure = yield from desk.commit(session, (), *children, *ending)
        if failure is None:
            desk.ledger.end(holding, Loss.RELEASED)
            if free_at > start or op.successor:
                holding.version += 1
                holding.closed_until_ns = free_at + (op.reserve_ns if op.successor else 0)
                desk.reaper.note(holding.closed_until_ns)
                if heir is not None:
                    yield from _call(desk, heir.notify, heir.mark, session)
                if op.successor and free_at > start:
                    desk.timetable.at(free_at, partial(_hold_is_over, desk, holding, op, heir))
            else:
                desk.ledger.forget(holding)
            return Released(free_at - start)
        if failure.path == desk.layout.root:
            continue
        [answer] = yield [session.call(GetData(desk.layout.id(holding.mark), None))]
        found = identity(answer)
        if found is None or found.is_spent:
            break
        if found.is_closed:  # by another release of the same lease, whose answer is yet to come
            return NotHeld()
        holding.version = found.version
    return None


class Heir(NamedTuple):
    """A waiter to whom something is handed over."""

    mark: str
    notify: str


def _heir(desk: Desk, session: Session, resource: str, successor: str) -> Generator[list[Any], list[Any], Heir | None]:
    """Return the first waiter that has the successor's name."""
    queue = desk.layout.queue(resource)
    [found] = yield [session.call(GetChildren(queue, None))]
    names = in_order(found)
    answers = (yield [session.call(GetData(f"{queue}/{name}", None)) for name in names]) if names else []
    for name, answer in zip(names, answers, strict=True):
        said = {} if isinstance(answer, Exception) else json.loads(answer[0])
        if said.get("holder") == successor:
            return Heir(mark_of(name), said.get("notify", ""))
    return None


def _closing(desk: Desk, holding: Holding, op: Release, heir: Heir | None, for_ns: int) -> tuple[Any, ...]:
    """Return the operations that leave the resource closed for a while, though nobody holds it."""
    return (
        SetData(desk.layout.id(holding.mark), b'{"closed": true}', holding.version),
        _closed(desk, holding, op, heir, for_ns),
        _released(desk, holding, for_ns),
    )


def _closed(desk: Desk, holding: Holding, op: Release, heir: Heir | None, for_ns: int) -> Any:
    """Return the operation that says for how long, and for whom it is kept after that."""
    node = {**holding.node, "closed": for_ns}
    if op.successor:
        node |= {"closed": for_ns + op.reserve_ns, "reserve": op.reserve_ns, "successor": op.successor}
        node |= {"state": op.state} if op.state else {}
        node |= {"heir": heir.mark} if heir else {}
    return SetData(desk.layout.lease(holding.resource), json.dumps(node).encode(), ANY_VERSION)


def _hold_is_over(desk: Desk, holding: Holding, op: Release, heir: Heir | None) -> None:
    """Say that from now on it is kept for the successor only. Other clients can't know when that is."""
    session = holding.session
    same = CheckVersion(desk.layout.id(holding.mark), holding.version)
    session.multi(same, _closed(desk, holding, op, heir, 0))
    if heir is not None and heir.notify:
        session.call(_calling(desk, heir.notify, heir.mark))


def _children(desk: Desk, session: Session, mark: str, version: int, kind: EventKind) -> Steps:
    """Return the operations that end what stands under a lease; a fresh one has nothing there."""
    if version == 0:
        return ()
    return (yield from family.end_children(desk, session, mark, kind))


def _clear(desk: Desk, op: Release, mark: str, sight: Sight, main: Session) -> Steps:
    """Take the id out of wherever it is; None if all is to be seen anew."""
    if sight.is_torn(mark):
        return None
    lease, own = sight.lease, sight.identity
    held = sight.holds(mark)
    holding = own_holding(desk, lease) if held and lease is not None else None
    if (holding is not None and holding.closed_until_ns) or (held and own is not None and own.is_closed):
        return NotHeld()
    desk.bells.leave(main, op.lease_id)
    buried = own is not None and own.is_tombstone
    ops = []
    if held and lease is not None and own is not None:
        ops += yield from _end(desk, main, lease, own.version)
    elif own is not None and op.abandon and not buried:
        ops.append(Delete(desk.layout.id(mark), own.version))
    leaving = _leave(desk, op.resource, mark, sight)
    ops += leaving
    ops += yield from _open(desk, main, lease, mark)
    if op.abandon and not buried:
        ops += _tombstone(desk, mark)
    if ops:
        _, failure = yield from desk.commit(main, (), *ops)
        if failure is not None:
            return None
    if op.abandon and not buried:
        desk.reaper.bury(mark)
    if held and _was_alive(desk, holding):
        return Released()
    return NotHeld("was waiting") if leaving else NotHeld()


def _open(desk: Desk, session: Session, lease: Seen | None, mark: str) -> Steps:
    """Return the operations that free what was kept for a waiter who doesn't want it any more."""
    if lease is None or lease.node.get("heir") != mark:
        return ()
    [answer] = yield [session.call(GetData(desk.layout.id(lease.mark), None))]
    found = identity(answer)
    return deletion(desk, lease.node["resource"], lease.mark, found.version) if found is not None else ()


def _was_alive(desk: Desk, holding: Holding | None) -> bool:
    """Whether the lease that was just ended had not run out before."""
    if holding is None:
        return True
    alive = holding.alive(desk.clock.now())
    desk.ledger.end(holding, Loss.RELEASED)
    desk.ledger.forget(holding)
    return alive


def _end(desk: Desk, session: Session, lease: Seen, version: int) -> Steps:
    """Return the operations that end a lease and its children."""
    resource = lease.node["resource"]
    children = yield from _children(desk, session, lease.mark, version, EventKind.RELEASED)
    event = Event(EventKind.RELEASED, resource, lease.token, lease.holder, desk.clock.wall_us())
    own = (*deletion(desk, resource, lease.mark, version), *family.entry_of(desk, lease.node))
    return (*children, *own, event)


def _leave(desk: Desk, resource: str, mark: str, sight: Sight) -> tuple[Any, ...]:
    """Return the operations that take an id out of the queue, and the queue away if nobody else is in it."""
    queue = desk.layout.queue(resource)
    waiting = [name for name in sight.waiters if name.startswith(mark)]
    ops = [Delete(f"{queue}/{name}", ANY_VERSION) for name in waiting]
    if waiting and len(waiting) == len(sight.waiters):
        ops.append(Delete(queue, ANY_VERSION))
    return tuple(ops)


def _tombstone(desk: Desk, mark: str) -> tuple[Any, ...]:
    """Return the operations at which a request for this id fails that is still on its way."""
    path = desk.layout.id(mark)
    said = SetData(path, b'{"tombstone": true}', ANY_VERSION)
    return (Create(path, b"", desk.acl, EPHEMERAL), *[said] * TOMBSTONE_VERSION)


# --- revoke -------------------------------------------------------------------------------------------------------


def revoke(desk: Desk, op: Revoke, give_up: int) -> Generator[list[Any], list[Any], RevokeOutcome]:
    """Carry it out."""
    main = desk.main(give_up)
    layout = desk.layout
    while True:
        _, answer = yield [main.call(Sync(layout.root)), main.call(GetData(layout.lease(op.resource), None))]
        lease = seen(answer)
        if lease is None or (op.token is not None and op.token != lease.token):
            return NotHeld()
        remaining = held_for_ns(desk, lease, desk.clock.now())
        if remaining <= 0:
            outcome = yield from _reopen(desk, op, lease, main)
            if outcome is not None:
                return outcome  # type: ignore[no-any-return]
            continue
        if (yield from parent_is_gone(desk, main, lease)):
            return NotHeld()
        [answer] = yield [main.call(GetData(layout.id(lease.mark), None))]
        found = identity(answer)
        if found is None or found.is_spent:
            continue  # it has just ended
        if not op.force and found.said.get("revoked"):
            return Released(remaining)
        ops = _forced(desk, lease, found.version) if op.force else _plainly(desk, lease, found.said, found.version)
        children: tuple[Any, ...] = ()
        if op.force:
            children = yield from _children(desk, main, lease.mark, found.version, EventKind.REVOKED)
        counts = yield from family.counting(desk, main, lease)
        ttl = 0 if op.force else remaining
        event = Event(EventKind.REVOKED, op.resource, lease.token, lease.holder, desk.clock.wall_us(), ttl)
        _, failure = yield from desk.commit(main, (), *children, *ops, *counts, event)
        if failure is None:
            yield from _call(desk, lease.node.get("notify", ""), lease.mark, main)
            return Released(ttl)


def _reopen(desk: Desk, op: Revoke, lease: Seen, session: Session) -> Steps:
    """Open what nobody holds, if it is closed; None if it has changed meanwhile. A lock delay takes force."""
    closed, left = closed_by(desk, lease, desk.clock.now())
    if closed is None:
        return NotHeld()
    if closed is Closed.LOCK_DELAY and not op.force:
        return Held(lease.holder, lease.token, left, 0, closed=closed)
    [answer] = yield [session.call(GetData(desk.layout.id(lease.mark), None))]
    found = identity(answer)
    if found is None or found.is_spent:
        return None
    successor, reserve = lease.node.get("successor", ""), lease.node.get("reserve", 0)
    ops: tuple[Any, ...]
    if successor:  # from now on it is kept for that one
        kept = json.dumps({**lease.node, "closed": reserve}).encode()
        path = desk.layout.lease(op.resource)
        ops = CheckVersion(desk.layout.id(lease.mark), found.version), SetData(path, kept, lease.stat.version)
    else:
        children = yield from _children(desk, session, lease.mark, found.version, EventKind.REVOKED)
        own = deletion(desk, op.resource, lease.mark, found.version)
        ops = (*children, *own, *family.entry_of(desk, lease.node))
    event = Event(EventKind.REVOKED, op.resource, lease.token, lease.holder, desk.clock.wall_us())
    _, failure = yield from desk.commit(session, (), *ops, event)
    if failure is not None:
        return None
    heir = (yield from _heir(desk, session, op.resource, successor)) if successor else None
    if heir is not None:
        yield from _call(desk, heir.notify, heir.mark, session)
    return Released()


def _forced(desk: Desk, lease: Seen, version: int) -> tuple[Any, ...]:
    """Return the operations that free the resource. The id's node stays, so that the holder learns what happened."""
    return (
        SetData(desk.layout.id(lease.mark), b'{"forced": true}', version),
        Delete(desk.layout.lease(lease.node["resource"]), ANY_VERSION),
        *family.entry_of(desk, lease.node),
    )


def _plainly(desk: Desk, lease: Seen, said: dict[str, Any], version: int) -> tuple[Any, ...]:
    """Return the operations after which it is not renewed any more."""
    return (
        SetData(desk.layout.id(lease.mark), json.dumps({**said, "revoked": True}).encode(), version),
        SetData(
            desk.layout.lease(lease.node["resource"]),
            json.dumps({**lease.node, "revoked": True}).encode(),
            lease.stat.version,
        ),
    )


def _call(desk: Desk, address: str, mark: str, session: Session) -> Steps:
    """Tell a holder or a waiter, where it listens."""
    if address:
        yield [session.call(_calling(desk, address, mark))]


def _calling(desk: Desk, address: str, mark: str) -> Any:
    return SetData(desk.layout.client(address), json.dumps([mark]).encode(), ANY_VERSION)
