"""What takes part: one way to hold a resource, used as its own documentation shows it.

A new peer is one class in one file under ``contestants``: how it acquires, and what that returns to release. It runs in
a process of its own, so it imports its library in the constructor; whatever fails there is named in the report.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from itertools import chain, cycle
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

T = TypeVar("T")
Times = list[float]
"""How long each acquire + release took, in seconds."""
Kind = Literal["ours", "peer", "floor"]
Face = Literal["threads", "tasks"]


class Contestant(ABC):
    """One way to hold a resource. The works call ``take``, ``give``, ``keep``, ``idle`` and ``pairs``."""

    name: ClassVar[str]
    store: ClassVar[str]
    kind: ClassVar[Kind] = "peer"
    face: ClassVar[Face] = "threads"
    packages: ClassVar[tuple[str, ...]] = ()
    """The distributions whose versions belong to its numbers."""
    works: ClassVar[tuple[str, ...]] = ("*",)
    """Patterns of the works that make sense for it."""
    without: ClassVar[Mapping[str, str]] = {}
    """Patterns of the works that people may expect it in and that it can't do, with the reason."""
    ready: ClassVar[str] = ""
    """What a program says until it could start to lock: the statement whose time and memory are measured."""
    remark: ClassVar[str] = ""
    """What a reader must know beside its numbers."""
    polls: ClassVar[float] = 0.0
    """How often its waiters look, in seconds; 0 if they are called."""
    expires: ClassVar[bool] = True
    """Whether its locks end with a TTL; else they end with the holder's connection or process."""

    def __init__(self, url: str, ttl: float) -> None:
        self.url = url
        self.ttl = ttl

    @classmethod
    def takes_part(cls, work: str) -> bool:
        return any(fnmatch(work, pattern) for pattern in cls.works) and cls.why_not(work) is None

    @classmethod
    def why_not(cls, work: str) -> str | None:
        return next((why for pattern, why in cls.without.items() if fnmatch(work, pattern)), None)

    @abstractmethod
    def take(self, resource: str) -> int:
        """Wait for it, and return when it was there: nanoseconds of the monotonic clock, which all processes share."""

    @abstractmethod
    def give(self, resource: str) -> int:
        """Release it, and return when that began."""

    @abstractmethod
    def keep(self, resource: str) -> None:
        """Acquire it and have it renewed until the process ends."""

    @abstractmethod
    def idle(self, seconds: float) -> None:
        """Let time pass, with everything in the background going on."""

    @abstractmethod
    def pairs(self, callers: int, seconds: float) -> dict[str, float]:
        """Let so many callers acquire and release, each a resource of its own: how many a second, how long each takes."""

    def attempt(self, resource: str) -> bool:
        """Try to get what somebody else has, without waiting for it."""
        raise NotImplementedError("it can't try without waiting")

    def attempts(self, resource: str, count: int) -> float:
        """Return how many a second there were; all of them fail."""
        start = perf_counter()
        got = sum(self.attempt(resource) for _ in range(count))
        assert not got, "it got what somebody else has"
        return count / (perf_counter() - start)

    def contend(self, resource: str, start_ns: int, end_ns: int, work: float) -> tuple[int, int]:
        """Take turns with others until the end; return how many turns, and the longest wait in nanoseconds."""
        turns = longest = 0
        time.sleep(max(0, start_ns - perf_counter_ns()) / 1e9)
        while (asked := perf_counter_ns()) < end_ns:
            got = self.take(resource)
            longest = max(longest, got - asked)
            turns += got < end_ns
            if got < end_ns:
                time.sleep(work)
            self.give(resource)
        return turns, longest

    def hold_many(self, count: int) -> int:
        """Keep so many, and return the bytes of memory that this took."""
        before = _memory()
        for number in range(count):
            self.keep(f"bench/{number}")
        return _memory() - before

    def rest(self, seconds: float) -> tuple[float, int]:
        """Return the CPU time that the process used meanwhile, and how many threads it has."""
        start = time.process_time()
        self.idle(seconds)
        return time.process_time() - start, len(os.listdir("/proc/self/task"))

    def lost(self) -> int:
        """Return how many of the kept ones are known to be lost."""
        return 0

    def close(self) -> None:  # noqa: B027 - most have nothing to close that the end of their process doesn't
        """End in order."""


