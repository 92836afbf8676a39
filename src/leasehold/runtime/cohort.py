"""Leases that are due, late and over together, because one call granted or renewed them.

Thousands of leases cost their holder what the few calls cost that renew them, and not thousands of entries in agendas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leasehold.core.holder import State

if TYPE_CHECKING:
    from leasehold.runtime.agenda import Agenda
    from leasehold.runtime.tenure import Tenure


LOST: Final = State.LOST
"""By a name of its own, as in `core.holder`: it is asked for each lease at each renewal."""


class Cohort:
    """Some leases of one lane, on the same terms. A lease belongs to the cohort that it names, and to none that it has left."""

    __slots__ = ("lane", "late_ns", "tenures", "timing")

    def __init__(self, lane: Agenda[Cohort], tenures: list[Tenure], late_ns: int) -> None:
        self.lane = lane
        self.timing = tenures[0]._timing
        self.tenures = dict.fromkeys(tenures)
        """Whoever ends one takes it out, and so does the next cohort, on any thread."""
        self.late_ns = late_ns
        """When its renewal is late."""
        for tenure in tenures:
            before = tenure._cohort
            tenure._cohort = self
            if before is not None:
                before.tenures.pop(tenure, None)

    def members(self) -> list[Tenure]:
        """Return those that are still here, and not lost."""
        return [t for t in list(self.tenures) if t._cohort is self and t._belief.state is not LOST]


def wanted(cohort: Cohort) -> bool:
    """Whether it may still have members: one that had many is looked through when it comes up."""
    return len(cohort.tenures) > 1 or bool(cohort.members())
