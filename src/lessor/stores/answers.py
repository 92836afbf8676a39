"""What stores say whose rules run inside the server (Redis in Lua, PostgreSQL in SQL), read in one way for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lessor.core.clock import MICROSECOND
from lessor.core.lease import Closed, Contender, Record, decode_metadata
from lessor.core.ops import Acquire
from lessor.core.rules import MAX_DEPTH
from lessor.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lessor.core.ops import Op
    from lessor.errors import LessorError


def refusal(store: str, op: Op, why: str, detail: object) -> LessorError:
    """Return the error for what the rules refuse."""
    if why == "token":
        return ConfigError(f"the next token, {detail}, is not below 2^53: some clock was centuries ahead")
    if why == "itself":
        return ConfigError(f"{op.resource!r} can't stand under itself")
    if why == "levels":
        parent = op.parent[0] if isinstance(op, Acquire) and op.parent else ""
        text = f"{op.resource!r} can't stand under {parent!r}: a cycle, or more than {MAX_DEPTH} levels"
        return ConfigError(text)
    return StoreUnavailable(store, f"it refuses: {why}")


def record(fields: Sequence[Any], queue: Iterable[Sequence[Any]]) -> Record:
    """Return the record with these fields and this queue. Times are in microseconds there."""
    (
        resource, holder, token, ttl, remaining, granted, renewed, renewals, metadata, parent, parent_token, soft,
        grace, lock_delay, hold_at_least, revoked, reserved_for, closed,
    ) = fields  # fmt: skip
    return Record(
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
        queue=tuple(contenders(queue)),
        closed=Closed(closed) if closed else None,
    )


def contenders(queue: Iterable[Sequence[Any]]) -> list[Contender]:
    """Return those who wait."""
    return [Contender(*waiter) for waiter in queue]
