"""Carries operations out: reads, lets the rules decide, and writes if nothing has changed since.

Each operation is a small transaction, and many of them go in one large one, so a batch costs a round trip and one
entry in etcd's log. What this client remembers is tried first: an acquire of what it knows to be free, or a release of
what it was granted, takes one round trip. Where that was wrong, the same answer brings what is true.

This is the loop. `Deciding` says what is to be done, `Moves` how that is asked of etcd, `Results` what follows.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Final

from lessor.core.clock import SECOND
from lessor.core.ops import Unknown
from lessor.errors import LessorError, StoreUnavailable
from lessor.stores.etcd import batches
from lessor.stores.etcd.deciding import Deciding
from lessor.stores.etcd.layout import transaction, within
from lessor.stores.etcd.leases import EtcdLease, kept_alive, signs_of_life
from lessor.stores.etcd.memory import key_of
from lessor.stores.etcd.moves import Moves
from lessor.stores.etcd.results import Results
from lessor.stores.etcd.tokens import Mint, Offset, Tokens
from lessor.stores.etcd.trouble import Elsewhere, LeaseGone, RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.clock import Clock
    from lessor.core.ops import Op, Outcome
    from lessor.stores.etcd.layout import Layout
    from lessor.stores.etcd.leases import Leases
    from lessor.stores.etcd.members import Members
    from lessor.stores.etcd.memory import Memory
    from lessor.stores.etcd.task import Task

FEW: Final = 4
"""Up to so many operations, a transaction that is refused shows in the same answer what is true instead."""


class Engine:
    """The operations of one store. Safe for threads."""

    def __init__(self, members: Members, leases: Leases, layout: Layout, memory: Memory, clock: Clock) -> None:
        self._members = members
        self._leases = leases
        self._layout = layout
        self._clock = clock
        self._memory = memory
        self._tokens = Tokens(members, layout)
        self._deciding = Deciding(layout, memory, clock)
        self._moves = Moves(layout, leases, memory, clock)
        self._results = Results(members, leases, layout, memory, tokens=self._tokens, clock=clock)
        self._patience = members.count + 1
        self._nap = threading.Event()

    def apply(self, ops: Sequence[Op], give_up: int) -> list[Outcome]:
        """Carry the operations out, in order."""
        tasks = batches.tasks_of(ops)
        started = self._clock.now()
        for turn in batches.turns(tasks):
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
            self._moves.choose(task)
        failures = 0
        error: LessorError = StoreUnavailable("etcd", "others were faster, again and again")
        while pending := [task for task in tasks if task.outcome is None]:
            if self._clock.now() >= give_up or failures > self._patience:
                _give_up(pending, error)
                return
            try:
                pending = self._decide(pending, give_up)
                self._get_leases(pending, give_up)
                writing, looking = [*batches.writes(pending)], [*batches.reads(pending)]
                for part in writing:
                    self._write(part, started, give_up)
                for part in looking:
                    self._look(part, give_up)
                self._pause(max((task.tries for task in pending if task.outcome is None), default=0), give_up)
            except (LeaseGone, Elsewhere) as trouble:
                error = trouble
                failures += 1
                self._stumble(pending, trouble)
                self._pause(failures, give_up)
            except LessorError as settled:
                _give_up(pending, settled)

    def _stumble(self, tasks: list[Task], trouble: LessorError) -> None:
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

    def _pause(self, tries: int, give_up: int) -> None:
        """From the second failure on, wait a little, at random: those who are in each other's way don't meet again."""
        if tries < 2:
            return
        left = max(0, give_up - self._clock.now()) / SECOND
        self._nap.wait(min(left, random.uniform(0, min(0.2, 0.002 * 2**tries))))

    def _start_over(self, task: Task) -> None:
        """Forget what was about to be done: the first thing is to look what is true."""
        self._leases.give_back(task)
        task.start_over()

    def _decide(self, tasks: list[Task], give_up: int) -> list[Task]:
        """Decide what can be decided; ask for how long etcd leases last where that matters. Returns what is to go on."""
        while True:
            wanted: dict[int, set[int]] = {}
            for at, task in enumerate(tasks):
                wanted[task.index] = self._deciding.decide(task)
                if task.reaches_others and task.outcome is None:
                    tasks = batches.only_up_to(tasks, at)
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

    # --- what goes to etcd ----------------------------------------------------------------------------------------

    def _get_leases(self, tasks: list[Task], give_up: int) -> None:
        """Have the etcd leases ready that the plans need."""
        short = []
        for task in tasks:
            for name, seconds in self._moves.needs(task).items():
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
        offset = self._tokens.offset
        moves = []
        for task in tasks:
            look = task.look(self._layout) if len(tasks) <= FEW else []
            moves.append(within(self._moves.move(task, look, offset.plus, give_up)))
        answer = self._exchange(tasks, moves, offset, give_up)
        if answer is None:
            return
        mint = Mint(answer["header"]["revision"], offset)
        for task, response in zip(tasks, answer["responses"], strict=True):
            inner = response["transaction"]
            if inner.get("succeeded"):
                self._results.succeeded(task, inner.get("responses", []), mint, started, give_up)
            else:
                self._results.refused(task, inner.get("responses", []))

    def _look(self, tasks: list[Task], give_up: int) -> None:
        """Read what some operations depend on. Reads alone aren't written to etcd's log, unless they are nested."""
        looks = [task.look(self._layout) for task in tasks]
        requests = [read for look in looks for read in look]
        answer = self._exchange(tasks, requests, self._tokens.offset, give_up)
        if answer is None:
            return
        responses = iter(answer["responses"])
        for task, look in zip(tasks, looks, strict=True):
            task.take_in(self._layout, [next(responses) for _ in look])

    def _exchange(
        self, tasks: list[Task], requests: list[bytes], offset: Offset, give_up: int
    ) -> dict[str, Any] | None:
        """Keep etcd leases alive, and then send a transaction. Returns its answer; None where nothing was done."""
        now = self._clock.now()
        keep = [lease for task in tasks for lease in task.keep]
        alive = self._members.ask([signs_of_life(keep)], give_up)[0] if keep else []
        request = transaction([self._tokens.demand(offset)], requests, [self._tokens.look()])
        try:
            answer = self._members.transact(request, give_up)
        except RefusedError as refused:
            self._refused(tasks, refused)
            return None
        if not answer.get("succeeded"):
            self._tokens.learn(answer["responses"][0])
            for task in tasks:
                self._start_over(task)
            return None
        kept = kept_alive(alive, answer["header"]["raft_term"])
        for task in tasks:
            task.asked, task.keep = task.keep, []
            task.kept |= {i: self._known(task, i, kept[i])._replace(since_ns=now) for i in task.asked if i in kept}
        return answer

    def _refused(self, tasks: list[Task], why: RefusedError) -> None:
        """Go on after a transaction that etcd doesn't take: one of them may be the reason, so each goes alone."""
        for task in tasks:
            self._start_over(task)
            task.alone = True
            if len(tasks) == 1:
                task.outcome = Unknown(why)

    def _known(self, task: Task, lease_id: int, seconds: int) -> EtcdLease:
        """Return what is known of an etcd lease that was kept alive."""
        grip = self._memory.grips.get(key_of(task.op))
        candidates = [*task.leases.values(), *(grip.leases if grip else ())]
        return next((x for x in candidates if x.id == lease_id), EtcdLease(lease_id, seconds, seconds, 0))


def _give_up(tasks: list[Task], error: LessorError) -> None:
    for task in tasks:
        if task.outcome is None:
            task.outcome = Unknown(error)
