"""Draining: close the intake, wait for the work in flight, and only then give the lease back. In that order, always.

It can't end work that doesn't end by itself: then the lease is kept, and renewed, until it does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from leasehold.core.timing import to_ns
from leasehold.errors import ConfigError, Draining, StillWorking

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.core.timing import Duration
    from leasehold.runtime.tenure import Tenure

    Heir: TypeAlias = str | Callable[[], Any] | None
    State: TypeAlias = bytes | Callable[[], Any]
    """Who gets it, and what is left for them: said now or, by a function, when the work has ended."""


class Intake:
    """How much work is in flight, and whether more is taken. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._waiting: list[Callable[[], object]] = []
        self.in_flight = 0

    def enter(self) -> bool:
        """Count one in; False: it is closed."""
        with self._lock:
            if not self._closed:
                self.in_flight += 1
            return not self._closed

    def leave(self) -> None:
        """Count one out, and tell those who wait for the last one."""
        with self._lock:
            self.in_flight = max(0, self.in_flight - 1)  # after a fork, the parent's
            told, self._waiting = (self._waiting, []) if self.in_flight == 0 else ([], self._waiting)
        for tell in told:
            tell()

    def fork(self) -> None:
        """In a forked child: what is in flight is the parent's, as are those who wait, and whoever has the lock."""
        self._lock = threading.Lock()
        self._waiting = []
        self.in_flight = 0

    def close(self, when_empty: Callable[[], object]) -> None:
        """Take no more, and have this called when nothing is in flight any more; at once, if nothing is."""
        with self._lock:
            self._closed = True
            empty = self.in_flight == 0
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


class Work:
    """What ``lease.work()`` returns: the body of its ``with`` is work in flight, also for those that the lease stands under."""

    __slots__ = ("_entered", "_tenure")

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure
        self._entered: list[list[Intake]] = []

    def __enter__(self) -> None:
        entered: list[Intake] = []
        self._entered.append(entered)
        try:
            self._count_in(entered)
            self._tenure.check()
        except BaseException:
            self._entered.remove(entered)
            _leave(entered)
            raise

    def __exit__(self, *_: object) -> None:
        _leave(self._entered.pop())

    def _count_in(self, entered: list[Intake]) -> None:
        above: Tenure | None = self._tenure
        while above is not None:
            intake = intake_of(above)
            if not intake.enter():
                raise Draining(self._tenure.resource, token=self._tenure.token)
            entered.append(intake)
            above = above.parent


def _leave(entered: list[Intake]) -> None:
    for intake in entered:
        intake.leave()


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
