"""Threads in virtual time: real ones, of which one runs at a time, and only when the scheduler says so.

So the machinery that drives a client (batcher, keeper, watchdog, listener) runs here as it is, and always in the same
order. A thread gives way where it waits, and nowhere else; while it runs, no time passes.
"""

from __future__ import annotations

import heapq
import threading
from typing import TYPE_CHECKING, Any

from lessor.core.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.sim.program.process import SimProcess


class Ended(BaseException):
    """Unwinds what waits when the world is over."""


class Scheduler:
    """Lets things happen in the order of their true times, on whichever thread has the turn."""

    def __init__(self) -> None:
        self.now = 0
        self.stopped = self.over = False
        self.threads: list[VirtualThread] = []
        self._end_ns = 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._ready: VirtualThread | None = None
        self._error: BaseException | None = None
        self._back = threading.Semaphore(0)

    def at(self, when_ns: int, action: Callable[..., None], *details: Any) -> None:
        """Let something happen at a true time."""
        self._serial += 1
        heapq.heappush(self._events, (when_ns, self._serial, action, details))

    def run(self, end_ns: int) -> None:
        """Let everything happen until then, or until somebody says ``stop``."""
        self._end_ns = end_ns
        self.pass_on(self.next())
        try:
            self._back.acquire()
        except BaseException:  # an interrupt: let whoever has the turn come to where it waits
            self.stop()
            self._back.acquire()
            raise
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Let nothing more happen."""
        self.stopped = True

    def finish(self) -> None:
        """Unwind all threads."""
        self.over = True
        while self.threads:
            thread = self.threads.pop()
            if thread.is_alive():
                self.pass_on(thread)
                self._back.acquire()
                thread.join()

    def next(self) -> VirtualThread | None:
        """Let things happen until a thread is to go on, and return it; None: it is over."""
        events = self._events
        while events and events[0][0] <= self._end_ns and not self.stopped:
            self.now, _, action, details = heapq.heappop(events)
            try:
                action(*details)
            except BaseException as error:  # noqa: BLE001 - this thread has nothing to do with it
                self._error = error
                self.stop()
            if self._ready is not None:
                thread, self._ready = self._ready, None
                return thread
        return None

    def wake(self, thread: VirtualThread) -> None:
        """Let the thread go on, next of all."""
        self._ready = thread

    def pass_on(self, thread: VirtualThread | None) -> None:
        """Give the turn to a thread, or back to whoever called ``run`` or ``finish``."""
        (self._back if thread is None else thread.baton).release()


class VirtualThread(threading.Thread):
    """A thread of a simulated process, in one of that process's lives."""

    def __init__(self, process: SimProcess, run: Callable[[], None], name: str) -> None:
        super().__init__(name=f"{process.name}/{name}", daemon=True)
        self.scheduler = process.world.scheduler
        self.process = process
        self.life = process.life
        self.work = run
        self.baton = threading.Lock()
        """Taken; whoever gives it the turn releases it."""
        self.baton.acquire()
        self.tidying = False
        """Whether it goes on when the world is over, to put things away; then nothing takes time."""
        self._waits = 0
        """How often it has waited; what would have ended an earlier wait is void."""
        self._woken = False
        self.scheduler.threads.append(self)
        self.start()
        self.scheduler.at(self.scheduler.now, self.resume, 0, False)

    def run(self) -> None:
        """Wait for the first turn, and do the work."""
        self.baton.acquire()
        try:
            if not self.scheduler.over:
                self.work()
        except Ended:
            pass
        finally:
            if not self.scheduler.over:
                self.scheduler.threads.remove(self)
            self.scheduler.pass_on(None if self.scheduler.over else self.scheduler.next())

    def park(self, until_ns: int | None) -> bool:
        """Wait until somebody calls ``unpark``, but not beyond a true time; return whether somebody did."""
        scheduler = self.scheduler
        if scheduler.over:
            if self.tidying:
                return False
            raise Ended
        if until_ns is not None:
            scheduler.at(until_ns, self.resume, self._waits, False)
        thread = scheduler.next()
        if thread is not self:
            scheduler.pass_on(thread)
            self.baton.acquire()
            if scheduler.over:
                raise Ended
        return self._woken

    def unpark(self) -> None:
        """End its wait. Not for the thread that runs."""
        self.scheduler.at(self.scheduler.now, self.resume, self._waits, True)

    def resume(self, waits: int, woken: bool) -> None:  # noqa: FBT001 - a detail of an event
        """Let it go on, unless that wait is over already; not while its process stands still, and never once that died."""
        scheduler, process = self.scheduler, self.process
        if waits != self._waits or self.life != process.life:
            return
        if scheduler.now < process.still_until:
            scheduler.at(process.still_until, self.resume, waits, woken)
            return
        self._waits += 1
        self._woken = woken
        scheduler.wake(self)


def this_thread() -> VirtualThread:
    """Return the virtual thread that runs."""
    thread = threading.current_thread()
    assert isinstance(thread, VirtualThread), "this only works inside a simulated process"
    return thread


class VirtualCondition(threading.Condition):
    """A condition whose waits take virtual time, by the clock of the process."""

    def __init__(self, process: SimProcess, lock: threading.RLock | None = None) -> None:
        super().__init__(lock)
        self._process = process
        self._parked: list[VirtualThread] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for ``notify``."""
        thread = this_thread()
        self._parked.append(thread)
        self.release()
        try:
            return thread.park(None if timeout is None else self._process.in_true_time(timeout))
        finally:
            self.acquire()
            if thread in self._parked:
                self._parked.remove(thread)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until it is so."""
        clock = self._process.clock
        give_up = None if timeout is None else clock.now() + int(timeout * SECOND)
        while not (result := predicate()):
            left = None if give_up is None else (give_up - clock.now()) / SECOND
            if (left is not None and left <= 0) or self._process.world.scheduler.over:
                return result
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        """Wake some up."""
        for thread in self._parked[:n]:
            self._parked.remove(thread)
            thread.unpark()

    def notify_all(self) -> None:
        """Wake all up."""
        self.notify(len(self._parked))
