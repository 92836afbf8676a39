"""``redis://`` and ``rediss://``: leases for all hosts that reach one Redis or Valkey server.

It can't promise that a grant survives a failover: a replica that takes over may not have received it. Nor can it know
when the server's clock is set forward. Tokens go on rising, so guard the writes with them.

Decisions are made in the server, by the scripts beside this module, and one call carries a whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.core.clock import MICROSECOND
from leasehold.core.lease import Contender, Record, decode_metadata
from leasehold.core.ops import (
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
from leasehold.core.rules import MAX_DEPTH
from leasehold.errors import ConfigError, LeaseholdError, StoreUnavailable
from leasehold.stores.base import Capability, Guarantees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leasehold.core.clock import Clock
    from leasehold.core.ops import Op, Outcome
    from leasehold.stores.base import StoreURL
    from leasehold.stores.redis.subscription import RedisSubscription

PLAIN_FROM = Acquire._fields.index("parent")
PLAIN = Acquire("", "", "", 0)[PLAIN_FROM:]
"""What an acquire has there that has no parent, no grace and the like."""
PAGE = 500
"""Names that one call of a scan looks at: others get their turn in between."""
RECORD_FIELDS = 18


class RedisStore:
    """Leases on one server."""

    guarantees = Guarantees(
        store="redis",
        clock="the server's wall clock (TIME)",
        drift=0.10,
        tokens="increase while the server keeps its data, and beyond that by its wall clock",
        failover="a grant may be lost when a replica takes over that had not received it; tokens go on by the server's clock",
        waiting_order="strict",
        platforms="Redis 6.2 or newer, Valkey; noeviction",
        capabilities=(
            Capability.CROSS_PROCESS | Capability.CROSS_HOST | Capability.DURABLE | Capability.PUSH | Capability.WATCH
        ),
        not_promised="exclusion over a failover, a restart that loses data, or a step of the server's clock forward",
    )

    def __init__(self, url: StoreURL, clock: Clock) -> None:
        # These need redis-py, and what is declared above must be readable without it.
        from leasehold.stores.redis.address import RedisAddress  # noqa: PLC0415
        from leasehold.stores.redis.connection import Connections  # noqa: PLC0415
        from leasehold.stores.redis.script import Script  # noqa: PLC0415

        self._address = RedisAddress(url)
        self.url = self._address.url(url)
        self._clock = clock
        self._connections = Connections(self._address, clock)
        self._prefix = f"{{leasehold:{url.namespace}}}:"
        self._first = ("1", f"{self._prefix}token", self._prefix)
        self._applying = Script(self._connections, self._address, "head.lua", "quick.lua", "table.lua", "apply.lua")
        self._reading = Script(self._connections, self._address, "head.lua", "table.lua", "read.lua")
        self._now_us: Callable[[], int] | None = None
        """For tests: the time that the server is to use."""

    def __repr__(self) -> str:
        return f"<RedisStore {self.url}>"

    # --- the contract ---------------------------------------------------------------------------------------------

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Carry out the operations in one call."""
        if not ops:
            return []
        words = [*self._first, "" if self._now_us is None else str(self._now_us())]
        for op in ops:
            words += _words(op)
        try:
            answers = self._applying.run(tuple(words), timeout, urgent=type(ops[0]) is Renew)
        except LeaseholdError as error:
            return [Unknown(error)] * len(ops)
        return _outcomes(ops, answers)

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Return who holds what, all at one moment."""
        if not resources:
            return []
        answers = self._read(("names", *resources), timeout)
        at = 0
        records: list[Record | None] = []
        while at < len(answers):
            record, at = _record(answers, at)
            records.append(record)
        return records

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Return all live leases under the prefix; some hundred at a time are of one moment."""
        found: list[Record] = []
        after = ""
        while True:
            answers = self._read(("scan", prefix, after, str(PAGE)), timeout)
            after = answers[0]
            at = 1
            while at < len(answers):
                record, at = _record(answers, at)
                if record is not None:
                    found.append(record)
            if not after:
                return iter(found)

    def subscribe(self, prefix: str | None = None) -> RedisSubscription:
        """Be told, over a connection of its own."""
        from leasehold.stores.redis.subscription import RedisSubscription  # noqa: PLC0415 - as above

        return RedisSubscription(self._address, self._clock, self._prefix, prefix)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _read(self, words: tuple[str, ...], timeout: float) -> list[Any]:
        now = "" if self._now_us is None else str(self._now_us())
        answers: list[Any] = self._reading.run((*self._first, now, *words), timeout)
        return answers


