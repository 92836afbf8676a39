"""``redis://``, ``redis+sentinel://`` and ``redis+cluster://``: leases for all hosts that reach a Redis or Valkey server.

It can't promise that a grant survives a failover: a replica that takes over may not have received it. Nor can it know
when the server's clock is set forward. Tokens go on rising, so guard the writes with them.

Decisions are made in the server, by the scripts beside this module, and one call carries a whole batch.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from lessor.core.clock import MICROSECOND, MILLISECOND, SECOND
from lessor.core.lease import Closed
from lessor.core.ops import (
    LONGEST_RESERVATION_NS,
    Acquire,
    Granted,
    Held,
    Loss,
    Lost,
    NotHeld,
    Release,
    Released,
    Renew,
    Renewed,
    Unknown,
)
from lessor.core.timing import SLEWED_DRIFT
from lessor.errors import ConfigError, LessorError
from lessor.stores.answers import contenders, record, refusal
from lessor.stores.base import Capability, Guarantees
from lessor.stores.gathering import Gathering
from lessor.stores.limit import Limit
from lessor.stores.redis.trouble import Evicting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lessor.core.clock import Clock
    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Op, Outcome
    from lessor.stores.base import StoreURL
    from lessor.stores.redis.subscription import RedisSubscription

PAGE = 500
"""Names that one call of a scan looks at: others get their turn in between."""
ALL_RENEWED = 11
HELD = frozenset({2, 9, 12, 13})
REFUSED = frozenset({9, 13})
CLOSED = frozenset({12, 13})
RECORD_FIELDS = 19
WAITER_FIELDS = 3
APPLY = ("head.lua", "quick.lua", "turn.lua", "index.lua", "bulk.lua", "table.lua", "apply.lua")
RELEASED = Released()
READ = ("head.lua", "table.lua", "read.lua")


class RedisStore:
    """Leases on one server at a time: the master, wherever it is."""

    guarantees = Guarantees(
        store="redis",
        clock="the server's wall clock (TIME)",
        drift=SLEWED_DRIFT,
        tokens="increase while the server keeps its data, and beyond that by its wall clock",
        failover=(
            "followed (Sentinel, Cluster); a grant may be lost when a replica takes over that had not received it, "
            "which ?replicas= makes less likely; tokens go on by the server's clock"
        ),
        waiting_order="strict",
        platforms="Redis 6.2 or newer, Valkey; maxmemory-policy noeviction, or any with ?eviction=accept",
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
            "exclusion over a failover, a restart that loses data, or a step of the server's clock forward; "
            "with ?eviction=accept, exclusion when the server's memory runs short"
        ),
        min_ttl_ns=100 * MILLISECOND,  # the first call connects, and may have to ask for the way before that
    )

    def __init__(self, url: StoreURL, clock: Clock) -> None:
        # These need redis-py, and what is declared above must be readable without it.
        from lessor.stores.redis.address import RedisAddress  # noqa: PLC0415
        from lessor.stores.redis.connection import Connections  # noqa: PLC0415
        from lessor.stores.redis.replication import Replication  # noqa: PLC0415
        from lessor.stores.redis.request import Requests  # noqa: PLC0415
        from lessor.stores.redis.script import Script  # noqa: PLC0415
        from lessor.stores.redis.topology import topology  # noqa: PLC0415

        self._address = address = RedisAddress(url)
        self.url = address.url(url)
        self._clock = clock
        if address.accepts_eviction:
            self.guarantees = _evicting(self.guarantees)
        self._prefix = f"{{lessor:{url.namespace}}}:"
        counter = f"{self._prefix}token"
        self._where = topology(address, counter)
        self._connections = Connections(address, self._where)
        self._applying = Script(self._connections, *APPLY)
        self._reading = Script(self._connections, *READ)
        self._requests = Requests("EVALSHA", self._applying.sha, "1", counter, self._prefix)
        self._questions = Requests("EVALSHA", self._reading.sha, "1", counter, self._prefix)
        self._replication = Replication(address, self._prefix) if address.replicas else None
        self._gathering = Gathering("redis", self._apply_together, clock)
        self._now_us: Callable[[], int] | None = None
        """For tests: the time that the server is to use."""

    def __repr__(self) -> str:
        return f"<RedisStore {self.url}>"

    # --- the contract ---------------------------------------------------------------------------------------------

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Carry out the operations in one call."""
        if not ops:
            return []
        if self._connections.exhausted and type(ops[0]) is not Renew:
            return self._gathering.apply(ops, self._clock.now() + int(timeout * SECOND))
        return self._apply(ops, timeout, urgent=type(ops[0]) is Renew)

    def _apply(self, ops: Sequence[Op], timeout: float, *, urgent: bool) -> list[Outcome]:
        request = self._requests.of(ops, "" if self._now_us is None else self._time())
        try:
            if self._replication is not None and self._replication.concerns(ops):
                return self._replicated(ops, request, timeout, urgent=urgent)
            answers = self._applying.run(request, Limit(self._clock, timeout), urgent=urgent, grants=_grants(ops))
        except Evicting as error:
            return self._apply_rest(ops, error, timeout)
        except LessorError as error:
            return [Unknown(error)] * len(ops)
        return _outcomes(ops, answers)

    def _apply_rest(self, ops: Sequence[Op], evicting: Evicting, timeout: float) -> list[Outcome]:
        """Carry out all but the acquires, which were not sent."""
        rest = [op for op in ops if type(op) is not Acquire]
        done = iter(self._apply(rest, timeout, urgent=False) if rest else [])
        refused = Unknown(ConfigError(str(evicting)))
        return [refused if type(op) is Acquire else next(done) for op in ops]

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Return who holds what, all at one moment."""
        if not resources:
            return []
        answers = self._read(("names", *resources), Limit(self._clock, timeout))
        at = 0
        records: list[Record | None] = []
        while at < len(answers):
            one, at = _record(answers, at)
            records.append(one)
        return records

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Return all live leases under the prefix; some hundred at a time are of one moment."""
        limit = Limit(self._clock, timeout)
        found: list[Record] = []
        after = ""
        while True:
            answers = self._read(("scan", prefix, after, str(PAGE)), limit)
            after = answers[0]
            at = 1
            while at < len(answers):
                one, at = _record(answers, at)
                if one is not None:
                    found.append(one)
            if not after:
                return iter(found)

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:
        """Return who waits for the resource."""
        return contenders(_waiters(self._read(("waiters", resource), Limit(self._clock, timeout))))

    def subscribe(self, prefix: str | None = None) -> RedisSubscription:
        """Be told, over a connection of its own."""
        from lessor.stores.redis.subscription import RedisSubscription  # noqa: PLC0415 - as above

        return RedisSubscription(self._address, self._where, self._clock, self._prefix, prefix)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _apply_together(self, ops: Sequence[Op], give_up: int) -> list[Outcome]:
        """Carry out what several threads ask that found no connection, over the next one that is free."""
        return self._apply(ops, max(give_up - self._clock.now(), 1) / SECOND, urgent=False)

    def _replicated(self, ops: Sequence[Op], request: bytes, timeout: float, *, urgent: bool) -> list[Outcome]:
        """Carry out the operations; a grant or renewal that too few replicas have doesn't count."""
        replication = self._replication
        assert replication is not None
        limit = Limit(self._clock, timeout)
        answers, *acknowledged = self._applying.run(
            request + replication.request(timeout),
            limit,
            answers=1 + replication.ANSWERS,
            urgent=urgent,
            grants=_grants(ops),
        )
        outcomes = _outcomes(ops, answers)
        shortage = replication.shortage(acknowledged, timeout)
        if shortage is None:
            return outcomes
        undo = [
            _undone(op, outcome)
            for op, outcome in zip(ops, outcomes, strict=True)
            if type(op) is Acquire and type(outcome) is Granted
        ]
        if undo:
            with contextlib.suppress(LessorError):  # then they run out by themselves
                self._applying.run(self._requests.of(undo, self._time()), limit)
        return [Unknown(shortage) if type(o) in (Granted, Renewed) else o for o in outcomes]

    def _read(self, words: tuple[str, ...], limit: Limit) -> list[Any]:
        answers: list[Any] = self._reading.run(self._questions.words(self._time(), *words), limit)
        return answers

    def _time(self) -> str:
        return "" if self._now_us is None else str(self._now_us())


