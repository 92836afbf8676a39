"""Leases that are due, late and over together, because one call granted or renewed them.

Thousands of leases cost their holder what the few calls cost that renew them, and not thousands of entries in agendas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.core.holder import State
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.timing import Timing
    from lessor.runtime.agenda import Agenda
    from lessor.runtime.holding import Holding
    from lessor.runtime.tenure import Tenure


LOST: Final = State.LOST
"""By a name of its own, as in `core.holder`: it is asked for each lease at each renewal."""


_moving = new_lock()


class Cohort:
    """Some leases of one lane, on the same terms. A lease belongs to the cohort that it names, and to none that it has left."""

    __slots__ = ("holdings", "lane", "late_ns", "timing")

    def __init__(self, lane: Agenda[Cohort], timing: Timing, late_ns: int) -> None:
        self.lane = lane
        self.timing = timing
        self.holdings: dict[str, Holding] = {}
        """By lease id. The code that ends a lease takes it out, and so does the next cohort, on any thread."""
        self.late_ns = late_ns
        """When its renewal is late."""

    def take_in(self, tenures: Sequence[Tenure], whence: Sequence[Cohort | None]) -> None:
        """Have these, as far as each is still where it is thought to be: who isn't is to be renewed out of turn."""
        with _moving:
            for tenure, before in zip(tenures, whence, strict=True):
                if tenure._cohort is before:
                    self.holdings[tenure._op.lease_id] = tenure._holding
                    tenure._cohort = self
                    if before is not None:
                        before.holdings.pop(tenure._op.lease_id, None)

    def members(self) -> list[Tenure]:
        """Return those that are still here, and not lost."""
        return [
            t
            for holding in list(self.holdings.values())
            if (t := holding()) is not None and t._cohort is self and t._belief.state is not LOST
        ]

    def take_orphans(self) -> list[Holding]:
        """Take out those that the program has no reference to any more."""
        orphans = [holding for holding in list(self.holdings.values()) if holding() is None]
        for holding in orphans:
            self.holdings.pop(holding.op.lease_id, None)
        return orphans


def wanted(cohort: Cohort) -> bool:
    """Whether it may still have members, or orphans: one that had many is looked through when it comes up."""
    holdings = list(cohort.holdings.values())
    return len(holdings) > 1 or any(holding() is None for holding in holdings) or bool(cohort.members())
