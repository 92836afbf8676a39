"""Turns the concurrent operations of tasks into one store call: what piles up during a call goes with the next."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from lessor.core.ops import Unknown
from lessor.errors import StoreUnavailable
from lessor.runtime.log import log
from lessor.stores.locks import new_lock
from lessor.stores.scarcity import scarce

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Sequence

    from lessor.core.ops import Op, Outcome
    from lessor.runtime.host import Host
    from lessor.stores.base import Store


Job: TypeAlias = "tuple[Op, Future[tuple[Outcome, int]]]"
"""An operation, and the future for its outcome and the time before it was sent. One that is cancelled isn't sent."""


class Batcher:
    """One thread, one call at a time."""

    def __init__(self, store: Store, host: Host, timeout: float) -> None:
        self._store = store
        self._host = host
        self._clock = host.clock
        self._timeout = timeout
        self._lock = new_lock()
        self._condition = host.condition(self._lock)
        self._jobs: list[Job] = []
        self._sent: list[Job] = []
        """What is under way."""
        self._thread: object = None
        self._idle = self._closed = False

    def submit(self, *jobs: Job) -> None:
        """Send them with the next call, or the next few if they are many."""
        with self._lock:
            if not self._closed:
                if self._thread is None:
                    with scarce(self._store.guarantees.store):
                        self._thread = self._host.start(self._run, "lessor-batcher")
                self._jobs += jobs
                if self._idle:
                    self._idle = False
                    self._condition.notify()
                return
        closed = Unknown(StoreUnavailable(self._store.guarantees.store, "the client is closed"))
        for _, answer in jobs:
            answer.set_result((closed, self._clock.mark()))

    def close(self) -> None:
        """End the thread once what was submitted has been answered."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def abandon(self) -> list[Callable[[], object]]:
        """In a forked child: nothing is answered here any more. Return what says so to a loop that goes on in it."""
        forked = Unknown(StoreUnavailable(self._store.guarantees.store, "the process was forked meanwhile"))
        jobs, self._jobs, self._sent, self._closed = self._sent + self._jobs, [], [], True
        return [partial(self._answer, jobs, [forked] * len(jobs), self._clock.now())] if jobs else []

    def _run(self) -> None:
        most = self._store.guarantees.max_batch
        while True:
            with self._condition:
                while not self._jobs:
                    if self._closed:
                        return
                    self._idle = True
                    self._condition.wait()
                jobs, self._jobs = self._jobs[:most], self._jobs[most:]
            jobs = [job for job in jobs if not job[1].cancelled()]
            if not jobs:
                continue
            self._sent = jobs
            sent = self._clock.mark()
            try:
                outcomes = self._store.apply([op for op, _ in jobs], timeout=self._timeout)
            except Exception as error:  # noqa: BLE001 - a store must not raise; if one does, its callers must still get an answer
                log().exception("the store raised")
                failure = StoreUnavailable(self._store.guarantees.store, type(error).__name__)
                outcomes = [Unknown(failure)] * len(jobs)
            self._answer(jobs, outcomes, sent)
            self._sent = []

    def _answer(self, jobs: Sequence[Job], outcomes: Sequence[Outcome], sent: int) -> None:
        # To wake a loop takes a system call, so each is woken once.
        for loop in {answer.get_loop() for _, answer in jobs}:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_deliver, loop, jobs, outcomes, sent)


def _deliver(loop: AbstractEventLoop, jobs: Sequence[Job], outcomes: Sequence[Outcome], sent: int) -> None:
    """On the loop: answer its own jobs."""
    for (_, answer), outcome in zip(jobs, outcomes, strict=True):
        if not answer.done() and answer.get_loop() is loop:
            answer.set_result((outcome, sent))
