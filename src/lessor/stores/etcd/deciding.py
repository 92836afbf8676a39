"""Lets the rules decide on what was read, and says what follows: an answer, a plan, or another look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.core import rules
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Loss, Lost, NotHeld, Release, Released, Renew, Renewed, Unknown
from lessor.errors import ConfigError
from lessor.stores.etcd.memory import Grip, key_of
from lessor.stores.etcd.plan import markers, plan, rebound, undoing, whole_seconds
from lessor.stores.etcd.table import MOST_FOR_ONE, Missing, Table
from lessor.stores.etcd.trouble import Elsewhere

if TYPE_CHECKING:
    from lessor.core.clock import Clock
    from lessor.core.ops import Op, Outcome
    from lessor.stores.etcd.layout import Layout
    from lessor.stores.etcd.memory import Memory
    from lessor.stores.etcd.task import Task

MOST_LOOKS: Final = 4


class Deciding:
    """Decides, and touches nothing but the task and the client's memory."""

    def __init__(self, layout: Layout, memory: Memory, clock: Clock) -> None:
        self._layout = layout
        self._memory = memory
        self._clock = clock

    def decide(self, task: Task) -> set[int]:
        """Bring a task on whose resources were read. Returns the etcd leases whose time it needs to know first."""
        if task.loaded is None or task.outcome is not None or task.plan is not None:
            return set()
        op = task.op
        table = Table(op, self._layout, task.loaded, task.left, self._clock)
        table.free_for, table.certain = self._memory.free_for, self._memory.certain
        table.room = max(0, MOST_FOR_ONE - task.reads())
        try:
            outcome = rules.apply(table, op, table.now)
        except Missing as missing:
            task.want(missing)
            return set()
        except ConfigError as error:
            task.outcome = Unknown(error)
            return set()
        if table.guessed and not isinstance(outcome, NotHeld):
            return table.guessed
        if isinstance(outcome, Held):
            table.notices = [notice for notice in table.notices if self._memory.calls(notice, table.now)]
        made = plan(self._layout, table, op)
        if isinstance(outcome, (Renewed, Granted)) and not made.grants:
            self._confirm(task, op, outcome)
            return set()
        if isinstance(outcome, Held):
            outcome = self._say_when(task, op, outcome)
        if made:
            task.plan, task.planned = made, outcome
        else:
            self._answer(task, op, outcome)
        return set()

    def _answer(self, task: Task, op: Op, outcome: Outcome) -> None:
        """Answer without having to write anything."""
        assert task.loaded is not None
        snapshot = task.loaded[op.resource]
        if isinstance(outcome, Held) and isinstance(op, Acquire):
            place = snapshot.waiter(op.lease_id) if op.queue else None
            if place is not None and place.lease not in task.asked:
                task.keep = [place.lease]  # it says that it still lives
                task.loaded = None
                return
        elif isinstance(outcome, Lost) and isinstance(op, Renew):
            grip = self._memory.grips.pop(key_of(op), None)
            if grip is not None and grip.leases and outcome.remaining_ns:
                promised = grip.leases[0].left_ns(self._clock.now())
                outcome = Lost(outcome.reason, max(outcome.remaining_ns, promised))
        elif isinstance(outcome, NotHeld) and task.in_doubt and isinstance(op, Release) and snapshot.kv is not None:
            mine = snapshot.kv.value["id"] == op.lease_id and snapshot.kv.value["state"] == Loss.RELEASED
            outcome = Released() if mine else outcome  # by the earlier try, whose answer got lost
        if isinstance(op, Release):
            self._memory.leave(key_of(op))
        task.outcome = outcome

    def _say_when(self, task: Task, op: Op, held: Held) -> Held:
        """Say when a waiter is to come, as exactly as may be."""
        assert task.loaded is not None
        kv = task.loaded[op.resource].kv
        if not held.by or kv is None or kv.lease not in task.left or not (isinstance(op, Acquire) and op.queue):
            return held
        return held._replace(remaining_ns=self._memory.ends(kv.lease, task.left[kv.lease]))

    def _confirm(self, task: Task, op: Op, outcome: Renewed | Granted) -> None:
        """Answer that a lease goes on, once its etcd leases were kept alive and it was seen after that."""
        assert isinstance(op, (Acquire, Renew))
        assert task.loaded is not None
        snapshot = task.loaded[op.resource]
        kv = snapshot.held()
        if kv is None:
            assert isinstance(op, Renew)
            task.plan, task.planned = rebound(self._layout, op, task.loaded), outcome  # it comes back within its grace
            return
        value = kv.value
        if isinstance(op, Acquire) and task.in_doubt and kv.token <= op.seen_token:
            task.plan = undoing(self._layout, op, kv.modified)  # nobody has heard of it: try again, for a higher one
            return
        if value["ttl_ns"] == 0 or value.get("revoked"):
            task.outcome = outcome  # as long as its parent, or as was promised: nothing of its own to keep alive
            return
        longer = isinstance(op, Renew) and whole_seconds(op.ttl_ns) > whole_seconds(value["ttl_ns"])
        if isinstance(op, Renew) and longer and not value.get("has_children"):  # else what rides would be left behind
            task.plan, task.planned = rebound(self._layout, op, task.loaded), outcome
            return
        needed = [kv.lease, *(marker.lease for marker, _ in markers(snapshot))]
        if any(lease not in task.kept for lease in needed):
            task.looks += 1
            if task.looks > MOST_LOOKS:
                raise Elsewhere("etcd", "its leader changes all the time")
            task.keep = needed
            task.loaded = None
            return
        asked = op.ttl_ns if isinstance(op, Renew) else 0
        ttl = min(max(asked, value["ttl_ns"]), task.kept[kv.lease].seconds * SECOND)
        if value.get("parent"):
            ttl = min(ttl, outcome.ttl_ns)
        grip = self._memory.grips.get(key_of(op)) or Grip(op.resource, 0, kv.token, [], value, simple=False)
        grip.leases = [task.kept[lease] for lease in needed]
        grip.modified, grip.value = kv.modified, value
        grip.simple = grip.simple and not value.get("has_children")
        self._memory.hold(key_of(op), grip)
        if isinstance(op, Renew):
            grip.renewals += 1
            grip.first = next(iter(snapshot.waiters()), None)
            grip.renewed_us = self._clock.wall_us()
        task.outcome = outcome._replace(ttl_ns=ttl)
