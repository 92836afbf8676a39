"""Renews: one thread a client, all leases that are due in one call.

It also gives back what nobody wants any more: acquisitions that were cancelled, releases that got no answer.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING, NamedTuple

from leasehold.core.clock import SECOND
from leasehold.core.ops import Release, Unknown
from leasehold.core.schedule import SLACK, Schedule, attempt_timeout
from leasehold.errors import StoreUnavailable
from leasehold.runtime.tenure import Tenure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold.core.clock import Clock
    from leasehold.core.ops import Op, Outcome
    from leasehold.stores.base import Store

log = logging.getLogger("leasehold")

LONGEST_SLEEP = 1.0
"""A thread's timer stands still during suspend; this bounds how late a renewal is after waking up."""
DISPOSAL_RETRY_NS = SECOND // 10
DISPOSAL_TIMEOUT = 1.0


class Disposal(NamedTuple):
    """A lease id to give back; no longer of interest after ``until_ns``, when it has run out by itself."""

    resource: str
    lease_id: str
    until_ns: int


class Keeper:
    """Keeps leases alive until they are removed or lost."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._schedule: Schedule[Tenure | Disposal] = Schedule()
        self._kept: set[Tenure] = set()
        self._disposals: set[Disposal] = set()
        self._condition = threading.Condition(threading.Lock())
        self._wake_at: int | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, tenure: Tenure) -> None:
        """Keep this lease alive."""
        due = tenure._first_due(random.random())
        with self._condition:
            self._kept.add(tenure)
            self._set(tenure, due)

    def renew_soon(self, tenure: Tenure) -> None:
        """Renew now, out of turn: there is news about this lease."""
        with self._condition:
            if tenure in self._kept:
                self._set(tenure, self._clock.now())

    def remove(self, tenure: Tenure) -> None:
        """Send no further renewal of this lease."""
        with self._condition:
            self._kept.discard(tenure)
            self._schedule.remove(tenure)

    def dispose(self, resource: str, lease_id: str, within_ns: int) -> None:
        """Release this id as soon as the store answers, whether or not it was ever granted."""
        now = self._clock.now()
        disposal = Disposal(resource, lease_id, now + within_ns)
        with self._condition:
            self._disposals.add(disposal)
            self._set(disposal, now)

    def drain(self, seconds: float) -> None:
        """Wait, but not for longer, until all that is to be given back has been."""
        with self._condition:
            self._condition.wait_for(lambda: not self._disposals, seconds)

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _set(self, key: Tenure | Disposal, due_ns: int) -> None:
        if self._closed:
            return
        self._schedule.set(key, due_ns)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="leasehold-keeper", daemon=True)
            self._thread.start()
        elif self._wake_at is None or due_ns < self._wake_at:
            self._condition.notify_all()

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
                tenures = [key for key in due if isinstance(key, Tenure)]
                if tenures:
                    # What is due so soon that it may go along saves a call of its own.
                    due += self._schedule.pop_due(now + min(int(t._timing.renew_every_ns * SLACK) for t in tenures))
            self._renew([key for key in due if isinstance(key, Tenure)])
            self._dispose([key for key in due if isinstance(key, Disposal)])

    def _renew(self, tenures: list[Tenure]) -> None:
        for group in _by_patience(tenures, self._store.guarantees.max_batch):
            now = self._clock.now()
            batch = [(t, op) for t in group if t in self._kept and (op := t._renewal(now)) is not None]
            if not batch:
                continue
            timeout = min(attempt_timeout(t._timing, t._deadline_ns, now) for t, _ in batch) / SECOND
            sent = self._clock.mark()
            outcomes = self._apply([op for _, op in batch], timeout)
            now = self._clock.now()
            dues = [t._answer(outcome, sent, now, random.random()) for (t, _), outcome in zip(batch, outcomes, strict=True)]
            with self._condition:
                for (tenure, _), due in zip(batch, dues, strict=True):
                    # Removed meanwhile: it has been released, and must not be renewed again.
                    if due is not None and tenure in self._kept:
                        self._schedule.set(tenure, due)

    def _dispose(self, disposals: list[Disposal]) -> None:
        if not disposals:
            return
        ops: list[Op] = [Release(d.resource, d.lease_id, abandon=True) for d in disposals]
        outcomes = self._apply(ops, DISPOSAL_TIMEOUT)
        now = self._clock.now()
        with self._condition:
            for disposal, outcome in zip(disposals, outcomes, strict=True):
                if isinstance(outcome, Unknown) and now < disposal.until_ns:
                    self._schedule.set(disposal, now + DISPOSAL_RETRY_NS)
                else:
                    self._disposals.discard(disposal)
            self._condition.notify_all()

    def _apply(self, ops: list[Op], timeout: float) -> list[Outcome]:
        try:
            return self._store.apply(ops, timeout=timeout)
        except Exception as error:  # a store must not raise; if one does, its leases must still be tried again
            log.exception("the store raised; its leases are retried until their deadlines")
            return [Unknown(StoreUnavailable(self._store.guarantees.store, type(error).__name__))] * len(ops)


def _by_patience(tenures: list[Tenure], most: int) -> Iterable[list[Tenure]]:
    """Group leases whose attempts may take about as long, the most urgent first: one call serves each group."""
    groups: dict[int, list[Tenure]] = {}
    for tenure in tenures:
        groups.setdefault(tenure._timing.round_trip_ns.bit_length() // 2, []).append(tenure)
    for _, group in sorted(groups.items()):
        for start in range(0, len(group), most):
            yield group[start : start + most]
