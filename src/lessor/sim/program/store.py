"""The way to the simulated store: requests, answers and calls take their time, get lost, or come too late.

The store itself decides by the same rules as ``memory://``, on a clock of its own, and forgets nothing.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from lessor.core.ops import Granted, Revoke, Unknown
from lessor.errors import StoreUnavailable
from lessor.sim.program.threads import this_thread
from lessor.stores.base import Capability
from lessor.stores.memory import MemoryStore, MemorySubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Event, Notice, Op, Outcome
    from lessor.sim.program.process import SimProcess
    from lessor.sim.program.threads import VirtualThread

NAME = "sim"


class Call:
    """A question on its way, and the thread that waits for the answer."""

    def __init__(self, ask: Callable[[], Any], thread: VirtualThread) -> None:
        self.ask = ask
        self.thread = thread
        self.answer: Any = None


class SimStore:
    """A client's end of the wire."""

    guarantees = MemoryStore.guarantees._replace(
        store=NAME,
        clock="the simulated store's own",
        tokens="increase for the whole run",
        failover="none: it is one server, which can't always be reached",
        capabilities=MemoryStore.guarantees.capabilities | Capability.CROSS_PROCESS | Capability.CROSS_HOST,
        not_promised="anything outside of the simulation",
    )
    url = "sim://"

    def __init__(self, process: SimProcess) -> None:
        self._process = process
        self._world = process.world
        self._server = process.world.server

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Ask the store to carry out the operations."""
        outcomes: list[Outcome] | None = self._call(lambda: self._carry_out(ops), timeout)
        return [Unknown(_no_answer())] * len(ops) if outcomes is None else outcomes

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Ask who holds what."""
        records: list[Record | None] = self._need(lambda: self._server.read(resources, timeout=timeout), timeout)
        return records

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Ask for all leases under the prefix."""
        records: list[Record] = self._need(lambda: [*self._server.scan(prefix, timeout=timeout)], timeout)
        return iter(records)

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:
        """Ask who waits."""
        waiting: list[Contender] = self._need(lambda: self._server.waiters(resource, timeout=timeout), timeout)
        return waiting

    def subscribe(self, prefix: str | None = None) -> SimSubscription:
        """Be told."""
        return SimSubscription(self._process, prefix)

    def close(self) -> None:
        """Nothing to let go of."""

    def _carry_out(self, ops: Sequence[Op]) -> list[Outcome]:
        outcomes = self._server.apply(ops, timeout=0)
        for op, outcome in zip(ops, outcomes, strict=True):
            if isinstance(outcome, Granted):
                self._world.granted(self._process, op.resource, outcome.token)
            elif isinstance(op, Revoke) and op.force:
                self._world.forced.add(op.resource)
        return outcomes

    def _need(self, ask: Callable[[], Any], timeout: float) -> Any:
        answer = self._call(ask, timeout)
        if answer is None:
            raise _no_answer()
        return answer

    def _call(self, ask: Callable[[], Any], timeout: float) -> Any:
        """Send a question, wait for the answer, but not for longer, and return it. None: there was none."""
        process, world = self._process, self._world
        process.point()
        call = Call(ask, this_thread())
        give_up = process.in_true_time(timeout)
        world.carry(process, self._arrive, call)
        while call.answer is None and world.scheduler.now < give_up and not world.scheduler.over:
            call.thread.park(give_up)
        return call.answer

    def _arrive(self, call: Call) -> None:
        answer = call.ask()
        self._world.carry(self._process, self._return, call, answer)

    def _return(self, call: Call, answer: object) -> None:
        call.answer = answer
        call.thread.unpark()


class SimSubscription(MemorySubscription):
    """What the store pushes, over the same wire."""

    def __init__(self, process: SimProcess, prefix: str | None) -> None:
        table = process.world.table
        super().__init__(table, process.entropy(8).hex(), prefix)
        table.subscriptions[self.address] = self
        self._process = process
        self._condition = process.condition(threading.RLock())
        self._news: list[Event | Notice] = []
        self._interrupted = False

    def offer(self, news: Sequence[Event | Notice]) -> None:
        """Send what concerns this subscriber."""
        for item in filter(self.wants, news):
            self._process.world.carry(self._process, self._arrive, item)

    def get(self, timeout: float) -> list[Event | Notice] | None:
        """Return what came."""
        with self._condition:
            self._condition.wait_for(lambda: self._news or self._interrupted, timeout)
            news, self._news, self._interrupted = self._news, [], False
            return news

    def interrupt(self) -> None:
        """Let the ``get`` that is under way, or else the next one, return now."""
        with self._condition:
            self._interrupted = True
            self._condition.notify_all()

    def close(self) -> None:
        """End it."""
        self._process.world.table.subscriptions.pop(self.address, None)
        self.interrupt()

    def _arrive(self, item: Event | Notice) -> None:
        with self._condition:
            self._news.append(item)
            self._condition.notify_all()


def _no_answer() -> StoreUnavailable:
    return StoreUnavailable(NAME, "no answer")
