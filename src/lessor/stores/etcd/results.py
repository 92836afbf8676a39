"""What follows from a transaction that was carried out: the answer, what to remember, and which etcd leases to reuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lessor.core.clock import SECOND
from lessor.core.lease import TOKEN_LIMIT
from lessor.core.ops import Acquire, Granted, Held, Release, Released, Renew, Renewed, Unknown
from lessor.errors import ConfigError, LessorError
from lessor.stores.etcd.layout import found, put, transaction, unchanged
from lessor.stores.etcd.memory import Grip, key_of
from lessor.stores.etcd.plan import (
    DELAY,
    GRACE,
    OWN,
    PLACE,
    held_value,
    is_simple,
    notice_put,
    rewritten,
    turn_of,
    undoing,
    whole_seconds,
)
from lessor.stores.etcd.table import in_turn

if TYPE_CHECKING:
    from lessor.core.clock import Clock
    from lessor.core.ops import Notice
    from lessor.stores.etcd.layout import KV, Layout
    from lessor.stores.etcd.leases import Leases
    from lessor.stores.etcd.members import Members
    from lessor.stores.etcd.memory import Memory
    from lessor.stores.etcd.task import Task
    from lessor.stores.etcd.tokens import Mint, Tokens


class Results:
    """Those of one store."""

    def __init__(
        self, members: Members, leases: Leases, layout: Layout, memory: Memory, *, tokens: Tokens, clock: Clock
    ) -> None:
        self._members = members
        self._leases = leases
        self._layout = layout
        self._memory = memory
        self._tokens = tokens
        self._clock = clock

    def succeeded(self, task: Task, responses: list[Any], mint: Mint, started: int, give_up: int) -> None:
        """Take in that what was sent for the operation took effect."""
        op = task.op
        if task.quick and isinstance(op, Release):
            self._released(task, op, responses, mint.revision, give_up)
        elif task.quick or (task.plan is not None and task.plan.grants):
            assert isinstance(op, Acquire)
            self._granted(task, op, mint, started, give_up)
            self._see_first(op, responses)
        else:
            self._written(task, mint.revision, started, give_up)

    def refused(self, task: Task, responses: list[Any]) -> None:
        """Go on with what is true instead."""
        task.tries += not task.quick
        self._memory.wrong(key_of(task.op))
        self._leases.give_back(task)
        task.quick = False
        task.plan = task.planned = None
        task.loaded = None
        if responses:
            task.take_in(self._layout, responses)

    def _released(self, task: Task, op: Release, responses: list[Any], revision: int, give_up: int) -> None:
        grip = self._memory.grips.pop(key_of(op), None)
        task.outcome = Released()
        self._memory.freed(op.resource, revision)
        if grip is not None:
            for lease in grip.leases:
                self._leases.give(lease)
        first = _first_in(responses)
        if first is not None and first.value["notify"]:
            self._say(turn_of(op.resource, first), revision, give_up)

    def _say(self, notice: Notice, freed: int, give_up: int) -> None:
        """Call somebody. Where that fails, it comes by itself in a while."""
        try:
            key, value, _ = notice_put(self._layout, notice, freed)
            word = put(key, value, self._leases.notes(give_up))
            self._members.transact(transaction([], [word], []), give_up)
        except LessorError:
            self._leases.forget_notes()

    def _granted(self, task: Task, op: Acquire, mint: Mint, started: int, give_up: int) -> None:
        if mint.token <= op.seen_token or mint.token >= TOKEN_LIMIT:
            self._too_low(task, op, mint, give_up)
            return
        own = task.leases.get(OWN)
        left = op.ttl_ns
        if own is not None:
            own = task.kept.get(own.id, own)
            left = min(left, own.left_ns(max(started, own.since_ns)))
        if isinstance(task.planned, Granted):
            left = min(left, task.planned.ttl_ns) if left else task.planned.ttl_ns
        leases = (
            [own, *(task.leases[name] for name in (DELAY, GRACE) if name in task.leases)] if own is not None else []
        )
        unsure = [lease.id for lease in leases if lease.id in task.asked and lease.id not in task.kept]
        value = held_value(op, self._clock.wall_us())
        inherited = task.planned.state if isinstance(task.planned, Granted) else ""
        grip = Grip(op.resource, mint.revision, mint.token, leases, value, is_simple(op))
        self._memory.hold(key_of(op), grip)
        self._memory.leave(key_of(op))
        task.leases = {}
        if unsure:
            # Whether its etcd lease was kept alive isn't certain; another look, at what is its own now, makes sure.
            task.keep = [lease.id for lease in leases]
            task.plan = task.planned = None
            task.quick = False
            return
        task.outcome = Granted(mint.token, left, inherited)

    def _see_first(self, op: Acquire, responses: list[Any]) -> None:
        grip = self._memory.grips.get(key_of(op))
        if grip is not None:
            grip.first = _first_in(responses)

    def _too_low(self, task: Task, op: Acquire, mint: Mint, give_up: int) -> None:
        """Undo a grant whose token is not above what the asker has seen, and see to it that the next one's is."""
        task.in_doubt = True  # until it is undone: whatever fails from here on, such a grant must not be believed in
        undo = undoing(self._layout, op, mint.revision)
        self._members.transact(transaction(undo.compare, undo.success({}, 0), []), give_up)
        task.leases = {}
        task.start_over()
        try:
            self._tokens.raise_above(max(op.seen_token, mint.token), mint, give_up)
        except ConfigError as error:
            task.outcome = Unknown(error)

    def _written(self, task: Task, revision: int, started: int, give_up: int) -> None:
        """Finish what was planned, and is done now."""
        op, outcome = task.op, task.planned
        assert task.plan is not None
        if PLACE in task.leases:
            assert isinstance(op, Acquire)
            self._memory.places[key_of(op)] = task.leases.pop(PLACE)
        if isinstance(op, Release):
            self._memory.leave(key_of(op))
            if isinstance(outcome, Released):
                self._end_grip(op, task, give_up)
        if isinstance(op, Renew) and OWN in task.leases:
            outcome = self._rebound(op, task, revision, started)
        if task.plan.revokes and isinstance(outcome, (Released, Held)):
            outcome = self._shorten(task, outcome, revision, give_up)
        self._leases.revoke(task.plan.over, give_up)
        task.leases = {}
        task.start_over()
        task.outcome = outcome

    def _end_grip(self, op: Release, task: Task, give_up: int) -> None:
        """Deal with the etcd leases of what was released: what may have keys on it yet isn't used again."""
        grip = self._memory.grips.pop(key_of(op), None)
        assert task.loaded is not None
        kv = task.loaded[op.resource].kv
        if kv is None or kv.value.get("has_children"):
            return
        if grip is not None:
            for lease in grip.leases:
                self._leases.give(lease)
        elif kv.value["ttl_ns"]:
            self._leases.revoke([kv.lease], give_up)

    def _shorten(self, task: Task, outcome: Released | Held, revision: int, give_up: int) -> Released | Held:
        """Let a lease that was revoked end in time, although its holder may yet keep its etcd lease alive once.

        It moves to an etcd lease of its own, which lasts as long as the old one would have. That is asked after the
        revocation was written: no renewal that counts comes later, so no promise reaches beyond it.
        """
        assert task.loaded is not None
        kv = task.loaded[task.op.resource].kv
        assert kv is not None
        left = self._leases.time_left([kv.lease], give_up).get(kv.lease)
        if left is None:
            return outcome
        (other,) = self._leases.grant([whole_seconds(left[1])], give_up)
        key = self._layout.lease(task.op.resource)
        value = {**rewritten(kv), "revoked": True, "moved": True, "ttl_ns": kv.value["ttl_ns"] or left[1]}
        written = kv.modified if kv.value.get("revoked") else revision
        move = transaction([unchanged(key, written)], [put(key, value, other.id)], [])
        answer = self._members.transact(move, give_up)
        if not answer.get("succeeded"):
            self._leases.give(other)
        ends = other.seconds * SECOND
        return Released(ends) if isinstance(outcome, Released) else outcome._replace(remaining_ns=ends)

    def _rebound(self, op: Renew, task: Task, revision: int, started: int) -> Renewed:
        """Remember a lease that has moved to other etcd leases."""
        own = task.leases[OWN]
        own = task.kept.get(own.id, own)
        assert task.loaded is not None
        kv = task.loaded[op.resource].last()
        assert kv is not None
        old = self._memory.grips.get(key_of(op))
        grip = Grip(op.resource, revision, kv.token, list(task.leases.values()), kv.value, simple=False)
        grip.renewals = (old.renewals if old else 0) + 1
        grip.renewed_us = self._clock.wall_us()
        self._memory.hold(key_of(op), grip)
        left = min(op.ttl_ns, own.left_ns(max(started, own.since_ns)))
        return Renewed(left, kv.value.get("children_ended", 0))


def _first_in(responses: list[Any]) -> KV | None:
    """Return the first waiter, where a transaction has looked at the queue."""
    waits = next((found(response) for response in responses if "range" in response), [])
    return next(iter(in_turn(waits)), None)
