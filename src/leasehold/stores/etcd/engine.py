"""Carries operations out: reads, lets the rules decide, and writes if nothing has changed since.

Each operation is a small transaction, and many of them go in one large one, so a batch costs a round trip and one
entry in etcd's log. What this client remembers is tried first: an acquire of what it knows to be free, or a release of
what it was granted, takes one round trip. Where that was wrong, the same answer brings what is true.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leasehold.core.clock import SECOND
from leasehold.core.lease import TOKEN_LIMIT
from leasehold.core.ops import (
    Acquire,
    Granted,
    Loss,
    Notice,
    Release,
    Released,
    Renew,
    Renewed,
    Revoke,
    Summons,
    Unknown,
)
from leasehold.errors import ConfigError, LeaseholdError, StoreUnavailable
from leasehold.stores.etcd.deciding import Deciding
from leasehold.stores.etcd.layout import (
    KV,
    delete,
    exists,
    found,
    get,
    get_all,
    none_under,
    put,
    transaction,
    unchanged,
    within,
)
from leasehold.stores.etcd.leases import EtcdLease, kept_alive, signs_of_life
from leasehold.stores.etcd.memory import Grip, key_of
from leasehold.stores.etcd.messages import TRANSACTION, decode
from leasehold.stores.etcd.plan import (
    DELAY,
    NOTES,
    OWN,
    PLACE,
    ended_value,
    held_value,
    notice_put,
    rewritten,
    whole_seconds,
)
from leasehold.stores.etcd.task import Task
from leasehold.stores.etcd.trouble import Elsewhere, LeaseGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leasehold.core.clock import Clock
    from leasehold.core.ops import Op, Outcome
    from leasehold.stores.etcd.layout import Layout
    from leasehold.stores.etcd.leases import Leases
    from leasehold.stores.etcd.members import Members
    from leasehold.stores.etcd.memory import Memory

MOST_AT_ONCE: Final = 100
"""Operations, or reads, in one transaction; etcd takes 128 by default."""
FEW: Final = 4
"""Up to so many operations, a transaction that is refused shows in the same answer what is true instead."""
MOST_BYTES: Final = 1_000_000
"""About the size of a transaction; etcd takes 1.5 MiB by default."""
RESERVE: Final = 10_000
"""How far below the highest token the last one is that is granted."""
FRESH: Final = 0.95
"""A spare etcd lease with this part of the TTL left is as good as a new one."""


class Offset(NamedTuple):
    """What is added to revisions to make tokens, and the revision in which that was written."""

    plus: int
    modified: int


class Mint(NamedTuple):
    """What the tokens of a transaction's grants are made of."""

    revision: int
    plus: int


