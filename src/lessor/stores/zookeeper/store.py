"""``zookeeper://``: leases for all hosts that reach a ZooKeeper ensemble.

It can't promise that a lease outlives the session of its client: a client that is cut off for longer than the TTL has
lost it. Nor that the TTL is exact: a dead client's lease is free up to two ticks later.

A lease is an ephemeral node, and its token is the zxid at which that was made. The session's timeout is the TTL, and a
renewal is a write of ours: what kazoo's own pings are answered with proves nothing.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.ops import Acquire, Unknown
from lessor.core.timing import SLEWED_DRIFT
from lessor.errors import LessorError, StoreUnavailable
from lessor.stores.base import Capability, Guarantees
from lessor.stores.gathering import Gathering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lessor.core.clock import Clock
    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Op, Outcome
    from lessor.stores.base import StoreURL
    from lessor.stores.zookeeper.session import Session
    from lessor.stores.zookeeper.subscription import ZooKeeperSubscription

PAGE = 500
"""Resources that a scan reads at a time."""
QUESTION_NS = 2 * SECOND
"""After so long without an answer a question is asked again, elsewhere."""


class ZooKeeperStore:
    """Leases on an ensemble, or on a single server."""

    guarantees = Guarantees(
        store="zookeeper",
        clock="the leader's monotonic clock, and the client's own for leases that it doesn't renew",
        drift=SLEWED_DRIFT,
        tokens="the zxid of the grant: increase as long as the ensemble keeps its data, and beyond that above what the asker has seen",
        failover="grants survive the loss of a minority of the servers, and the change of the leader",
        waiting_order="strict",
        platforms="ZooKeeper 3.5 or newer",
        capabilities=(
            Capability.CROSS_PROCESS
            | Capability.CROSS_HOST
            | Capability.DURABLE
            | Capability.PUSH
            | Capability.WATCH
            | Capability.PATTERNS
        ),
        not_promised=(
            "a TTL longer than the servers' maxSessionTimeout less a tick (refused), a grace period; "
            "a minimum hold, a lock delay or a handover beyond the end of the client's session; "
            "to tell other clients a lock delay from a lease that is held; "
            "a soft limit more exact than the hosts' wall clocks agree; a bound on the queue against those who set none"
        ),
        min_ttl_ns=SECOND // 2,
        max_ttl_by="and no more than the servers' maxSessionTimeout less a tick: 38 s with their default settings",
    )

    def __init__(self, url: StoreURL, clock: Clock) -> None:
        # These need kazoo, and what is declared above must be readable without it.
        from lessor.stores.zookeeper import driving, reading, steps, subscription, trouble  # noqa: F401, PLC0415
        from lessor.stores.zookeeper.address import ZooKeeperAddress  # noqa: PLC0415
        from lessor.stores.zookeeper.desk import Desk  # noqa: PLC0415

        address = ZooKeeperAddress(url)
        self.url = address.url(url)
        self._clock = clock
        self._desk = desk = Desk(address, clock)
        self._gathering = Gathering("zookeeper", self._carry_out, clock)
        if desk.bounds is not None:
            longest = (desk.bounds.longest - desk.bounds.tick) * MILLISECOND
            declared = type(self).guarantees
            self.guarantees = declared._replace(max_ttl_ns=min(longest, declared.max_ttl_ns))
        _stores.add(self)

    def __repr__(self) -> str:
        return f"<ZooKeeperStore {self.url}>"

    # --- the contract ---------------------------------------------------------------------------------------------

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Carry out the operations: those on different resources side by side, those on one in order."""
        from lessor.stores.zookeeper.steps import is_plain  # noqa: PLC0415 - as above

        now = self._clock.now()
        give_up = now + int(timeout * SECOND)
        if ops and all(is_plain(self._desk, op, now) for op in ops):
            return self._gathering.apply(ops, give_up)
        return self._carry_out(ops, give_up)

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Return who holds what."""
        from lessor.stores.zookeeper import reading  # noqa: PLC0415 - as above

        if not resources:
            return []
        give_up = self._clock.now() + int(timeout * SECOND)
        found: list[Record | None] = self._ask(lambda main: reading.read(self._desk, main, resources), give_up)
        return found

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Return all live leases under the prefix; some hundred at a time are of about one moment."""
        from lessor.stores.zookeeper import reading  # noqa: PLC0415 - as above

        give_up = self._clock.now() + int(timeout * SECOND)
        names: list[str] = self._ask(lambda main: reading.names(self._desk, main, prefix), give_up)
        found: list[Record] = []
        for at in range(0, len(names), PAGE):
            page = names[at : at + PAGE]
            records = self._ask(lambda main, page=page: reading.read(self._desk, main, page), give_up)
            found += [record for record in records if record is not None]
        return iter(found)

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:
        """Return who waits for the resource."""
        from lessor.stores.zookeeper import reading  # noqa: PLC0415 - as above

        give_up = self._clock.now() + int(timeout * SECOND)
        found: list[Contender] = self._ask(lambda main: reading.waiters(self._desk, main, resource), give_up)
        return found

    def subscribe(self, prefix: str | None = None) -> ZooKeeperSubscription:
        """Be told."""
        from lessor.stores.zookeeper.subscription import ZooKeeperSubscription  # noqa: PLC0415 - as above

        return ZooKeeperSubscription(self._desk, prefix)

    def close(self) -> None:
        """Let go of the sessions. Leases that are still held stay for their time."""
        self._desk.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """In a forked child: what there is belongs to the parent."""
        self._desk.abandon()

    def _carry_out(self, ops: Sequence[Op], give_up: int) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        waves: list[dict[int, Op]] = []
        turns: dict[str, int] = {}
        for at, op in enumerate(ops):
            turn = turns.get(op.resource, 0)
            turns[op.resource] = turn + 1
            if turn == len(waves):
                waves.append({})
            waves[turn][at] = op
        for wave in waves:
            self._apply(wave, give_up, outcomes)
            apart = {at: op for at, op in wave.items() if at not in outcomes}
            if apart:
                self._apply(apart, give_up, outcomes, together=False)
        return [outcomes[at] for at in range(len(ops))]

    def _apply(self, wave: dict[int, Op], give_up: int, outcomes: dict[int, Outcome], *, together: bool = True) -> None:
        """Carry out operations on different resources. What could not be done together with others has no outcome."""
        from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415 - as above

        from lessor.stores.zookeeper.driving import drive  # noqa: PLC0415
        from lessor.stores.zookeeper.steps import steps_of  # noqa: PLC0415

        start = self._clock.now()
        steps, whose = steps_of(self._desk, wave, start, give_up, together=together)

        def failed(at: int, error: Exception) -> list[Unknown]:
            ops = [wave[one] for one in whose[at]]
            if isinstance(error, KazooTimeoutError):
                for session in self._desk.concerned(ops[0]):
                    session.unanswered(start, self._clock.now())
            return [self._unknown(op, error) for op in ops]

        for members, result in zip(whose, drive(self._clock, give_up, steps, failed), strict=True):
            answers = result if isinstance(result, list) else [result]
            outcomes.update((at, answer) for at, answer in zip(members, answers, strict=True) if answer is not None)

    def _unknown(self, op: Op, error: Exception) -> Unknown:
        """Say that there was no answer; and see to it that what it may have left behind doesn't stay."""
        from lessor.stores.zookeeper.trouble import explain  # noqa: PLC0415 - as above

        desk = self._desk
        if isinstance(op, Acquire) and op.lease_id in desk.doubts:
            desk.settle_later(op, self.apply)
        return Unknown(explain(error, desk.address))

    def _ask(self, question: Callable[..., Any], give_up: int) -> Any:
        """Put a question to the main session, again if the connection is lost meanwhile, and return the answer."""
        from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415 - as above

        from lessor.stores.zookeeper.driving import drive  # noqa: PLC0415
        from lessor.stores.zookeeper.trouble import explain  # noqa: PLC0415

        clock = self._clock
        while True:
            start = clock.now()
            main = self._desk.main(give_up)

            def failed(_at: int, error: Exception, main: Session = main, start: int = start) -> LessorError:
                if isinstance(error, KazooTimeoutError):
                    main.unanswered(start, clock.now())
                return explain(error, self._desk.address)

            [answer] = drive(clock, min(give_up, start + QUESTION_NS), [question(main)], failed)
            if not isinstance(answer, LessorError):
                main.answered()
                return answer
            if clock.now() >= give_up or not isinstance(answer, StoreUnavailable):
                raise answer


_stores: weakref.WeakSet[ZooKeeperStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store.forget()
    _stores.clear()


os.register_at_fork(after_in_child=_after_fork)
