"""Renew: one write renews all leases of a session, and checks in the same transaction that each is as we know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lessor.core.ops import RESERVATION_NS, Loss, Lost, Renewed
from lessor.stores.zookeeper import family
from lessor.stores.zookeeper.sight import identity, seen
from lessor.stores.zookeeper.wire import ANY_VERSION, CheckVersion, GetData, Multi, SetData, Sync

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lessor.core.ops import Renew, RenewOutcome
    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.ledger import Holding
    from lessor.stores.zookeeper.sight import Identity
    from lessor.stores.zookeeper.wire import Failure


def renew_all(
    desk: Desk, ops: Sequence[Renew], holdings: Sequence[Holding], start: int
) -> Generator[list[Any], list[Any], list[RenewOutcome]]:
    """Renew leases of one session."""
    may = desk.ledger.pledge(holdings, start)
    pledged = [holding for holding, allowed in zip(holdings, may, strict=True) if allowed]
    try:
        outcomes: dict[int, RenewOutcome] = {
            at: Lost(holding.ended or Loss.EXPIRED) for at, holding in enumerate(holdings) if not may[at]
        }
        together = [at for at in range(len(ops)) if may[at] and not holdings[at].revoked]
        while together:
            failure = yield from _send(desk, [holdings[at] for at in together])
            if failure is None:
                outcomes |= {at: _renewed(desk, ops[at], holdings[at], start) for at in together}
                break
            apart = [at for at in together if desk.layout.id(holdings[at].mark) == failure.path] or together
            for at in apart:
                outcomes[at] = yield from renew_one(desk, ops[at], holdings[at], start)
            together = [at for at in together if at not in outcomes]
        for at, op in enumerate(ops):
            if at not in outcomes:
                outcomes[at] = yield from renew_one(desk, op, holdings[at], start)
        return [outcomes[at] for at in range(len(ops))]
    finally:
        desk.ledger.redeem(pledged)


def renew_one(desk: Desk, op: Renew, holding: Holding, start: int) -> Generator[list[Any], list[Any], RenewOutcome]:
    """Renew one lease, or say why not."""
    session = holding.session
    path = desk.layout.id(holding.mark)
    while True:
        if holding.ended is not None:
            return Lost(holding.ended)
        if not holding.alive(start) or session.id != holding.session_id:
            return Lost(Loss.EXPIRED)
        if not holding.revoked:
            failure = yield from _send(desk, [holding])
            if failure is None:
                return _renewed(desk, op, holding, start)
            if failure.path != path:  # the session, or the parent
                _end_soon(desk, holding)
                return Lost(Loss.EXPIRED)
        [answer] = yield [session.call(GetData(path, None))]
        _learn(desk, holding, identity(answer))
        if holding.revoked and holding.ended is None:
            return Lost(Loss.REVOKED, max(0, holding.until_ns() - desk.clock.now()))


def _send(desk: Desk, holdings: Sequence[Holding]) -> Generator[list[Any], list[Any], Failure | None]:
    """Send the write, and return what stood in its way. If leases under these were ended, see which before it counts."""
    transaction = _transaction(desk, holdings)
    session = holdings[0].session
    parents = [holding for holding in holdings if holding.has_children]
    results, *counts = yield [
        session.call(transaction),
        *(session.call(GetData(desk.layout.children(holding.mark), None)) for holding in parents),
    ]
    failure = transaction.failure(results)
    if failure is None:
        for holding, answer in zip(parents, counts, strict=True):
            count = family.ended(answer)
            if count != holding.children_ended:
                yield from _look_below(desk, holding)
                holding.children_ended = count
    return failure


def _look_below(desk: Desk, holding: Holding) -> Generator[list[Any], list[Any], None]:
    """See what has become of all that rides on a lease."""
    riders = [one for one in desk.ledger.all() if one.ended is None and one.rides_on(holding)]
    answers = (yield [one.session.call(GetData(desk.layout.id(one.mark), None)) for one in riders]) if riders else []
    for one, answer in zip(riders, answers, strict=True):
        _learn(desk, one, identity(answer))


def _learn(desk: Desk, holding: Holding, found: Identity | None) -> None:
    """Take in what has become of a lease that is not as we knew it."""
    if found is None:
        desk.ledger.end(holding, Loss.EXPIRED)
    elif found.is_tombstone:
        desk.ledger.end(holding, Loss.RELEASED)
    elif found.is_spent:
        desk.ledger.end(holding, Loss.REVOKED)
    else:
        holding.version = found.version
        holding.has_children |= "children" in found.said
        if "revoked" in found.said and not holding.revoked:
            holding.revoke()
            desk.reaper.note(holding.until_ns())


def _end_soon(desk: Desk, holding: Holding) -> None:
    """Let a lease go whose parent is over: in a moment, so that its holder is told before anybody else gets it."""
    desk.ledger.end(holding, Loss.EXPIRED)
    holding.closed_until_ns = desk.clock.now() + max(RESERVATION_NS, holding.lock_delay_ns)
    desk.reaper.note(holding.closed_until_ns)


def lost(desk: Desk, op: Renew, give_up: int) -> Generator[list[Any], list[Any], Lost]:
    """Say why there is nothing to renew."""
    ended = desk.ledger.ended(op.lease_id)
    if ended is not None:
        return Lost(ended)
    main = desk.main(give_up)
    _, answer = yield [main.call(Sync(desk.layout.root)), main.call(GetData(desk.layout.lease(op.resource), None))]
    lease = seen(answer)
    return Lost(Loss.TAKEN if lease is not None and lease.token > op.token else Loss.EXPIRED)


def _transaction(desk: Desk, holdings: Sequence[Holding]) -> Multi:
    layout = desk.layout
    parents = {holding.node["parent"][2] for holding in holdings if "parent" in holding.node}
    return Multi(
        (
            SetData(layout.session(holdings[0].session_id), b"", ANY_VERSION),
            *(CheckVersion(layout.id(holding.mark), holding.version) for holding in holdings),
            *(CheckVersion(layout.id(mark), ANY_VERSION) for mark in parents),
        )
    )


def _renewed(desk: Desk, op: Renew, holding: Holding, start: int) -> Renewed:
    holding.session.answered()
    trusted = desk.trusted_ns(holding.session) - holding.lock_delay_ns
    holding.expiry_ns = max(holding.expiry_ns, start + min(op.ttl_ns, trusted))
    holding.renewals += 1
    holding.renewed_us = desk.clock.wall_us()
    return Renewed(holding.until_ns() - start, holding.children_ended)