def _grants(ops: Sequence[Op]) -> bool:
    return any(type(op) is Acquire for op in ops)


def _evicting(declared: Guarantees) -> Guarantees:
    """Return what is promised on a server that may drop keys."""
    return declared._replace(
        capabilities=declared.capabilities & ~Capability.DURABLE,
        tokens="increase by the server's wall clock where it has dropped them",
        not_promised=(
            "exclusion when the server's memory runs short: it may drop a lease that is held (eviction=accept); nor "
            "over a failover, a restart that loses data, or a step of the server's clock forward"
        ),
    )


def _undone(op: Acquire, granted: Granted) -> Release:
    """Return what takes a grant back. What was handed over with it stays for its holder, which will ask again."""
    if not granted.state:
        return Release(op.resource, op.lease_id, abandon=True)
    kept = min(op.ttl_ns, LONGEST_RESERVATION_NS)
    return Release(op.resource, op.lease_id, op.holder, abandon=True, state=granted.state, reserve_ns=kept)


def _outcomes(ops: Sequence[Op], answers: list[Any]) -> list[Outcome]:
    """Return the script's answers as outcomes."""
    if answers[0] == ALL_RENEWED:
        return [Renewed(answers[1] * MICROSECOND)] * len(ops)
    return _each(ops, answers)


