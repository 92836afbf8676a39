"""Operations as the server's functions take them, and their answers as outcomes. Both are JSON; times are microseconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lessor.core.clock import MICROSECOND
from lessor.core.lease import Closed
from lessor.core.ops import (
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
    Revoke,
    Unknown,
)
from lessor.errors import StoreUnavailable
from lessor.stores.answers import refusal
from lessor.stores.postgresql.trouble import STORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.ops import Op, Outcome

PLAIN_FROM: Final = Acquire._fields.index("parent")
PLAIN: Final = Acquire("", "", "", 0)[PLAIN_FROM:]
"""What an acquire has there that has no parent, no grace and the like."""


def is_plain(op: Acquire) -> bool:
    """Whether it asks for nothing special."""
    return op[PLAIN_FROM:] == PLAIN


def microseconds(ns: int) -> int:
    """Return microseconds: rounded up, so that nothing becomes nothing."""
    return -(-ns // MICROSECOND)


def batch(ops: Sequence[Op]) -> bytes:
    """Return the operations as JSON."""
    return json.dumps([_fields(op) for op in ops]).encode()


def _fields(op: Op) -> dict[str, object]:
    fields: dict[str, object]
    match op:
        case Acquire():
            fields = {
                "kind": "A", "resource": op.resource, "lease_id": op.lease_id, "holder": op.holder,
                "ttl": microseconds(op.ttl_ns), "token": op.seen_token, "flag": op.queue,
            }  # fmt: skip
            if op.notify:
                fields["notify"] = op.notify
            if op.metadata:
                fields["metadata"] = op.metadata
            return fields if is_plain(op) else fields | _extras(op)
        case Renew():
            ttl = microseconds(op.ttl_ns)
            return {"kind": "N", "resource": op.resource, "lease_id": op.lease_id, "token": op.token, "ttl": ttl}
        case Release():
            fields = {"kind": "L", "resource": op.resource, "lease_id": op.lease_id}
            if op.successor:
                fields |= {"holder": op.successor, "metadata": op.state, "ttl": microseconds(op.reserve_ns)}
            if op.abandon:
                fields["flag"] = True
            return fields
        case Revoke():
            return {"kind": "V", "resource": op.resource, "flag": op.force, "token": op.token}


def _extras(op: Acquire) -> dict[str, object]:
    parent, token = op.parent or ("", 0)
    return {
        "parent": parent,
        "parent_token": token,
        "soft": microseconds(op.soft_ns),
        "grace": microseconds(op.grace_ns),
        "lock_delay": microseconds(op.lock_delay_ns),
        "hold_at_least": microseconds(op.hold_at_least_ns),
        "priority": op.priority,
        "queue_limit": op.queue_limit,
        "recover": op.recover,
    }


def outcomes(ops: Sequence[Op], answers: bytes | str) -> list[Outcome]:
    """Return the server's answers as outcomes."""
    return [_outcome(op, answer) for op, answer in zip(ops, json.loads(answers), strict=True)]


def _outcome(op: Op, answer: list[Any]) -> Outcome:
    match answer:
        case [1, token, ttl, *state]:
            return Granted(token, ttl * MICROSECOND, *state)
        case [2, by, token, remaining, position, refused, why]:
            return Held(by, token, remaining * MICROSECOND, position, refused, Closed(why))
        case [2, by, token, remaining, position, *refused]:
            return Held(by, token, remaining * MICROSECOND, position, *refused)
        case [3, ttl, *ended]:
            return Renewed(ttl * MICROSECOND, *ended)
        case [4, reason, remaining]:
            return Lost(Loss(reason), remaining * MICROSECOND)
        case [5, free_in]:
            return Released(free_in * MICROSECOND)
        case [6, reason]:
            return NotHeld(reason)
        case [7, why, detail]:
            return Unknown(refusal(STORE, op, why, detail))
        case _:
            return locked(op)


class Locked(StoreUnavailable):
    """Somebody's transaction was in the way for too long."""


def locked(op: Op) -> Unknown:
    """Return the outcome where somebody's transaction was in the way for too long."""
    return Unknown(Locked(STORE, f"{op.resource!r} is locked by somebody's transaction"))
