"""Read and scan: leases as people may see them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lessor.core.clock import MICROSECOND, MILLISECOND
from lessor.core.lease import Contender, Record, decode_metadata
from lessor.stores.zookeeper.layout import decode, priority_of
from lessor.stores.zookeeper.sight import closed_by, held_for_ns, in_order, own_holding, parent_is_gone, seen
from lessor.stores.zookeeper.wire import Exists, GetChildren, GetData, Sync

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.session import Session
    from lessor.stores.zookeeper.sight import Seen


def read(desk: Desk, main: Session, resources: Sequence[str]) -> Generator[list[Any], list[Any], list[Record | None]]:
    """Return who holds what, not earlier than when it was asked."""
    layout = desk.layout
    calls = [main.call(Sync(layout.root))]
    for resource in resources:
        calls.append(main.call(GetData(layout.lease(resource), None)))
        calls.append(main.call(GetChildren(layout.queue(resource), None)))
    answers = (yield calls)[1:]
    records: list[Record | None] = []
    for at in range(len(resources)):
        lease = seen(answers[2 * at])
        records.append(lease and (yield from _record(desk, main, lease, in_order(answers[2 * at + 1]))))
    return records


def waiters(desk: Desk, main: Session, resource: str) -> Generator[list[Any], list[Any], list[Contender]]:
    """Return who waits for a resource, in the order of their turns."""
    layout = desk.layout
    _, found = yield [main.call(Sync(layout.root)), main.call(GetChildren(layout.queue(resource), None))]
    return (yield from _contenders(desk, main, resource, in_order(found)))


def _contenders(
    desk: Desk, main: Session, resource: str, names: list[str]
) -> Generator[list[Any], list[Any], list[Contender]]:
    queue = desk.layout.queue(resource)
    found = (yield [main.call(GetData(f"{queue}/{name}", None)) for name in names]) if names else []
    contenders = []
    for name, answer in zip(names, found, strict=True):
        if not isinstance(answer, Exception):
            said = json.loads(answer[0])
            contenders.append(Contender(said["holder"], said["since"], priority_of(name)))
    return contenders


def names(desk: Desk, main: Session, prefix: str) -> Generator[list[Any], list[Any], list[str]]:
    """Return the resources under a prefix that have a lease, in order."""
    _, found = yield [main.call(Sync(desk.layout.root)), main.call(GetChildren(desk.layout.leases, None))]
    if isinstance(found, Exception):
        return []
    return sorted(name for name in map(decode, found) if name.startswith(prefix))


def _record(
    desk: Desk, main: Session, lease: Seen, waiters: list[str]
) -> Generator[list[Any], list[Any], Record | None]:
    now = desk.clock.now()
    remaining, closed = held_for_ns(desk, lease, now), None
    if remaining <= 0:
        closed, remaining = closed_by(desk, lease, now)
        if closed is None:
            return None
        if own_holding(desk, lease) is None:  # since when it is closed, the servers' wall clock says
            since_ns = lease.stat.mtime * MILLISECOND
            remaining = max(1, remaining - max(0, desk.clock.wall_us() * MICROSECOND - since_ns))
    elif (yield from parent_is_gone(desk, main, lease)):
        return None
    node = lease.node
    record = Record(
        resource=node["resource"],
        holder=lease.holder,
        token=lease.token,
        ttl_ns=lease.ttl_ns,
        remaining_ns=remaining,
        granted_us=node["granted"],
        renewed_us=node["granted"],
        renewals=0,
        lock_delay_ns=node.get("lock_delay", 0),
        hold_at_least_ns=node.get("hold_at_least", 0),
        queue=tuple((yield from _contenders(desk, main, node["resource"], waiters))),
        closed=closed,
    )
    if closed is not None:
        return record
    renewed_us, renewals = yield from _renewed(desk, main, lease)
    parent = node.get("parent")
    return record._replace(
        renewed_us=renewed_us,
        renewals=renewals,
        metadata=decode_metadata(node.get("metadata", "")),
        parent=(parent[0], parent[1]) if parent else None,
        soft_ns=node.get("soft", 0),
        grace_ns=node.get("grace", 0),
        revoked=bool(node.get("revoked")),
    )


def _renewed(desk: Desk, main: Session, lease: Seen) -> Generator[list[Any], list[Any], tuple[int, int]]:
    """Return when it was renewed last, and how often. Of others' we only see when their session was."""
    holding = own_holding(desk, lease)
    if holding is not None:
        return holding.renewed_us, holding.renewals
    [beat] = yield [main.call(Exists(desk.layout.session(lease.stat.ephemeralOwner), None))]
    if beat is None or beat.mzxid <= lease.stat.czxid:
        return lease.node["granted"], 0
    return beat.mtime * 1000, 1
