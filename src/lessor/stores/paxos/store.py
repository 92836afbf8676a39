"""``paxos://`` and ``paxoss://``: leases on three or five lessor nodes, without any database.

It can't promise waiters their order of arrival, since nodes may see different ones; nor leases longer than the nodes are
told to take, a minute by default, since one that crashed is silent for as long as a lease may last.

The client is the proposer: it asks all nodes at once, and a lease is what a majority of them took in. So an acquire,
a renewal and a release take one round trip, and any minority of the nodes may be dead, slow or cut off.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Release, Renew, Renewed, Revoke, Unknown
from lessor.core.paxos.messages import Look, Scan
from lessor.core.paxos.proposer import Proposer
from lessor.core.timing import UNSLEWED_DRIFT
from lessor.errors import LessorError
from lessor.stores.base import Capability, Guarantees
from lessor.stores.paxos.address import PaxosAddress
from lessor.stores.paxos.tasks import AcquireTask, LookTask, ReleaseTask, RenewTask, RevokeTask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.core.clock import Clock
    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Op, Outcome
    from lessor.stores.base import StoreURL
    from lessor.stores.paxos.subscription import PaxosSubscription
    from lessor.stores.paxos.tasks import Task

PAGE: Final = 1000
KEEP_NS: Final = 60 * SECOND
"""How long something is known about a lease that nobody asks about any more."""
LASTING: Final = frozenset({Granted, Renewed, Unknown})
"""Outcomes after which there is a lease, or may be."""
FAR_NS: Final = 365 * 24 * 3600 * SECOND


class PaxosStore:
    """Leases on one cluster."""

    guarantees = Guarantees(
        store="paxos",
        clock="the slower of each node's CLOCK_MONOTONIC_RAW and CLOCK_BOOTTIME",
        drift=UNSLEWED_DRIFT,
        tokens="increase for good, as long as fewer than a majority of the disks are lost at once",
        failover="grants and tokens survive the loss of a minority, and the restart of all",
        waiting_order="best effort",
        platforms="three or five lessor nodes on Linux",
        capabilities=(
            Capability.CROSS_PROCESS
            | Capability.CROSS_HOST
            | Capability.DURABLE
            | Capability.PUSH
            | Capability.WATCH
            | Capability.GRACE
            | Capability.PATTERNS
            | Capability.DELAY_SHOWN
        ),
        not_promised=(
            "the order of waiters; leases longer than the nodes' --max-ttl, 60 s by default; leases while a majority is down, or silent after a crash for as long as its longest "
            "lease could last"
        ),
        max_ttl_ns=3600 * SECOND,
    )

    def __init__(self, url: StoreURL, clock: Clock) -> None:
        from lessor.stores.paxos.engine import Engine  # noqa: PLC0415 - needs msgspec, and what is declared doesn't

        address = PaxosAddress(url)
        self.url = address.url
        self._address = address
        self._clock = clock
        self._space = f"{address.namespace}/"
        self._engine = Engine(address, clock)
        self._known: dict[tuple[str, str], tuple[Proposer, int]] = {}
        """The proposer of each lease, and when it was last of use."""
        self._parents: weakref.WeakValueDictionary[tuple[str, int], Proposer] = weakref.WeakValueDictionary()
        """Those that something rides on, by name and token: not to be looked for again and again."""
        self._sweep_at = 1000
        _all.add(self)

    def __repr__(self) -> str:
        return f"<PaxosStore {self.url}>"

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Carry out the operations: in one round trip, where they are undisputed."""
        if not ops:
            return []
        now = self._clock.now()
        give_up = now + int(timeout * SECOND)
        try:
            ops = self._meaning(ops, give_up)
            tasks = [self._task(op, now) for op in ops]
            self._engine.run(tasks, give_up)
        except LessorError as error:
            return [Unknown(error)] * len(ops)
        outcomes: list[Outcome] = [task.outcome for task in tasks]  # type: ignore[misc]
        for op, outcome in zip(ops, outcomes, strict=True):
            if type(outcome) not in LASTING and _is_over(op, outcome):
                self._forget((op.resource, op.lease_id))  # type: ignore[union-attr]
        return outcomes

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Return who holds what."""
        looks = [LookTask(Look(self._space + name), self._engine.acceptors) for name in resources]
        self._look(looks, self._clock.now() + int(timeout * SECOND))
        return [self._shown(look) for look in looks]

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Return all live leases under the prefix."""
        give_up = self._clock.now() + int(timeout * SECOND)
        found: list[Record] = []
        after: str | None = ""
        while after is not None:
            look = LookTask(Scan(self._space + prefix, after, PAGE), self._engine.acceptors)
            self._look([look], give_up)
            # Nodes cut their pages at different names: what lies beyond the first cut comes with the next page.
            cuts = [view.records[-1].resource for view in look.views() if view.more]
            after = min(cuts, default=None)
            found += [record for record in look.records() if after is None or record.resource <= after]
        return iter([self._named(record) for record in found])

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:
        """Return who waits for the resource, by the word of a majority."""
        look = LookTask(Look(self._space + resource), self._engine.acceptors)
        self._look([look], self._clock.now() + int(timeout * SECOND))
        return look.queue()

    def subscribe(self, prefix: str | None = None) -> PaxosSubscription:
        """Be told, over connections of its own."""
        from lessor.stores.paxos.subscription import PaxosSubscription  # noqa: PLC0415

        return PaxosSubscription(self._address, self._clock, self._space, prefix, self._engine.heard)

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.close()

    def forget(self) -> None:
        """In a forked child: what there is belongs to the parent."""
        self._engine.forget()
        self._known.clear()
        self._parents.clear()

    def _meaning(self, ops: Sequence[Op], give_up: int) -> Sequence[Op]:
        """Say which lease is to be revoked: a request that comes late, or again, must not end the next one."""
        revokes = [op for op in ops if type(op) is Revoke and op.token is None]
        if not revokes:
            return ops
        others = {op.resource for op in ops if type(op) is not Revoke}  # of the same batch, which come first
        looks = {
            op.resource: LookTask(Look(self._space + op.resource), self._engine.acceptors)
            for op in revokes
            if op.resource not in others
        }
        self._look(list(looks.values()), give_up)
        tokens = {name: max([record.token for record in look.records()], default=0) for name, look in looks.items()}
        return [
            op._replace(token=tokens.get(op.resource)) if type(op) is Revoke and op.token is None else op for op in ops
        ]

    def _look(self, looks: list[LookTask], give_up: int) -> None:
        self._engine.run(looks, give_up)
        for look in looks:
            if isinstance(look.outcome, Unknown):
                raise look.outcome.error

    def _shown(self, look: LookTask) -> Record | None:
        records = look.records()
        return self._named(records[0]._replace(queue=tuple(look.queue()))) if records else None

    def _named(self, record: Record) -> Record:
        """Return the record with the names that its users know."""
        space = len(self._space)
        parent = record.parent and (record.parent[0][space:], record.parent[1])
        return record._replace(resource=record.resource[space:], parent=parent)

    def _task(self, op: Op, now: int) -> Task:
        space = self._space
        if isinstance(op, Acquire):
            wanted = Acquire(space + op.resource, *op[1:])
            parent = None
            if op.parent is not None:
                wanted = wanted._replace(parent=(space + op.parent[0], op.parent[1]))
                parent = self._parent(op.parent) if op.ttl_ns == 0 else None
            return AcquireTask(self._proposer(op, now, wanted), op, parent)
        if isinstance(op, Release):
            return ReleaseTask(self._proposer(op, now), Release(space + op.resource, *op[1:]))
        if isinstance(op, Renew):
            proposer = self._proposer(op, now)
            if not proposer.token:
                proposer.resume(op.token, now + FAR_NS)
            return RenewTask(proposer, op)
        return RevokeTask(Revoke(space + op.resource, *op[1:]), self._engine.acceptors)

    def _proposer(self, op: Acquire | Renew | Release, now: int, wanted: Acquire | None = None) -> Proposer:
        """Return the proposer of a lease: the one there is, or a fresh one. It may be ``wanted`` on new terms."""
        key = (op.resource, op.lease_id)
        known = self._known.get(key)
        if known is None:
            engine = self._engine
            if wanted is None:  # somebody else has acquired it
                wanted = Acquire(self._space + op.resource, op.lease_id, "", op.ttl_ns if isinstance(op, Renew) else 0)
            proposer = Proposer(wanted, acceptors=engine.acceptors, drift=UNSLEWED_DRIFT, ballots=engine.ballots)
        else:
            proposer = known[0]
            if wanted is not None:
                proposer.op = wanted
        self._known[key] = (proposer, now)
        if len(self._known) > self._sweep_at:
            self._sweep(now)
        return proposer

    def _forget(self, key: tuple[str, str]) -> None:
        """Forget a lease that is over, and what rode on it."""
        known = self._known.pop(key, None)
        if known is not None and known[0].session is not None:
            for rider in list(known[0].session.riders.values()):
                self._known.pop((rider.op.resource.removeprefix(self._space), rider.op.lease_id), None)

    def _parent(self, parent: tuple[str, int]) -> Proposer | None:
        """Return the proposer of a lease that something is to ride on; None: it is not one of this store's."""
        name, token = parent
        found = self._parents.get(parent)
        if found is None or found.token != token:
            mine = [proposer for key, (proposer, _) in list(self._known.items()) if key[0] == name]
            found = next((proposer for proposer in mine if proposer.token == token), None)
            if found is not None:
                self._parents[parent] = found
        return found

    def _sweep(self, now: int) -> None:
        """Forget what nobody asks about any more."""
        for key, (proposer, at_ns) in list(self._known.items()):
            deadline = proposer.rides.root.deadline_ns if proposer.rides is not None else proposer.deadline_ns
            if max(at_ns, min(deadline, now)) + KEEP_NS < now:
                self._known.pop(key, None)
        self._sweep_at = 2 * len(self._known) + 1000


def _is_over(op: Op, outcome: Outcome) -> bool:
    """Whether nothing more is to be known about a lease that isn't lasting."""
    if isinstance(op, Acquire):
        return not (isinstance(outcome, Held) and op.queue)
    return not isinstance(op, Revoke)


_all: weakref.WeakSet[PaxosStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in _all:
        store.forget()


os.register_at_fork(after_in_child=_after_fork)
