"""What is sent for an operation: the transaction of its plan, or a shortcut on what this client remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.core.ops import Acquire, Loss, Release, Renew
from lessor.stores.etcd.layout import KV, delete, exists, get_all, none_under, put, transaction, unchanged
from lessor.stores.etcd.memory import key_of
from lessor.stores.etcd.plan import (
    NOTES,
    OWN,
    ended_value,
    held_value,
    is_simple,
    notice_put,
    turn_of,
    whole_seconds,
)

if TYPE_CHECKING:
    from lessor.core.clock import Clock
    from lessor.stores.etcd.layout import Layout
    from lessor.stores.etcd.leases import Leases
    from lessor.stores.etcd.memory import Memory
    from lessor.stores.etcd.task import Task

FRESH: Final = 0.95
"""A spare etcd lease with this part of the TTL left is as good as a new one."""


class Moves:
    """Those of one store."""

    def __init__(self, layout: Layout, leases: Leases, memory: Memory, clock: Clock) -> None:
        self._layout = layout
        self._leases = leases
        self._memory = memory
        self._clock = clock

    def choose(self, task: Task) -> None:
        """Choose the way: the shortcut, where there is one."""
        op = task.op
        if isinstance(op, Acquire):
            called = key_of(op) in self._memory.called
            lease = self._leases.take(whole_seconds(op.ttl_ns)) if is_simple(op) else None
            if lease is not None:
                task.leases = {OWN: lease}
                if lease.left_ns(self._clock.now()) < FRESH * op.ttl_ns:
                    task.keep.append(lease.id)
            task.quick = is_simple(op) and (called or lease is not None)
            place = self._memory.places.get(key_of(op))
            if place is not None and not called:
                task.keep.append(place.id)
        elif isinstance(op, Release):
            grip = self._memory.grips.get(key_of(op))
            if grip is not None and grip.simple and not op.abandon and not op.successor:
                task.quick = True
                task.grip = grip
        elif isinstance(op, Renew):
            grip = self._memory.grips.get(key_of(op))
            if grip is not None:
                task.keep += [lease.id for lease in grip.leases]

    def needs(self, task: Task) -> dict[str, int]:
        """Return the etcd leases that are to be had before, by what they are for, and their seconds."""
        if task.plan is not None:
            return task.plan.needs
        if task.quick and isinstance(task.op, Acquire) and not task.leases:
            return {OWN: whole_seconds(task.op.ttl_ns)}
        return {}

    def move(self, task: Task, look: list[bytes], plus: int, give_up: int) -> bytes:
        """Return the transaction that brings the operation on, or else looks."""
        if task.quick and isinstance(task.op, Acquire):
            return self._quick_acquire(task, task.op, look, plus)
        if task.quick:
            return self._quick_release(task, look, give_up)
        assert task.plan is not None
        ids: dict[str | int, int] = {name: lease.id for name, lease in task.leases.items()}
        if task.plan.needs_notes:
            ids[NOTES] = self._leases.notes(give_up)
        return transaction(task.plan.compare, task.plan.success(ids, plus), look)

    def _quick_acquire(self, task: Task, op: Acquire, look: list[bytes], plus: int) -> bytes:
        layout = self._layout
        key = layout.lease(op.resource)
        value = held_value(op, self._clock.wall_us()) | ({"plus": plus} if plus else {})
        write = put(key, value, task.leases[OWN].id)
        freed = self._memory.called.get(key_of(op))
        if freed is None:
            free = [unchanged(key, self._memory.free.get(op.resource, 0)), none_under(layout.wait(op.resource))]
            return transaction(free, [write], look)
        place = layout.waiter(op.resource, op.lease_id, op.priority)
        shut = [none_under(layout.closed(op.resource, "")), unchanged(layout.kept(op.resource), 0)]
        free = [unchanged(key, freed), exists(place), *shut]
        return transaction(free, [write, delete(place), get_all(layout.waiter(op.resource, ""), 1)], look)

    def _quick_release(self, task: Task, look: list[bytes], give_up: int) -> bytes:
        grip, resource = task.grip, task.op.resource
        assert grip is not None
        key = self._layout.lease(resource)
        kv = KV(key, grip.value | {"token": grip.token}, 0, grip.modified, 0)
        notes = self._leases.notes(give_up)
        note = put(key, ended_value(kv, str(Loss.RELEASED), self._clock.wall_us()), notes)
        # Whose turn it is among those with a priority is for the rules to say.
        simple = [unchanged(key, grip.modified), none_under(self._layout.ranked(resource))]
        first = grip.first
        if first is None or not first.value["notify"]:
            return transaction(simple, [note, get_all(self._layout.waiter(resource, ""), 1)], look)
        word, said, _ = notice_put(self._layout, turn_of(resource, first))
        return transaction([*simple, unchanged(first.key, first.modified)], [note, put(word, said, notes)], look)
