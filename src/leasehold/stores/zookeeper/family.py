"""Leases under leases: a child ends with its parent, in the same transaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from leasehold.core.ops import Event
from leasehold.errors import ConfigError
from leasehold.stores.zookeeper.layout import decode, encode
from leasehold.stores.zookeeper.sight import deletion, identity, parent_is_gone, seen
from leasehold.stores.zookeeper.wire import (
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
    from collections.abc import Generator

    from leasehold.core.ops import Acquire, EventKind
    from leasehold.stores.zookeeper.desk import Desk
    from leasehold.stores.zookeeper.ledger import Holding
    from leasehold.stores.zookeeper.session import Session
    from leasehold.stores.zookeeper.sight import Seen


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


def find(desk: Desk, op: Acquire, start: int, seconds: float) -> Generator[list[Any], list[Any], Above | None]:
    """Return the parent that the operation names, noted down as one; None if it is over."""
    assert op.parent is not None
    resource, token = op.parent
    if resource == op.resource:
        raise ConfigError(f"{op.resource!r} can't stand under itself")
    layout, main = desk.layout, desk.main(seconds)
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
    path = layout.id(mark)
    while True:
        _, answer = yield [
            main.call(Create(layout.children(mark), b"", desk.acl, 0)),
            main.call(GetData(path, None)),
        ]
        found = identity(answer)
        if found is None or found.is_spent:
            return None
        if not found.said.get("children"):
            said = json.dumps({**found.said, "children": True}).encode()
            [answer] = yield [main.call(SetData(path, said, found.version))]
            if isinstance(answer, Exception):
                continue
            if holding is not None:
                holding.version = answer.version
        return Above(mark, path, ttl, holding)


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
    """Return the operations that end all that stands under a lease."""
    layout = desk.layout
    folder = layout.children(mark)
    [names] = yield [session.call(GetChildren(folder, None))]
    if isinstance(names, Exception):
        return ()
    answers = (yield [session.call(GetData(f"{layout.leases}/{name}", None)) for name in names]) if names else []
    under = [(name, child) for name, child in zip(names, map(seen, answers), strict=True) if _is_under(child, mark)]
    ids = (yield [session.call(GetData(layout.id(child.mark), None)) for _, child in under]) if under else []
    ops: list[Any] = [Delete(f"{folder}/{name}", ANY_VERSION) for name in names]
    for (name, child), found in zip(under, ids, strict=True):
        own = identity(found)
        if own is None or own.is_spent:
            continue
        if own.said.get("children"):
            ops += yield from end_children(desk, session, child.mark, kind)
        ops += deletion(desk, decode(name), child.mark, own.version)
        ops.append(Event(kind, decode(name), child.token, child.holder, desk.clock.wall_us()))
    return (*ops, Delete(folder, ANY_VERSION))


def _is_under(child: Seen | None, mark: str) -> TypeGuard[Seen]:
    """Whether it is a child of that lease still."""
    return child is not None and child.node.get("parent", [None])[-1] == mark
