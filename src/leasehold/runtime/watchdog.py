"""Declares loss on time. A thread that never does I/O, so that nothing but the interpreter itself can hold it up.

It is for those who wait to be told. Whoever asks, with ``check()``, doesn't depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.core.holder import Unconfirmed
from leasehold.runtime.agenda import Agenda
from leasehold.runtime.cohort import wanted

if TYPE_CHECKING:
    from leasehold.core.clock import Clock
    from leasehold.runtime.cohort import Cohort


class Watchdog:
    """Looks at leases when their renewal would be late, again at their deadline, and at the end of their grace."""

    def __init__(self, clock: Clock) -> None:
        self._agenda: Agenda[Cohort] = Agenda(
            clock, "leasehold-watchdog", self._look_at_all, wanted=wanted, slack=_slack
        )
        self.drop = self._agenda.drop
        self.close = self._agenda.close

    def watch(self, cohort: Cohort, deadline_ns: int) -> None:
        """Watch these leases until they are lost, or have gone elsewhere."""
        self._agenda.set(cohort, min(cohort.late_ns, deadline_ns))

    def _look_at_all(self, cohorts: list[Cohort], now: int) -> None:
        for cohort in cohorts:
            self._look(cohort, now)

    def _look(self, cohort: Cohort, now: int) -> None:
        """Say what time has done to the leases, and look again when it matters."""
        late = now >= cohort.late_ns
        for tenure in cohort.members():
            if now >= tenure._deadline_ns:
                tenure._tick(now)
            elif late:
                tenure._advance(Unconfirmed(), now)
        members = cohort.members()
        if members:
            # Past its deadline and still a member: it is stopped, and within its grace.
            following = min(t._deadline_ns if now < t._deadline_ns else t._over_ns for t in members)
            self._agenda.set(cohort, following if late else min(cohort.late_ns, following))


def _slack(cohort: Cohort) -> int:
    return cohort.tenures[0]._timing.round_trip_ns // 4
