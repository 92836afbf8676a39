"""Leases under leases: a child ends with its parent, in the same transaction; before it where there are very many."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from lessor.core.lease import Closed
from lessor.core.ops import Event
from lessor.errors import ConfigError
from lessor.stores.zookeeper.layout import decode, encode
from lessor.stores.zookeeper.sight import closed_by, deletion, identity, own_holding, parent_is_gone, seen
from lessor.stores.zookeeper.wire import (
    ANY_VERSION,
    EPHEMERAL,
    CheckVersion,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    SetData,
    Sync,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from lessor.core.ops import Acquire, EventKind
    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.ledger import Holding
    from lessor.stores.zookeeper.session import Session
    from lessor.stores.zookeeper.sight import Seen

MOST_BYTES: Final = 500_000
"""Of what is ended in one request. The servers take a megabyte (``jute.maxbuffer``), and the parent has its metadata."""
DELETE_BYTES: Final = 20
"""What it takes beside the path to delete a node."""
EVENT_BYTES: Final = 200
"""What it takes beside the names to tell of it, where somebody watches."""
TIDY_TIMEOUT: Final = 5.0
"""Seconds that the servers have to answer whoever tidies up."""


class Above(NamedTuple):
    """The parent of a lease that is about to be granted."""

    mark: str
    path: str
    """Of the node that has the parent's id: while it is there, the parent lives."""
    ttl_ns: int
    holding: Holding | None

    def operations(self, desk: Desk, resource: str) -> tuple[Any, ...]:
        """Return what makes the lease a child, if the parent still lives."""
        entry = f"{desk.layout.children(self.mark)}/{encode(resource)}"
        return CheckVersion(self.path, ANY_VERSION), Create(entry, b"", desk.acl, EPHEMERAL)


def find(desk: Desk, op: Acquire, start: int, give_up: int) -> Generator[list[Any], list[Any], Above | None]:
    """Return the parent that the operation names, noted down as one; None if it is over."""
    assert op.parent is not None
    resource, token = op.parent
    if resource == op.resource:
        raise ConfigError(f"{op.resource!r} can't stand under itself")
    layout, main = desk.layout, desk.main(give_up)
    holding = desk.ledger.held(resource, token)
    if holding is not None:
        if not holding.alive(start):
            return None
        mark, ttl = holding.mark, holding.until_ns() - start
        holding.has_children = True
    else:
        _, answer = yield [main.call(Sync(layout.root)), main.call(GetData(layout.lease(resource), None))]
        lease = seen(answer)
        if lease is None or lease.token != token or lease.is_closed or (yield from parent_is_gone(desk, main, lease)):
            return None
        mark, ttl = lease.mark, lease.ttl_ns
    is_noted = yield from _note(desk, main, mark, holding)
    return Above(mark, layout.id(mark), ttl, holding) if is_noted else None


def _note(desk: Desk, main: Session, mark: str, holding: Holding | None) -> Generator[list[Any], list[Any], bool]:
    """Note down that leases stand under this one; False if it is over."""
    path, folder = desk.layout.id(mark), desk.layout.children(mark)
    while True:
        made, answer = yield [main.call(Create(folder, b"", desk.acl, 0)), main.call(GetData(path, None))]
        found = identity(answer)
        if found is None or found.is_spent:
            main.call(Delete(folder, ANY_VERSION))
            return False
        if not isinstance(made, Exception):
            desk.tidy_families()
        if not found.said.get("children"):
            said = json.dumps({**found.said, "children": True}).encode()
            [answer] = yield [main.call(SetData(path, said, found.version))]
            if isinstance(answer, Exception):
                continue
            if holding is not None:
                holding.version = answer.version
        return True


def entry_of(desk: Desk, node: dict[str, Any]) -> tuple[Any, ...]:
    """Return the operation that takes a child off its parent's list."""
    parent = node.get("parent")
    if parent is None:
        return ()
    return (Delete(f"{desk.layout.children(parent[2])}/{encode(node['resource'])}", ANY_VERSION),)


def counting(desk: Desk, session: Session, lease: Seen) -> Generator[list[Any], list[Any], tuple[Any, ...]]:
    """Return the operations that count, in all leases above, that somebody ends this one."""
    layout = desk.layout
    ops: list[Any] = []
    node: dict[str, Any] | None = lease.node
    while node is not None and node.get("parent"):
        name, _, mark = node["parent"]
        folder = layout.children(mark)
        answer, above = yield [session.call(GetData(folder, None)), session.call(GetData(layout.lease(name), None))]
        if isinstance(answer, Exception):
            break  # it is over
        ops.append(SetData(folder, str(ended(answer) + 1).encode(), answer[1].version))
        parent = seen(above)
        node = parent.node if parent is not None and parent.mark == mark else None
    return tuple(ops)


def ended(answer: Any) -> int:
    """Return how many leases somebody has ended there, by what the folder of a lease's children says."""
    return 0 if isinstance(answer, Exception) else int(answer[0] or 0)


