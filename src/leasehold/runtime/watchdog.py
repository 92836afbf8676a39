"""Declares loss on time. A thread that never does I/O, so that nothing but the interpreter itself can hold it up.

It is for those who wait to be told. Whoever asks, with ``check()``, doesn't depend on it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from leasehold.core.clock import SECOND
from leasehold.core.holder import State, Tick, Unconfirmed
from leasehold.core.schedule import Schedule

if TYPE_CHECKING:
    from leasehold.core.clock import Clock
    from leasehold.runtime.tenure import Tenure

LONGEST_SLEEP = 0.5
"""A thread's timer stands still during suspend; this bounds how late it is after waking up."""


class Watchdog:
    """Looks at each lease when it would be late, and again at its deadline."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._schedule: Schedule[Tenure] = Schedule()
        self._condition = threading.Condition(threading.Lock())
        self._wake_at: int | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, tenure: Tenure) -> None:
        """Watch this lease."""
        look_at = min(tenure._late_ns, tenure._deadline_ns)
        with self._condition:
            self._schedule.set(tenure, look_at)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leasehold-watchdog", daemon=True)
                self._thread.start()
            elif self._wake_at is None or look_at < self._wake_at:
                self._condition.notify()

    def remove(self, tenure: Tenure) -> None:
        """Stop watching."""
        with self._condition:
            self._schedule.remove(tenure)

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                if self._closed:
                    return
                now = self._clock.now()
                self._wake_at = self._schedule.next_due()
                if self._wake_at is None:
                    self._condition.wait()
                    continue
                if self._wake_at > now:
                    self._condition.wait(min((self._wake_at - now) / SECOND, LONGEST_SLEEP))
                    continue
                due = self._schedule.pop_due(now)
            for tenure in due:
                self._look(tenure, now)

    def _look(self, tenure: Tenure, now: int) -> None:
        """Say what time has done to the lease, and look again when it matters."""
        late = tenure._late_ns
        if now >= tenure._deadline_ns:
            tenure._advance(Tick(), now)
        elif now >= late:
            tenure._advance(Unconfirmed(), now)
        if tenure._belief.state is not State.LOST:
            with self._condition:
                self._schedule.set(tenure, min(late, tenure._deadline_ns) if now < late else tenure._deadline_ns)
