"""What is to be done for a batch: whatever can be one transaction is one thing, the rest goes side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lessor.core.ops import Acquire, Release, Renew
from lessor.stores.zookeeper import acquiring, ending, renewing

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from lessor.core.ops import Op
    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.ledger import Holding

    Group = tuple[type[Op], int]
    Member = tuple[int, Any, Holding | None]
    Steps = Generator[list[Any], list[Any], Any]

MOST_GRANTS: Final = 100
"""How many are made in one transaction."""


def is_plain(desk: Desk, op: Op, now: int) -> bool:
    """Whether it is likely to take one transaction, which it may share with what other threads ask for."""
    if isinstance(op, Acquire):
        return acquiring.is_plain(desk, op)
    holding = desk.ledger.by_id.get(op.lease_id) if isinstance(op, Release) else None
    return holding is not None and isinstance(op, Release) and ending.is_simple(holding, op, now)


def steps_of(
    desk: Desk, wave: dict[int, Op], start: int, give_up: int, *, together: bool
) -> tuple[list[Steps], list[list[int]]]:
    """Return what is to be done, and for which operations. ``together``: whether grants may share a transaction."""
    steps: list[Steps] = []
    whose: list[list[int]] = []
    groups: dict[Group, list[Member]] = {}
    for at, op in wave.items():
        holding = None if isinstance(op, Acquire) else desk.ledger.by_id.get(getattr(op, "lease_id", ""))
        group = _group(desk, op, holding, start, together=together)
        if group is not None:
            groups.setdefault(group, []).append((at, op, holding))
        else:
            steps.append(_alone(desk, op, start, give_up))
            whose.append([at])
    for (kind, _), members in groups.items():
        for part in _portions(kind, members):
            places, ops, holdings = zip(*part, strict=True)
            whose.append([*places])
            if kind is Renew:
                steps.append(renewing.renew_all(desk, ops, holdings, start))
            elif kind is Release:
                steps.append(ending.release_all(desk, ops, holdings, start, give_up))
            elif len(ops) > 1:
                steps.append(acquiring.acquire_all(desk, ops, start, give_up))
            else:
                steps.append(acquiring.acquire(desk, ops[0], start, give_up))
    return steps, whose


def _group(desk: Desk, op: Op, holding: Holding | None, start: int, *, together: bool) -> Group | None:
    """Return what it can share a transaction with: others of the same kind, in the same session."""
    if isinstance(op, Acquire):
        return (Acquire, op.ttl_ns + op.lock_delay_ns) if together and acquiring.is_plain(desk, op) else None
    if holding is None:
        return None
    if isinstance(op, Renew):
        joins = holding.ended is None and holding.resource == op.resource
    else:
        joins = isinstance(op, Release) and ending.is_simple(holding, op, start)
    return (type(op), holding.session_id) if joins else None


def _alone(desk: Desk, op: Op, start: int, give_up: int) -> Steps:
    if isinstance(op, Acquire):
        return acquiring.acquire(desk, op, start, give_up)
    if isinstance(op, Renew):
        return renewing.lost(desk, op, give_up)
    if isinstance(op, Release):
        return ending.release(desk, op, start, give_up)
    return ending.revoke(desk, op, give_up)


def _portions(kind: type[Op], members: list[Member]) -> Iterator[list[Member]]:
    size = MOST_GRANTS if kind is Acquire else len(members)
    for first in range(0, len(members), size):
        yield members[first : first + size]