def end_children(
    desk: Desk, session: Session, mark: str, kind: EventKind
) -> Generator[list[Any], list[Any], tuple[Any, ...]]:
    """Return the operations that end what stands under a lease; of what is too much for one request, the last ones.

    The others have been carried out then. The lease's holder may not hear of the rest, and go on with the lease: so
    each time it is counted there that somebody has ended some.
    """
    while True:
        endings, closing = yield from _below(desk, session, mark, kind)
        *first, last = _portions(endings)
        for portion in first:
            counts = [folder.count() for folder in dict.fromkeys(one.folder for one in portion)]
            _, failure = yield from desk.commit(session, (), *counts, *_changes(portion))
            if failure is not None:
                break
        else:
            return (*_changes(last), *closing)


@dataclass(slots=True, eq=False)
class Folder:
    """Where it says what stands under a lease."""

    path: str
    ended: int
    version: int

    def count(self) -> Any:
        """Return the operation that counts one more time that somebody ends something there."""
        self.ended += 1
        self.version += 1
        return SetData(self.path, str(self.ended).encode(), self.version - 1)


class Ending(NamedTuple):
    """What ends one lease, and takes it off its parent's list."""

    folder: Folder
    """That list."""
    changes: tuple[Any, ...]

    @property
    def size(self) -> int:
        """About how many bytes it takes to say that, rather than fewer."""
        return sum(
            len(json.dumps([one.resource, one.holder])) + EVENT_BYTES
            if isinstance(one, Event)
            else len(one.path.encode()) + len(getattr(one, "data", b"")) + DELETE_BYTES
            for one in self.changes
        )


def _below(
    desk: Desk, session: Session, mark: str, kind: EventKind
) -> Generator[list[Any], list[Any], tuple[list[Ending], tuple[Any, ...]]]:
    """Return what ends all that stands under a lease, the lowest first; and what goes with the end of the lease itself.

    That is its folder. While the lease lives, its holder must find there how many were ended.
    """
    layout = desk.layout
    path = layout.children(mark)
    names, said = yield [session.call(GetChildren(path, None)), session.call(GetData(path, None))]
    if isinstance(names, Exception) or isinstance(said, Exception):
        return [], ()
    folder = Folder(path, ended(said), said[1].version)
    answers = (yield [session.call(GetData(f"{layout.leases}/{name}", None)) for name in names]) if names else []
    under = {name: child for name, child in zip(names, map(seen, answers), strict=True) if _is_under(child, mark)}
    found = (yield [session.call(GetData(layout.id(child.mark), None)) for child in under.values()]) if under else []
    ids = dict(zip(under, map(identity, found), strict=True))
    endings: list[Ending] = []
    for name in names:
        changes: list[Any] = [Delete(f"{path}/{name}", ANY_VERSION)]
        own = ids.get(name)
        if own is not None and not own.is_spent:
            child = under[name]
            if (over := _in_lock_delay(desk, child)) is not None:
                over.stand_alone()
                node = {field: value for field, value in child.node.items() if field != "parent"}
                changes.append(SetData(f"{layout.leases}/{name}", json.dumps(node).encode(), child.stat.version))
            else:
                if own.said.get("children"):
                    deeper, closing = yield from _below(desk, session, child.mark, kind)
                    endings += deeper
                    changes += closing
                changes += deletion(desk, decode(name), child.mark, own.version)
                changes.append(Event(kind, decode(name), child.token, child.holder, desk.clock.wall_us()))
        endings.append(Ending(folder, tuple(changes)))
    return endings, (Delete(path, ANY_VERSION),)


def _in_lock_delay(desk: Desk, child: Seen) -> Holding | None:
    """Return a lease of ours that has run out before, and whose lock delay goes on; not if a renewal may bring it back."""
    holding = own_holding(desk, child)
    closed, _ = closed_by(desk, child, desk.clock.now())
    return holding if holding is not None and closed is Closed.LOCK_DELAY and not holding.pledges else None


def _portions(endings: list[Ending]) -> list[list[Ending]]:
    """Return them in portions that fit into one request each; there is at least one."""
    portions: list[list[Ending]] = [[]]
    size = 0
    for one in endings:
        size += one.size
        if size > MOST_BYTES and portions[-1]:
            portions.append([])
            size = one.size
        portions[-1].append(one)
    return portions


def _changes(portion: list[Ending]) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(one.changes for one in portion))


def tidy(desk: Desk, main: Session) -> None:
    """Delete the folders of leases that are no more: those whose clients were killed."""
    layout = desk.layout
    marks = main.call(GetChildren(layout.families, None)).get(timeout=TIDY_TIMEOUT)
    # In this order, and by one session: an id's node is there before the folder is, and comes only once.
    ids = [main.call(Exists(layout.id(mark), None)) for mark in marks]
    for mark, found in zip(marks, ids, strict=True):
        if found.get(timeout=TIDY_TIMEOUT) is None:
            main.call(Delete(layout.children(mark), ANY_VERSION))  # which fails as long as something stands there


def _is_under(child: Seen | None, mark: str) -> TypeGuard[Seen]:
    """Whether it is a child of that lease still."""
    return child is not None and child.node.get("parent", [None])[-1] == mark
