"""Renews: one thread a client, all leases that are due in one call.

It also gives back what nobody wants any more: acquisitions that were cancelled, releases that got no answer.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, NamedTuple

from leasehold.core.clock import SECOND
from leasehold.core.holder import State
from leasehold.core.ops import Release, Unknown
from leasehold.core.schedule import SLACK, attempt_timeout
from leasehold.errors import StoreUnavailable
from leasehold.runtime.agenda import Agenda
from leasehold.runtime.log import log
from leasehold.runtime.tenure import Tenure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold.core.clock import Clock
    from leasehold.core.ops import Op, Outcome
    from leasehold.stores.base import Store

DISPOSAL_RETRY_NS = SECOND // 10
DISPOSAL_TIMEOUT = 1.0


class Disposal(NamedTuple):
    """A lease id to give back; no longer of interest after ``until_ns``, when it has run out by itself."""

    resource: str
    lease_id: str
    until_ns: int
    in_doubt: bool


class Keeper:
    """Keeps leases alive until they are removed or lost."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._agenda: Agenda[Tenure | Disposal] = Agenda(
            clock, "leasehold-keeper", self._act, wanted=_wanted, slack=_slack
        )
        self._disposals: set[Disposal] = set()
        self._disposed = threading.Condition()
        self.close = self._agenda.close

    def add(self, tenure: Tenure) -> None:
        """Keep this lease alive until it is lost or released."""
        self._agenda.set(tenure, tenure._first_due(random.random()))

    def renew_soon(self, tenure: Tenure) -> None:
        """Renew now, out of turn: there is news about this lease."""
        self._agenda.set(tenure, self._clock.now())

    def dispose(self, resource: str, lease_id: str, within_ns: int, *, in_doubt: bool = False) -> None:
        """Release this id as soon as the store answers. ``in_doubt``: a request for it may still be on its way."""
        now = self._clock.now()
        disposal = Disposal(resource, lease_id, now + within_ns, in_doubt)
        with self._disposed:
            self._disposals.add(disposal)
        self._agenda.set(disposal, now)

    def drain(self, seconds: float) -> None:
        """Wait, but not for longer, until all that is to be given back has been."""
        with self._disposed:
            self._disposed.wait_for(lambda: not self._disposals, seconds)

    def _act(self, due: list[Tenure | Disposal], _now: int) -> None:
        self._renew([key for key in due if isinstance(key, Tenure)])
        self._dispose([key for key in due if isinstance(key, Disposal)])

    def _renew(self, tenures: list[Tenure]) -> None:
        for group in _by_patience(tenures, self._store.guarantees.max_batch):
            now = self._clock.now()
            batch = [(t, op) for t in group if (op := t._renewal(now)) is not None]
            if not batch:
                continue
            timeout = min(attempt_timeout(t._timing, t._deadline_ns, now) for t, _ in batch) / SECOND
            sent = self._clock.mark()
            outcomes = self._apply([op for _, op in batch], timeout)
            now = self._clock.now()
            for (tenure, _), outcome in zip(batch, outcomes, strict=True):
                due = tenure._answer(outcome, sent, now, random.random())
                if due is not None:
                    self._agenda.set(tenure, due)

    def _dispose(self, disposals: list[Disposal]) -> None:
        if not disposals:
            return
        ops: list[Op] = [Release(d.resource, d.lease_id, abandon=d.in_doubt) for d in disposals]
        outcomes = self._apply(ops, DISPOSAL_TIMEOUT)
        now = self._clock.now()
        with self._disposed:
            for disposal, outcome in zip(disposals, outcomes, strict=True):
                if isinstance(outcome, Unknown) and now < disposal.until_ns:
                    self._agenda.set(disposal, now + DISPOSAL_RETRY_NS)
                else:
                    self._disposals.discard(disposal)
            self._disposed.notify_all()

    def _apply(self, ops: list[Op], timeout: float) -> list[Outcome]:
        try:
            return self._store.apply(ops, timeout=timeout)
        except Exception as error:  # noqa: BLE001 - a store must not raise; if one does, its leases must still be tried again
            log().exception("the store raised; its leases are retried until their deadlines")
            return [Unknown(StoreUnavailable(self._store.guarantees.store, type(error).__name__))] * len(ops)


def _wanted(key: Tenure | Disposal) -> bool:
    return isinstance(key, Disposal) or key._belief.state is not State.LOST


def _slack(key: Tenure | Disposal) -> int:
    return int(key._timing.renew_every_ns * SLACK) if isinstance(key, Tenure) else 0


def _by_patience(tenures: list[Tenure], most: int) -> Iterable[list[Tenure]]:
    """Group leases whose attempts may take about as long, the most urgent first: one call serves each group."""
    groups: dict[int, list[Tenure]] = {}
    for tenure in tenures:
        groups.setdefault(tenure._timing.round_trip_ns.bit_length() // 2, []).append(tenure)
    for _, group in sorted(groups.items()):
        for start in range(0, len(group), most):
            yield group[start : start + most]