def _us(ns: int) -> str:
    """Return microseconds: rounded up, so that nothing becomes nothing."""
    return str(-(-ns // MICROSECOND))


def _words(op: Op) -> tuple[str, ...]:
    """Return the operation as the script takes it."""
    kind = type(op)
    if kind is Acquire:
        plain = op[PLAIN_FROM:] == PLAIN
        words = (
            "A" if plain else "X", op.resource, op.lease_id, op.holder, _us(op.ttl_ns),  # type: ignore[union-attr]
            "1" if op.queue else "", op.notify, str(op.seen_token), op.metadata,  # type: ignore[union-attr]
        )  # fmt: skip
        return words if plain else words + _extras(op)  # type: ignore[arg-type]
    if kind is Renew:
        return ("N", op.resource, op.lease_id, str(op.token), _us(op.ttl_ns))  # type: ignore[union-attr]
    if kind is Release:
        return ("L", op.resource, op.lease_id, op.successor or "", "1" if op.abandon else "")  # type: ignore[union-attr]
    return ("V", op.resource, "1" if op.force else "", "" if op.token is None else str(op.token))  # type: ignore[union-attr]


def _extras(op: Acquire) -> tuple[str, ...]:
    parent, token = op.parent or ("", 0)
    return (
        parent,
        str(token),
        _us(op.soft_ns),
        _us(op.grace_ns),
        _us(op.lock_delay_ns),
        _us(op.hold_at_least_ns),
    )


def _outcomes(ops: Sequence[Op], answers: list[Any]) -> list[Outcome]:
    """Return the script's answers as outcomes."""
    outcomes: list[Outcome] = []
    at = 0
    for op in ops:
        kind, first = answers[at], answers[at + 1]
        at += 2
        if kind == 1:
            outcomes.append(Granted(first, answers[at] * MICROSECOND))
            at += 1
        elif kind == 5:
            outcomes.append(Released(first * MICROSECOND))
        elif kind == 3:
            outcomes.append(Renewed(first * MICROSECOND))
        elif kind == 2:
            token, remaining, position = answers[at : at + 3]
            outcomes.append(Held(first, token, remaining * MICROSECOND, position))
            at += 3
        elif kind == 4:
            outcomes.append(Lost(Loss(first), answers[at] * MICROSECOND))
            at += 1
        elif kind == 6:
            outcomes.append(NotHeld(first))
        else:
            outcomes.append(Unknown(_refusal(op, first, answers[at])))
            at += 1
    return outcomes


def _refusal(op: Op, why: str, detail: str) -> LeaseholdError:
    if why == "token":
        return ConfigError(f"the next token, {detail}, is not below 2^53: some clock was centuries ahead")
    if why == "itself":
        return ConfigError(f"{op.resource!r} can't stand under itself")
    if why == "levels":
        parent = op.parent[0] if isinstance(op, Acquire) and op.parent else ""
        text = f"{op.resource!r} can't stand under {parent!r}: a cycle, or more than {MAX_DEPTH} levels"
        return ConfigError(text)
    return StoreUnavailable("redis", f"it refuses: {why}")


def _record(answers: list[Any], at: int) -> tuple[Record | None, int]:
    """Return the record that stands there, and where the next one does."""
    if answers[at] == 0:
        return None, at + 1
    at += 1
    (
        resource, holder, token, ttl, remaining, granted, renewed, renewals, metadata, parent, parent_token, soft,
        grace, lock_delay, hold_at_least, revoked, reserved_for, waiters,
    ) = answers[at : at + RECORD_FIELDS]  # fmt: skip
    at += RECORD_FIELDS
    end = at + 2 * waiters
    record = Record(
        resource=resource,
        holder=holder,
        token=token,
        ttl_ns=ttl * MICROSECOND,
        remaining_ns=remaining * MICROSECOND,
        granted_us=granted,
        renewed_us=renewed,
        renewals=renewals,
        metadata=decode_metadata(metadata),
        parent=(parent, parent_token) if parent else None,
        soft_ns=soft * MICROSECOND,
        grace_ns=grace * MICROSECOND,
        lock_delay_ns=lock_delay * MICROSECOND,
        hold_at_least_ns=hold_at_least * MICROSECOND,
        revoked=bool(revoked),
        reserved_for=reserved_for or None,
        queue=tuple(Contender(answers[i], answers[i + 1]) for i in range(at, end, 2)),
    )
    return record, end