class Engine:
    """The operations of one store. Safe for threads."""

    def __init__(self, members: Members, leases: Leases, layout: Layout, memory: Memory, clock: Clock) -> None:
        self._members = members
        self._leases = leases
        self._layout = layout
        self._clock = clock
        self._memory = memory
        self._deciding = Deciding(layout, memory, clock)
        self._patience = members.count + 1
        self._nap = threading.Event()
        self._offset = Offset(0, 0)

    def apply(self, ops: Sequence[Op], give_up: int) -> list[Outcome]:
        """Carry the operations out, in order."""
        tasks = [Task(op, index, _names(op)) for index, op in enumerate(ops)]
        started = self._clock.now()
        for turn in _turns(tasks):
            self._carry_out(turn, started, give_up)
        outcomes = []
        for task in tasks:
            assert task.outcome is not None
            outcomes.append(task.outcome)
        return outcomes

    # --- the loop -------------------------------------------------------------------------------------------------

    def _carry_out(self, tasks: list[Task], started: int, give_up: int) -> None:
        """Take the operations, which have nothing to do with one another, to their answers."""
        for task in tasks:
            self._start(task)
        failures = 0
        error: LeaseholdError = StoreUnavailable("etcd", "others were faster, again and again")
        while pending := [task for task in tasks if task.outcome is None]:
            if self._clock.now() >= give_up or failures > self._patience:
                self._give_up(pending, error)
                return
            try:
                pending = self._decide(pending, give_up)
                self._get_leases(pending, give_up)
                writing = [task for task in pending if not task.looking]
                looking = [task for task in pending if task.looking]
                for part in _portions(writing, _bytes_of, MOST_BYTES):
                    self._write(part, started, give_up)
                for part in _portions(looking, Task.reads, MOST_AT_ONCE):
                    self._look(part, give_up)
                self._pause(max((task.tries for task in pending if task.outcome is None), default=0), give_up)
            except (LeaseGone, Elsewhere) as trouble:
                error = trouble
                failures += 1
                self._stumble(pending, trouble)
                self._pause(failures, give_up)
            except LeaseholdError as settled:
                self._give_up(pending, settled)

    def _stumble(self, tasks: list[Task], trouble: LeaseholdError) -> None:
        """Go on after a request that failed."""
        gone = isinstance(trouble, LeaseGone)
        if gone:
            self._leases.forget_notes()
        for task in tasks:
            if gone:
                task.leases = {}  # one of all these
            else:
                task.in_doubt = task.in_doubt or task.quick or task.plan is not None
            self._start_over(task)

    @staticmethod
    def _give_up(tasks: list[Task], error: LeaseholdError) -> None:
        for task in tasks:
            if task.outcome is None:
                task.outcome = Unknown(error)

    def _pause(self, tries: int, give_up: int) -> None:
        """From the second failure on, wait a little, at random: those who are in each other's way don't meet again."""
        if tries < 2:
            return
        left = max(0, give_up - self._clock.now()) / SECOND
        self._nap.wait(min(left, random.uniform(0, min(0.2, 0.002 * 2**tries))))

    def _start_over(self, task: Task) -> None:
        """Forget what was about to be done: the first thing is to look what is true."""
        self._give_back(task)
        task.loaded = task.plan = task.planned = None
        task.quick = False
        task.kept.clear()

    def _give_back(self, task: Task) -> None:
        """Keep the etcd leases that were not used; of what was left without an answer, nobody knows."""
        if not task.in_doubt:
            for lease in task.leases.values():
                self._leases.give(lease)
        task.leases = {}

    def _start(self, task: Task) -> None:
        """Choose the way: the shortcut, where there is one."""
        op = task.op
        if isinstance(op, Acquire):
            lease = self._leases.take(whole_seconds(op.ttl_ns)) if _is_simple(op) else None
            if lease is not None:
                task.leases = {OWN: lease}
                task.quick = True
                if lease.left_ns(self._clock.now()) < FRESH * op.ttl_ns:
                    task.keep.append(lease.id)
            place = self._memory.places.get(key_of(op))
            if place is not None:
                task.keep.append(place.id)
        elif isinstance(op, Release):
            grip = self._memory.grips.get(key_of(op))
            if grip is not None and grip.simple and not op.abandon and op.successor is None:
                task.quick = True
                task.grip = grip
        elif isinstance(op, Renew):
            grip = self._memory.grips.get(key_of(op))
            if grip is not None:
                task.keep += [lease.id for lease in grip.leases]

    def _decide(self, tasks: list[Task], give_up: int) -> list[Task]:
        """Decide what can be decided; ask for how long etcd leases last where that matters. Returns what is to go on."""
        while True:
            wanted: dict[int, set[int]] = {}
            for at, task in enumerate(tasks):
                wanted[task.index] = self._deciding.decide(task)
                if task.families and task.outcome is None:
                    tasks = _only_up_to(tasks, at)
                    break
            ids = set().union(*wanted.values())
            if not ids:
                return [task for task in tasks if task.outcome is None]
            left = self._leases.time_left(sorted(ids), give_up)
            for task in tasks:
                mine = wanted[task.index]
                task.left.update({lease: left[lease] for lease in mine if lease in left})
                if not mine <= left.keys():
                    task.loaded = None  # one is over, so things have changed since

    def _get_leases(self, tasks: list[Task], give_up: int) -> None:
        """Have the etcd leases ready that the plans need."""
        short = []
        for task in tasks:
            for name, seconds in task.plan.needs.items() if task.plan else ():
                lease = self._leases.take(seconds)
                if lease is None:
                    short.append((task, name, seconds))
                else:
                    task.leases[name] = lease
                    task.keep.append(lease.id)
        if short:
            granted = self._leases.grant([seconds for _, _, seconds in short], give_up)
            for (task, name, _), lease in zip(short, granted, strict=True):
                task.leases[name] = lease

    def _write(self, tasks: list[Task], started: int, give_up: int) -> None:
        """Send the transactions of some operations, as one, and take in what came of each."""
        looks = [task.look(self._layout) if len(tasks) <= FEW else [] for task in tasks]
        offset = self._offset
        moves = [within(self._move(task, look, offset.plus, give_up)) for task, look in zip(tasks, looks, strict=True)]
        answer = self._exchange(tasks, moves, offset, give_up)
        if answer is None:
            return
        mint = Mint(answer["header"]["revision"], offset.plus)
        for task, response in zip(tasks, answer["responses"], strict=True):
            inner = response["transaction"]
            if inner.get("succeeded"):
                self._succeeded(task, inner.get("responses", []), mint, started, give_up)
            else:
                self._refused(task, inner.get("responses", []))

    def _look(self, tasks: list[Task], give_up: int) -> None:
        """Read what some operations depend on. Reads alone aren't written to etcd's log, unless they are nested."""
        looks = [task.look(self._layout) for task in tasks]
        answer = self._exchange(tasks, [read for look in looks for read in look], self._offset, give_up)
        if answer is None:
            return
        responses = iter(answer["responses"])
        for task, look in zip(tasks, looks, strict=True):
            task.take_in(self._layout, [next(responses) for _ in look])

    def _exchange(
        self, tasks: list[Task], requests: list[bytes], offset: Offset, give_up: int
    ) -> dict[str, Any] | None:
        """Keep etcd leases alive, and then send a transaction. Returns its answer; None where tokens have moved on."""
        layout = self._layout
        now = self._clock.now()
        keep = [lease for task in tasks for lease in task.keep]
        alive = self._members.ask([signs_of_life(keep)], give_up)[0] if keep else []
        demand = [unchanged(layout.offset, offset.modified)]
        answer = self._transact(transaction(demand, requests, [get(layout.offset)]), give_up)
        if not answer.get("succeeded"):
            self._new_offset(answer["responses"][0])
            for task in tasks:
                self._start_over(task)
            return None
        kept = kept_alive(alive, answer["header"]["raft_term"])
        for task in tasks:
            task.asked, task.keep = task.keep, []
            task.kept |= {i: self._known(task, i, kept[i])._replace(since_ns=now) for i in task.asked if i in kept}
        return answer

    def _known(self, task: Task, lease_id: int, seconds: int) -> EtcdLease:
        """Return what is known of an etcd lease that was kept alive."""
        grip = self._memory.grips.get(key_of(task.op))
        candidates = [*task.leases.values(), *(grip.leases if grip else ())]
        return next((x for x in candidates if x.id == lease_id), EtcdLease(lease_id, seconds, seconds, 0))

    def _refused(self, task: Task, responses: list[Any]) -> None:
        """Go on with what is true instead."""
        task.tries += not task.quick
        self._memory.wrong(key_of(task.op))
        self._give_back(task)
        task.quick = False
        task.plan = task.planned = None
        task.loaded = None
        if responses:
            task.take_in(self._layout, responses)

    def _transact(self, request: bytes, give_up: int) -> dict[str, Any]:
        ((answer,),) = self._members.ask([("KV/Txn", [request])], give_up)
        return decode(TRANSACTION, answer)

    def _new_offset(self, response: dict[str, Any]) -> None:
        kvs = found(response)
        self._offset = Offset(int(kvs[0].value["is"]), kvs[0].modified) if kvs else Offset(0, 0)

    # --- what to send ---------------------------------------------------------------------------------------------

    def _move(self, task: Task, look: list[bytes], plus: int, give_up: int) -> bytes:
        """Return the transaction that brings the operation on, or else looks."""
        layout, op = self._layout, task.op
        if task.quick and isinstance(op, Acquire):
            return self._quick_acquire(task, op, look, plus)
        if task.quick:
            grip = task.grip
            assert grip is not None
            key = layout.lease(op.resource)
            kv = KV(key, grip.value | {"token": grip.token}, 0, grip.modified, 0)
            note = put(key, ended_value(kv, str(Loss.RELEASED), self._clock.wall_us()), self._leases.notes(give_up))
            return transaction([unchanged(key, grip.modified)], [note, get_all(layout.wait(op.resource), 8)], look)
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
        place = layout.waiter(op.resource, op.lease_id)
        free = [unchanged(key, freed), exists(place), none_under(layout.closed(op.resource, ""))]
        return transaction(free, [write, delete(place)], look)

    # --- what came of it ------------------------------------------------------------------------------------------

    def _succeeded(self, task: Task, responses: list[Any], mint: Mint, started: int, give_up: int) -> None:
        op, revision = task.op, mint.revision
        if task.quick and isinstance(op, Release):
            self._released(task, op, responses, revision, give_up)
        elif task.quick or (task.plan is not None and task.plan.grants):
            assert isinstance(op, Acquire)
            self._granted(task, op, mint, started, give_up)
        else:
            self._written(task, revision, give_up)

    def _released(self, task: Task, op: Release, responses: list[Any], revision: int, give_up: int) -> None:
        grip = self._memory.grips.pop(key_of(op), None)
        task.outcome = Released()
        self._memory.freed(op.resource, revision)
        if grip is not None:
            for lease in grip.leases:
                self._leases.give(lease)
        first = next((kv for kv in found(responses[1]) if "//queue/" in kv.key), None)
        if first is not None and first.value["notify"]:
            lease_id = first.key.removeprefix(self._layout.waiter(op.resource, ""))
            notice = Notice(first.value["notify"], Summons.RESERVED, op.resource, lease_id)
            self._say(notice, revision, give_up)

    def _say(self, notice: Notice, freed: int, give_up: int) -> None:
        """Call somebody. Where that fails, it comes by itself in a while."""
        try:
            key, value, _ = notice_put(self._layout, notice, freed)
            word = put(key, value, self._leases.notes(give_up))
            self._transact(transaction([], [word], []), give_up)
        except LeaseholdError:
            self._leases.forget_notes()

    def _granted(self, task: Task, op: Acquire, mint: Mint, started: int, give_up: int) -> None:
        revision, token = mint.revision, mint.revision + mint.plus
        if token <= op.seen_token or token >= TOKEN_LIMIT:
            self._raise_offset(task, op, revision, give_up)
            return
        own = task.leases.get(OWN)
        left = op.ttl_ns
        if own is not None:
            own = task.kept.get(own.id, own)
            left = min(left, own.left_ns(max(started, own.since_ns)))
        if isinstance(task.planned, Granted):
            left = min(left, task.planned.ttl_ns) if left else task.planned.ttl_ns
        leases = [own, *(lease for name, lease in task.leases.items() if name == DELAY)] if own is not None else []
        unsure = [lease.id for lease in leases if lease.id in task.asked and lease.id not in task.kept]
        value = held_value(op, self._clock.wall_us())
        self._memory.hold(key_of(op), Grip(op.resource, revision, token, leases, value, _is_simple(op)))
        self._memory.leave(key_of(op))
        task.leases = {}
        if unsure:
            # Whether its etcd lease was kept alive isn't certain; another look, at what is its own now, makes sure.
            task.keep = [lease.id for lease in leases]
            task.plan = task.planned = None
            task.quick = False
            return
        task.outcome = Granted(token, left)

    def _raise_offset(self, task: Task, op: Acquire, revision: int, give_up: int) -> None:
        """Undo a grant whose token would be too low, since this cluster's revisions started over; and see to that."""
        layout = self._layout
        key = layout.lease(op.resource)
        undo = transaction([unchanged(key, revision)], [delete(key)], [])
        plus = op.seen_token - revision
        if op.seen_token + 1 >= TOKEN_LIMIT - RESERVE:
            error = ConfigError(
                f"the next token, {op.seen_token + 1}, is not below 2^53: some clock was centuries ahead"
            )
            self._transact(undo, give_up)
            task.outcome = Unknown(error)
            return
        task.leases = {}
        more = transaction(
            [unchanged(layout.offset, self._offset.modified)], [put(layout.offset, plus)], [get(layout.offset)]
        )
        self._transact(undo, give_up)
        answer = self._transact(more, give_up)
        if answer.get("succeeded"):
            self._offset = Offset(plus, answer["header"]["revision"])
        else:
            self._new_offset(answer["responses"][0])
        self._start_over(task)

    def _written(self, task: Task, revision: int, give_up: int) -> None:
        """Finish what was planned, and is done now."""
        op, outcome = task.op, task.planned
        if PLACE in task.leases:
            assert isinstance(op, Acquire)
            self._memory.places[key_of(op)] = task.leases.pop(PLACE)
        if isinstance(op, Release):
            self._memory.leave(key_of(op))
            if isinstance(outcome, Released):
                self._end_grip(op, task, give_up)
        if isinstance(op, Renew):
            outcome = self._extended(op, task, revision)
        if isinstance(op, Revoke) and not op.force and isinstance(outcome, Released):
            outcome = self._shorten(task, outcome, revision, give_up)
        task.leases = {}
        task.plan = task.planned = None
        task.outcome = outcome

    def _end_grip(self, op: Release, task: Task, give_up: int) -> None:
        """Deal with the etcd leases of what was released: what may have keys on it yet isn't used again."""
        grip = self._memory.grips.pop(key_of(op), None)
        assert task.loaded is not None
        kv = task.loaded[op.resource].kv
        if grip is not None and kv is not None and not kv.value.get("has_children"):
            for lease in grip.leases:
                self._leases.give(lease)
        elif kv is not None and kv.value["ttl_ns"]:
            self._leases.revoke([kv.lease], give_up)

    def _shorten(self, task: Task, outcome: Released, revision: int, give_up: int) -> Released:
        """Let a lease that was revoked end in time, although its holder may yet keep its etcd lease alive once.

        It moves to an etcd lease of its own, which lasts as long as the old one would have. That is asked after the
        revocation was written: no renewal that counts comes later, so no promise reaches beyond it.
        """
        assert task.loaded is not None
        kv = task.loaded[task.op.resource].kv
        assert kv is not None
        left = self._leases.time_left([kv.lease], give_up).get(kv.lease)
        if left is None or kv.value.get("revoked"):
            return outcome
        (other,) = self._leases.grant([whole_seconds(left[1])], give_up)
        key = self._layout.lease(task.op.resource)
        value = {**rewritten(kv), "revoked": True}
        move = transaction([unchanged(key, revision)], [put(key, value, other.id)], [])
        answer = self._transact(move, give_up)
        if not answer.get("succeeded"):
            self._leases.give(other)
        return Released(other.seconds * SECOND)

    def _extended(self, op: Renew, task: Task, revision: int) -> Renewed:
        """Remember a lease that has moved to an etcd lease with a longer TTL."""
        own = task.leases[OWN]
        assert task.loaded is not None
        kv = task.loaded[op.resource].kv
        assert kv is not None
        old = self._memory.grips.get(key_of(op))
        grip = Grip(op.resource, revision, kv.token, list(task.leases.values()), kv.value, simple=False)
        grip.renewals = (old.renewals if old else 0) + 1
        grip.renewed_us = self._clock.wall_us()
        self._memory.hold(key_of(op), grip)
        return Renewed(min(op.ttl_ns, own.seconds * SECOND))


