"""Turns concurrent operations into one store call: whatever piles up while a call is under way goes with the next."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from leasehold.core.ops import Unknown
from leasehold.errors import StoreUnavailable
from leasehold.runtime.agenda import start_thread
from leasehold.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.core.clock import Clock
    from leasehold.core.ops import Op, Outcome
    from leasehold.stores.base import Store


class Job(NamedTuple):
    """An operation, and what to do with the outcome and the time before it was sent."""

    op: Op
    done: Callable[[Outcome, int], None]


class Batcher:
    """One thread, one call at a time."""

    def __init__(self, store: Store, clock: Clock, timeout: float) -> None:
        self._store = store
        self._clock = clock
        self._timeout = timeout
        self._condition = threading.Condition(threading.Lock())
        self._jobs: list[Job] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> None:
        """Send it with the next call."""
        with self._condition:
            if not self._closed:
                self._jobs.append(job)
                if self._thread is None:
                    self._thread = start_thread(self._run, "leasehold-batcher")
                else:
                    self._condition.notify()
                return
        job.done(Unknown(StoreUnavailable(self._store.guarantees.store, "the client is closed")), self._clock.mark())

    def withdraw(self, job: Job) -> bool:
        """Take it back. False: it has been sent."""
        with self._condition:
            if job in self._jobs:
                self._jobs.remove(job)
                return True
            return False

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
                    self._condition.wait()
                jobs, self._jobs = self._jobs[:most], self._jobs[most:]
            sent = self._clock.mark()
            try:
                outcomes = self._store.apply([job.op for job in jobs], timeout=self._timeout)
            except Exception as error:  # noqa: BLE001 - a store must not raise; if one does, its callers must still get an answer
                log().exception("the store raised")
                failure = StoreUnavailable(self._store.guarantees.store, type(error).__name__)
                outcomes = [Unknown(failure)] * len(jobs)
            for job, outcome in zip(jobs, outcomes, strict=True):
                job.done(outcome, sent)
