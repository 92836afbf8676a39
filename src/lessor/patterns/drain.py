"""Draining: close the intake, wait for the work in flight, and only then give the lease back. In that order, always.

It can't end work that doesn't end by itself: then the lease is kept, and renewed, until it does.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

from lessor.core.timing import to_ns
from lessor.errors import ConfigError, Draining, StillWorking
from lessor.runtime.blocks import Exit, Leaving, block_of
from lessor.stores.locks import open_in_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from lessor.core.timing import Duration
    from lessor.runtime.tenure import Tenure

    Heir: TypeAlias = str | Callable[[], Any] | None
    State: TypeAlias = bytes | Callable[[], Any]
    """Who gets it, and what is left for them: said now or, by a function, when the work has ended."""


class Intake:
    """What work is in flight, and whether more is taken. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._closed = False
        self._waiting: list[Callable[[], object]] = []
        self._visits: set[object] = set()

    @property
    def closed(self) -> bool:
        """Whether no more is taken."""
        return self._closed

    @property
    def in_flight(self) -> int:
        """How much that is."""
        return len(self._visits)

    def enter(self, visit: object) -> bool:
        """Count one in; False: it is closed."""
        with self._lock:
            if not self._closed:
                self._visits.add(visit)
            return not self._closed

    def leave(self, visit: object) -> None:
        """Count one out, if it was counted in, and tell those who wait for the last one."""
        with self._lock:
            self._visits.discard(visit)
            told = [] if self._visits else list(self._waiting)
        for tell in told:
            tell()

    def fork(self) -> None:
        """In a forked child: what is in flight is the parent's, as are those who wait, and whoever has the lock."""
        open_in_child(self._lock)
        self._waiting = []
        self._visits = set()

    def close(self, when_empty: Callable[[], object]) -> None:
        """Take no more, and have this called when nothing is in flight any more; at once, if nothing is."""
        with self._lock:
            self._closed = True
            empty = not self._visits
            if not empty:
                self._waiting.append(when_empty)
        if empty:
            when_empty()


def intake_of(tenure: Tenure) -> Intake:
    """Return what counts the lease's work."""
    with tenure._lock:
        if tenure._intake is None:
            tenure._intake = Intake()
        intake: Intake = tenure._intake
    return intake


def announce(tenure: Tenure) -> None:
    """Take no more work from now on: a drain follows."""
    intake_of(tenure).close(lambda: None)


class Work:
    """What ``lease.work()`` returns: the body of its ``with`` is work in flight, also for those that the lease stands under."""

    __slots__ = ("_tenure", "_visits")

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure
        self._visits: list[Visit] = []

    def __enter__(self) -> None:
        visit = Visit(block_of(self), self._tenure._engine.keeper.deserted.append)
        self._visits.append(visit)
        try:
            visit.enter(self._tenure)
            self._tenure.check()
        except BaseException:
            self._visits.remove(visit)
            visit.leave()
            raise

    if TYPE_CHECKING:

        def __exit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> None: ...
    else:
        __exit__ = Leaving(Exit)

    def _exit(self, *_: object) -> None:
        self._visits.pop().leave()


class Visit:
    """One body of a ``with``, and where it is counted. An interrupt may come at any time, and it is counted out all the same."""

    __slots__ = ("_block", "_intakes")

    def __init__(self, block: object, report: Callable[[Visit], object]) -> None:
        self._intakes: list[Intake] = []
        self._block: Any = weakref.ref(block, lambda _: report(self))
        """What lives as long as the body runs: reported if it is gone before ``leave``."""

    def desert(self, _orphaned: object) -> None:
        """Count a body out that was cut off by an interrupt."""
        self.leave()

    def enter(self, tenure: Tenure) -> None:
        """Be counted in by the lease, and by all that it stands under."""
        above: Tenure | None = tenure
        while above is not None:
            intake = intake_of(above)
            self._intakes.append(intake)
            if not intake.enter(self):
                raise Draining(tenure.resource, token=tenure.token)
            above = above.parent

    def leave(self) -> None:
        """Be counted out."""
        try:
            for intake in self._intakes:
                intake.leave(self)
        except BaseException:
            for intake in self._intakes:
                intake.leave(self)
            raise
        self._block = None


def still_working(tenure: Tenure) -> StillWorking:
    """Return what to say when the time is over."""
    return StillWorking(tenure.resource, token=tenure.token, in_flight=intake_of(tenure).in_flight)


def seconds_of(timeout: Duration | None) -> float | None:
    """Return the time that a drain may take; less than none is refused."""
    if timeout is None:
        return None
    seconds = to_ns(timeout, "the time for a drain") / 1e9
    if seconds < 0:
        raise ConfigError(f"the time for a drain can't be negative, and it is {seconds:g} s")
    return seconds


def drain(tenure: Any, timeout: Duration | None, to: Heir, state: State, within: Duration) -> bool:
    """Close the intake, wait for the work, release or hand over."""
    seconds, empty = seconds_of(timeout), threading.Event()
    intake_of(tenure).close(empty.set)
    if not empty.wait(seconds):
        raise still_working(tenure)
    heir = to() if callable(to) else to
    if heir is None:
        return bool(tenure.release())
    return bool(tenure.hand_over(heir, state() if callable(state) else state, within))


async def drain_async(tenure: Any, timeout: Duration | None, to: Heir, state: State, within: Duration) -> bool:  # noqa: ASYNC109 - it ends the wait, not the work
    """Do the same on an event loop; what is asked for may have to be awaited."""
    import asyncio  # noqa: PLC0415 - threads don't need these
    import contextlib  # noqa: PLC0415

    seconds, empty, loop = seconds_of(timeout), asyncio.Event(), asyncio.get_running_loop()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(empty.set)

    intake_of(tenure).close(tell)
    try:
        async with asyncio.timeout(seconds):
            await empty.wait()
    except TimeoutError:
        raise still_working(tenure) from None
    heir = await _said(to)
    if heir is None:
        return bool(await tenure.release())
    return bool(await tenure.hand_over(heir, await _said(state), within))


async def _said(value: Any) -> Any:
    if callable(value):
        value = value()
    return await value if hasattr(value, "__await__") else value