class Blocking(Contestant):
    """A lock for threads."""

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        self._held: dict[str, Callable[[], object]] = {}

    @abstractmethod
    def acquire(self, resource: str) -> Callable[[], object]:
        """Wait for the resource, and return what releases it."""

    def take(self, resource: str) -> int:
        self._held[resource] = self.acquire(resource)
        return perf_counter_ns()

    def give(self, resource: str) -> int:
        release = self._held.pop(resource)
        start = perf_counter_ns()
        release()
        return start

    def keep(self, resource: str) -> None:
        self.take(resource)

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    def pairs(self, callers: int, seconds: float) -> dict[str, float]:
        if callers == 1:
            start = perf_counter()
            taken = self._pairs_until("bench/0", start + seconds)
            return _summary([taken], perf_counter() - start)
        barrier = threading.Barrier(callers + 1)

        def caller(number: int) -> Times:
            resource = f"bench/{number}"
            try:
                self.acquire(resource)()  # connects, where each thread has a connection
            except BaseException:
                barrier.abort()
                raise
            barrier.wait()
            return self._pairs_until(resource, perf_counter() + seconds)

        with ThreadPoolExecutor(callers) as threads:
            turns = [threads.submit(caller, number) for number in range(callers)]
            try:
                barrier.wait()
            except threading.BrokenBarrierError:
                errors = [turn.exception() for turn in turns]
                reasons = [error for error in errors if not isinstance(error, threading.BrokenBarrierError | None)]
                raise reasons[0] from None
            start = perf_counter()
            return _summary([turn.result() for turn in turns], perf_counter() - start)

    def _pairs_until(self, resource: str, end: float) -> Times:
        taken: Times = []
        start = perf_counter()
        while start < end:
            self.acquire(resource)()
            begun, start = start, perf_counter()
            taken.append(start - begun)
        return taken


class Async(Contestant):
    """A lock for tasks, all on one event loop."""

    face = "tasks"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        self._loop = asyncio.new_event_loop()
        self._held: dict[str, Callable[[], Awaitable[object]]] = {}
        self.renewals: list[Callable[[], Awaitable[object]]] = []
        """What renews each of those that are kept."""
        self.run(self.open())

    @abstractmethod
    async def open(self) -> None:
        """Import and connect."""

    @abstractmethod
    async def acquire(self, resource: str) -> Callable[[], Awaitable[object]]:
        """Wait for the resource, and return what releases it."""

    async def hold(self, resource: str) -> None:
        """Acquire it and have it renewed: by itself, unless a subclass has to see to it."""
        self._held[resource] = await self.acquire(resource)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def take(self, resource: str) -> int:
        self._held[resource] = self.run(self.acquire(resource))
        return perf_counter_ns()

    def give(self, resource: str) -> int:
        start = perf_counter_ns()
        self.run(self._release(resource))
        return start

    async def _release(self, resource: str) -> None:
        await self._held.pop(resource)()

    def keep(self, resource: str) -> None:
        self.run(self.hold(resource))

    def idle(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def pairs(self, callers: int, seconds: float) -> dict[str, float]:
        return self.run(self._pairs(callers, seconds))

    async def _pairs(self, callers: int, seconds: float) -> dict[str, float]:
        names = [f"bench/{number}" for number in range(callers)]
        await asyncio.gather(*(self._pairs_until(name, perf_counter()) for name in names))
        start = perf_counter()
        taken = await asyncio.gather(*(self._pairs_until(name, start + seconds) for name in names))
        return _summary(taken, perf_counter() - start)

    async def _pairs_until(self, resource: str, end: float) -> Times:
        """Make pairs until then, and at least one."""
        taken: Times = []
        start = perf_counter()
        while not taken or start < end:
            await (await self.acquire(resource))()
            begun, start = start, perf_counter()
            taken.append(start - begun)
        return taken

    def renewing(self, callers: int, seconds: float) -> float:
        """Return how many of those that are kept so many callers renew in a second, one after the other."""
        return self.run(self._renewing(callers, seconds))

    async def _renewing(self, callers: int, seconds: float) -> float:
        start = perf_counter()
        turns = cycle(self.renewals)

        async def caller() -> int:
            done = 0
            while perf_counter() < start + seconds:
                await next(turns)()
                done += 1
            return done

        done = sum(await asyncio.gather(*(caller() for _ in range(callers))))
        return done / (perf_counter() - start)


def _summary(taken: Iterable[Times], seconds: float) -> dict[str, float]:
    ranked = sorted(chain.from_iterable(taken))
    p50, p99 = (ranked[min(len(ranked) - 1, len(ranked) * percent // 100)] * 1e3 for percent in (50, 99))
    return {"pairs": len(ranked) / seconds, "p50": p50, "p99": p99}


def _memory() -> int:
    """Return how much of this process is in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