def _each(ops: Sequence[Op], answers: list[Any]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    at = 0
    for op in ops:
        kind, first = answers[at], answers[at + 1]
        at += 2
        if kind == 1:
            outcomes.append(Granted(first, answers[at] * MICROSECOND))
            at += 1
        elif kind == 5:
            outcomes.append(Released(first * MICROSECOND) if first else RELEASED)
        elif kind == 3:
            outcomes.append(Renewed(first * MICROSECOND))
        elif kind in HELD:
            fields = 4 if kind in CLOSED else 3
            token, remaining, position, *why = answers[at : at + fields]
            closed = Closed(*why) if why else None
            outcomes.append(Held(first, token, remaining * MICROSECOND, position, kind in REFUSED, closed))
            at += fields
        elif kind == 4:
            outcomes.append(Lost(Loss(first), answers[at] * MICROSECOND))
            at += 1
        elif kind == 6:
            outcomes.append(NotHeld(first))
        elif kind == 8:
            ttl, state = answers[at : at + 2]
            outcomes.append(Granted(first, ttl * MICROSECOND, state))
            at += 2
        elif kind == 10:
            outcomes.append(Renewed(first * MICROSECOND, answers[at]))
            at += 1
        else:
            outcomes.append(Unknown(refusal("redis", op, first, answers[at])))
            at += 1
    return outcomes


def _record(answers: list[Any], at: int) -> tuple[Record | None, int]:
    """Return the record that stands there, and where the next one does."""
    if answers[at] == 0:
        return None, at + 1
    queue = at + 1 + RECORD_FIELDS
    end = queue + WAITER_FIELDS * answers[queue - 1]
    return record(answers[at + 1 : queue - 1], _waiters(answers[queue:end])), end


def _waiters(answers: list[Any]) -> Iterator[list[Any]]:
    return (answers[at : at + WAITER_FIELDS] for at in range(0, len(answers), WAITER_FIELDS))
