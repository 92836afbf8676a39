"""Turns the concurrent operations of tasks into one store call: what piles up during a call goes with the next."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, NamedTuple

from leasehold.core.ops import Unknown
from leasehold.errors import StoreUnavailable
from leasehold.runtime.log import log

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Sequence

    from leasehold.core.ops import Op, Outcome
    from leasehold.runtime.host import Host
    from leasehold.stores.base import Store


class Job(NamedTuple):
    """An operation, and the future for its outcome and the time before it was sent."""

    op: Op
    answer: Future[tuple[Outcome, int]]
    loop: AbstractEventLoop


class Batcher:
    """One thread, one call at a time."""

    def __init__(self, store: Store, host: Host, timeout: float) -> None:
        self._store = store
        self._host = host
        self._clock = host.clock
        self._timeout = timeout
        self._condition = host.condition(threading.Lock())
        self._jobs: list[Job] = []
        self._thread: object = None
        self._idle = self._closed = False

    def submit(self, *jobs: Job) -> None:
        """Send them with the next call, or the next few if they are many."""
        with self._condition:
            if not self._closed:
                if self._thread is None:
                    self._thread = self._host.start(self._run, "leasehold-batcher")
                self._jobs += jobs
                if self._idle:
                    self._idle = False
                    self._condition.notify()
                return
        closed = Unknown(StoreUnavailable(self._store.guarantees.store, "the client is closed"))
        for job in jobs:
            job.answer.set_result((closed, self._clock.mark()))

    def withdraw(self, *jobs: Job) -> None:
        """Take them back, as far as they haven't been sent."""
        answers = {job.answer for job in jobs}
        with self._condition:
            self._jobs = [job for job in self._jobs if job.answer not in answers]

    def close(self) -> None:
        """End the thread once what was submitted has been answered."""
        with self._condition:
            self._closed = True
            self._condition.notify()

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
            sent = self._clock.mark()
            try:
                outcomes = self._store.apply([job.op for job in jobs], timeout=self._timeout)
            except Exception as error:  # noqa: BLE001 - a store must not raise; if one does, its callers must still get an answer
                log().exception("the store raised")
                failure = StoreUnavailable(self._store.guarantees.store, type(error).__name__)
                outcomes = [Unknown(failure)] * len(jobs)
            # To wake a loop takes a system call, so each is woken once.
            for loop in {job.loop for job in jobs}:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(_deliver, loop, jobs, outcomes, sent)


def _deliver(loop: AbstractEventLoop, jobs: Sequence[Job], outcomes: Sequence[Outcome], sent: int) -> None:
    """On the loop: answer its own jobs."""
    for job, outcome in zip(jobs, outcomes, strict=True):
        if job.loop is loop and not job.answer.done():
            job.answer.set_result((outcome, sent))