def _only_up_to(tasks: list[Task], last: int) -> list[Task]:
    """Let those wait that come after one that ends a whole family: they may be about a member of it."""
    for task in tasks[last + 1 :]:
        if task.looking:
            task.loaded = None
    return tasks[: last + 1]


def _portions(tasks: list[Task], weight: Callable[[Task], int], heaviest: int) -> Iterator[list[Task]]:
    """Return the operations in portions that fit into one transaction."""
    part: list[Task] = []
    taken = 0
    for task in tasks:
        weighs = weight(task)
        if part and (len(part) >= MOST_AT_ONCE or taken + weighs > heaviest):
            yield part
            part, taken = [], 0
        part.append(task)
        taken += weighs
    if part:
        yield part


def _bytes_of(task: Task) -> int:
    """Return about how much more than a usual one a transaction has to carry."""
    return 2 * len(task.op.metadata) if isinstance(task.op, Acquire) else 0


def _names(op: Op) -> list[str]:
    parent = op.parent if isinstance(op, Acquire) else None
    return [op.resource, parent[0]] if parent is not None and parent[0] != op.resource else [op.resource]


def _turns(tasks: list[Task]) -> list[list[Task]]:
    """Return the operations in groups, one after the other: within a group, no resource is there twice."""
    turns: list[list[Task]] = []
    last: dict[str, int] = {}
    for task in tasks:
        turn = max(last.get(name, -1) for name in task.names) + 1
        last |= dict.fromkeys(task.names, turn)
        if turn == len(turns):
            turns.append([])
        turns[turn].append(task)
    return turns


def _is_simple(op: Acquire) -> bool:
    """Whether such a lease has one key, on an etcd lease of its own."""
    return op.parent is None and not op.lock_delay_ns and not op.hold_at_least_ns
