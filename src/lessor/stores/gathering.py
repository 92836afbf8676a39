"""Makes one request of what several threads ask at the same time.

That is for stores where each request costs an entry in a log that is synced, or where there are more threads than
connections. A few callers are under way at once; whoever comes meanwhile waits, and the first of those then takes all along that
have come. Nobody waits for time to pass until more come, so a single caller loses nothing.

An interrupt may end a thread's call at any line. So whoever is under way is known weakly: with the call, its lane is
given back, wherever that ended.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from lessor.core.clock import SECOND
from lessor.core.ops import Renew, Unknown
from lessor.errors import StoreUnavailable
from lessor.stores.locks import new_lock, open_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lessor.core.clock import Clock
    from lessor.core.ops import Op, Outcome

LANES: Final = 2
"""How many transactions are under way at once."""
MOST_OPS: Final = 100
MOST_YIELDS: Final = 8
GRACE: Final = 1.0
"""Seconds that somebody who was taken along waits for its answer beyond its time: whoever took it may be gone."""


class Caller:
    """A thread that waits: for its turn to go, or for somebody who takes its operations along."""

    __slots__ = ("__weakref__", "_gate", "give_up", "ops", "outcomes", "party")

    def __init__(self, ops: Sequence[Op], give_up: int) -> None:
        self.ops = ops
        self.give_up = give_up
        self.outcomes: list[Outcome] | None = None
        self.party: Sequence[Caller] | None = None
        """Whom it takes along, once it is its turn."""
        self._gate = threading.Lock()  # an event is four times as much work, for something that happens once
        self._gate.acquire()

    def call(self) -> None:
        """Let it go on."""
        open_gate(self._gate)

    def is_called(self, seconds: float) -> bool:
        """Wait for that."""
        return self._gate.acquire(timeout=seconds)


class Gathering:
    """The callers of one store."""

    def __init__(self, store: str, carry_out: Callable[[Sequence[Op], int], list[Outcome]], clock: Clock) -> None:
        self._store = store
        self._carry_out = carry_out
        self._clock = clock
        self._lock = new_lock()
        self._waiting: list[Caller] = []
        self._under_way: weakref.WeakSet[Caller] = weakref.WeakSet()
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Know of nobody: at the start, and in a forked child, where those threads are not."""
        for caller in [*self._waiting, *self._under_way, *(one for c in self._under_way for one in c.party or ())]:
            caller.call()
        self._waiting = []
        self._under_way = weakref.WeakSet()
        self._crowd = 0
        """How many went together the last time."""

    def apply(self, ops: Sequence[Op], give_up: int) -> list[Outcome]:
        """Carry the operations out, with others' or by themselves. Renewals never wait for anybody."""
        if type(ops[0]) is Renew:
            return self._carry_out(ops, give_up)
        me = Caller(ops, give_up)
        try:
            with self._lock:
                if len(self._under_way) < LANES:
                    self._set_out(me)
                else:
                    self._waiting.append(me)
            if me.party is None:
                self._wait(me)
            if me.party is not None:
                self._go(me)
        finally:
            self._leave(me)
        if me.outcomes is None:
            return [Unknown(StoreUnavailable(self._store, "others' requests took all the time"))] * len(ops)
        return me.outcomes

    def _set_out(self, caller: Caller) -> None:
        """Give it a lane. Called under the lock."""
        self._under_way.add(caller)
        caller.party = ()

    def _wait(self, me: Caller) -> None:
        """Wait until it is the caller's turn, or somebody has taken it along; not for longer than it has time."""
        if me.is_called(min(max(0, me.give_up - self._clock.now()) / SECOND, threading.TIMEOUT_MAX)):
            return
        with self._lock:
            if me in self._waiting:
                return
        me.is_called(GRACE)  # just now; whoever takes it along has no more time than it has

    def _go(self, me: Caller) -> None:
        self._let_come()
        self._gather(me)
        together = [me, *(me.party or ())]
        ops = [op for caller in together for op in caller.ops]
        outcomes = iter(self._carry_out(ops, min(caller.give_up for caller in together)))
        for caller in together:
            caller.outcomes = [next(outcomes) for _ in caller.ops]

    def _let_come(self) -> None:
        """Where several asked a moment ago, let those run that can: who was just answered is about to ask again."""
        if self._crowd > 1:
            for _ in range(MOST_YIELDS):
                waiting = len(self._waiting)
                time.sleep(0)
                if len(self._waiting) <= waiting:
                    return

    def _gather(self, me: Caller) -> None:
        """Take those along who wait, and have nothing to do with one another."""
        with self._lock:
            self._crowd = 1
            if not self._waiting:
                return
            names = {op.resource for op in me.ops}
            count = len(me.ops)
            now = self._clock.now()
            party: list[Caller] = []
            others: list[Caller] = []
            for caller in self._waiting:
                wanted = [op.resource for op in caller.ops]
                fits = count + len(wanted) <= MOST_OPS and names.isdisjoint(wanted)
                if not fits or not _alike(caller.give_up - now, me.give_up - now):
                    others.append(caller)
                    continue
                party.append(caller)
                names.update(wanted)
                count += len(wanted)
            me.party, self._waiting = party, others  # in one step: nobody is in both, or in neither, after an interrupt
            self._crowd += len(party)

    def _leave(self, me: Caller) -> None:
        """Let those go that were taken along, and then the next one, who takes along whoever has come until it runs."""
        for caller in me.party or ():
            caller.call()
        if me.party is None and me.outcomes is not None:
            return  # it was taken along
        with self._lock:
            if me in self._waiting:
                self._waiting.remove(me)
            if me.party is None:
                return
            self._under_way.discard(me)
            now = self._clock.now()
            chosen = next((caller for caller in self._waiting if caller.give_up > now), None)
            if chosen is None:
                return
            self._waiting.remove(chosen)
            self._set_out(chosen)
        chosen.call()


def _alike(one: int, other: int) -> bool:
    """Whether they have about as much time: who goes along has no more than the one with the least."""
    return 0 < one <= 2 * other and other <= 2 * one


_all: weakref.WeakSet[Gathering] = weakref.WeakSet()


def _after_fork() -> None:
    for gathering in list(_all):
        gathering.forget()


os.register_at_fork(after_in_child=_after_fork)
