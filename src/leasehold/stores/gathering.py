"""Makes one transaction of what several threads ask at the same time, where each costs an entry in a log that is synced.

A few callers are under way at once; whoever comes meanwhile waits, and the first of those then takes all along that
have come. Nobody waits for time to pass until more come, so a single caller loses nothing.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from leasehold.core.clock import SECOND
from leasehold.core.ops import Renew, Unknown
from leasehold.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.core.clock import Clock
    from leasehold.core.ops import Op, Outcome

LANES: Final = 2
"""How many transactions are under way at once."""
MOST_OPS: Final = 100
MOST_YIELDS: Final = 8


class Caller:
    """A thread that waits: for its turn to go, or for somebody who takes its operations along."""

    __slots__ = ("_gate", "give_up", "ops", "outcomes", "party")

    def __init__(self, ops: Sequence[Op], give_up: int) -> None:
        self.ops = ops
        self.give_up = give_up
        self.outcomes: list[Outcome] | None = None
        self.party: list[Caller] | None = None
        """Whom it takes along, once it is its turn."""
        self._gate = threading.Lock()  # an event is four times as much work, for something that happens once
        self._gate.acquire()

    def call(self) -> None:
        """Let it go on; once."""
        self._gate.release()

    def is_called(self, seconds: float = -1) -> bool:
        """Wait for that."""
        return self._gate.acquire(timeout=seconds)


class Gathering:
    """The callers of one store."""

    def __init__(self, store: str, carry_out: Callable[[Sequence[Op], int], list[Outcome]], clock: Clock) -> None:
        self._store = store
        self._carry_out = carry_out
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Know of nobody: at the start, and in a forked child, where those threads are not."""
        self._lock = threading.Lock()
        self._waiting: list[Caller] = []
        self._under_way = 0
        self._crowd = 0
        """How many went together the last time."""

    def apply(self, ops: Sequence[Op], give_up: int) -> list[Outcome]:
        """Carry the operations out, with others' or by themselves. Renewals never wait for anybody."""
        if type(ops[0]) is Renew:
            return self._carry_out(ops, give_up)
        me = Caller(ops, give_up)
        with self._lock:
            if self._under_way < LANES:
                self._under_way += 1
                me.party = [me]
            else:
                self._waiting.append(me)
        if me.party is None and not self._has_turn(me):
            return self._silence(ops)
        if me.party is not None:
            self._go(me, me.party)
        return me.outcomes if me.outcomes is not None else self._silence(ops)

    def _has_turn(self, me: Caller) -> bool:
        """Wait until it is the caller's turn, or somebody has taken it along; not for longer than it has time."""
        try:
            if me.is_called(min(max(0, me.give_up - self._clock.now()) / SECOND, threading.TIMEOUT_MAX)):
                return True
            with self._lock:
                if me in self._waiting:
                    self._waiting.remove(me)
                    return False
            me.is_called()  # just now; whoever takes it along has no more time than it has
        except BaseException:
            self._leave(me)
            raise
        return True

    def _leave(self, me: Caller) -> None:
        """Go without an answer, and don't let anybody wait for that: an interrupt."""
        with self._lock:
            if me in self._waiting:
                self._waiting.remove(me)
        if me.party is not None:
            self._end(me.party)

    def _go(self, me: Caller, party: list[Caller]) -> None:
        try:
            self._let_come()
            self._gather(me, party)
            ops = [op for caller in party for op in caller.ops]
            outcomes = iter(self._carry_out(ops, min(caller.give_up for caller in party)))
            for caller in party:
                caller.outcomes = [next(outcomes) for _ in caller.ops]
        finally:
            self._end(party)

    def _let_come(self) -> None:
        """Where several asked a moment ago, let those run that can: who was just answered is about to ask again."""
        if self._crowd > 1:
            for _ in range(MOST_YIELDS):
                waiting = len(self._waiting)
                time.sleep(0)
                if len(self._waiting) <= waiting:
                    return

    def _gather(self, me: Caller, party: list[Caller]) -> None:
        """Take those along who wait, and have nothing to do with one another."""
        with self._lock:
            self._crowd = 1
            if not self._waiting:
                return
            names = {op.resource for op in me.ops}
            count = len(me.ops)
            now = self._clock.now()
            others: list[Caller] = []
            for caller in self._waiting:
                wanted = [op.resource for op in caller.ops]
                fits = count + len(wanted) <= MOST_OPS and names.isdisjoint(wanted)
                if caller.give_up <= now or not fits:
                    others.append(caller)
                    continue
                party.append(caller)
                names.update(wanted)
                count += len(wanted)
            self._waiting = others
            self._crowd = len(party)

    def _end(self, party: list[Caller]) -> None:
        """Let those go that were taken along, and then the next one, who takes along whoever has come until it runs."""
        for caller in party[1:]:
            caller.call()
        with self._lock:
            now = self._clock.now()
            chosen = next((caller for caller in self._waiting if caller.give_up > now), None)
            if chosen is None:
                self._under_way -= 1
                return
            self._waiting.remove(chosen)
            chosen.party = [chosen]
        chosen.call()

    def _silence(self, ops: Sequence[Op]) -> list[Outcome]:
        return [Unknown(StoreUnavailable(self._store, "others' requests took all the time"))] * len(ops)
