"""Declares loss on time. A thread that never does I/O, so that nothing but the interpreter itself can hold it up.

It is for those who wait to be told. Whoever asks, with ``check()``, doesn't depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.core.holder import State, Tick, Unconfirmed
from leasehold.runtime.agenda import Agenda

if TYPE_CHECKING:
    from leasehold.core.clock import Clock
    from leasehold.runtime.tenure import Tenure


class Watchdog:
    """Looks at each lease when it would be late, and again at its deadline."""

    def __init__(self, clock: Clock) -> None:
        self._agenda: Agenda[Tenure] = Agenda(
            clock, "leasehold-watchdog", self._look_at_all, wanted=_wanted, slack=lambda t: t._timing.round_trip_ns // 4
        )
        self.drop = self._agenda.drop
        self.close = self._agenda.close

    def add(self, tenure: Tenure) -> None:
        """Watch this lease until it is lost."""
        self._agenda.set(tenure, min(tenure._late_ns, tenure._deadline_ns))

    def _look_at_all(self, tenures: list[Tenure], now: int) -> None:
        for tenure in tenures:
            self._look(tenure, now)

    def _look(self, tenure: Tenure, now: int) -> None:
        """Say what time has done to the lease, and look again when it matters."""
        late = tenure._late_ns
        if now >= tenure._deadline_ns:
            tenure._advance(Tick(), now)
        elif now >= late:
            tenure._advance(Unconfirmed(), now)
        if tenure._belief.state is not State.LOST:
            deadline = tenure._deadline_ns
            self._agenda.set(tenure, deadline if now >= late else min(late, deadline))


def _wanted(tenure: Tenure) -> bool:
    return tenure._belief.state is not State.LOST
