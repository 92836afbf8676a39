"""Declares loss on time. A thread that never does I/O, so that nothing but the interpreter itself can hold it up.

It is for those who wait to be told. Whoever asks, with ``check()``, doesn't depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.holder import State, Unconfirmed
from lessor.runtime.agenda import Agenda
from lessor.runtime.cohort import Cohort, wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.runtime.host import Host
    from lessor.runtime.tenure import Tenure


class Watchdog:
    """Looks at leases when their renewal would be late, again at their deadline, and at the end of their grace.

    It also receives new ones, and introduces those to the keeper that are not given back at once: most are.
    """

    def __init__(self, host: Host, introduce: Callable[[list[Tenure]], None], chores: Callable[[], None]) -> None:
        self._introduce = introduce
        self._agenda: Agenda[Cohort | Tenure] = Agenda(
            host,
            "lessor-watchdog",
            self._look_at_all,
            wanted=_is_wanted,
            slack=_slack,
            receive=self._receive,
            chores=chores,
        )
        self.take_on = self._agenda.set
        self.drop = self._agenda.drop
        self.close = self._agenda.close
        self.start = self._agenda.start

    def watch(self, cohort: Cohort, deadline_ns: int) -> None:
        """Watch these leases until they are lost, or have gone elsewhere."""
        self._agenda.set(cohort, min(cohort.late_ns, deadline_ns))

    def _receive(self, new: list[Cohort | Tenure]) -> list[Cohort | Tenure]:
        self._introduce([one for one in new if not isinstance(one, Cohort)])
        return [one for one in new if isinstance(one, Cohort)]

    def _look_at_all(self, due: list[Cohort | Tenure], now: int) -> None:
        for one in due:
            if isinstance(one, Cohort):
                self._look(one, now)
            else:
                self._introduce([one])

    def _look(self, cohort: Cohort, now: int) -> None:
        """Say what time has done to the leases, and look again when it matters."""
        late = now >= cohort.late_ns
        members = cohort.members()
        if not members:
            return
        for tenure in members:
            if now >= tenure._deadline_ns:
                tenure._tick(now)
            elif late:
                tenure._advance(Unconfirmed(), now)
        members = cohort.members()
        if members:
            # Past its deadline and still a member: it is stopped, and within its grace.
            following = min(t._deadline_ns if now < t._deadline_ns else t._over_ns for t in members)
            self._agenda.set(cohort, following if late else min(cohort.late_ns, following))


def _is_wanted(key: Cohort | Tenure) -> bool:
    return wanted(key) if isinstance(key, Cohort) else key._belief.state is not State.LOST


def _slack(key: Cohort | Tenure) -> int:
    return key.timing.round_trip_ns // 4 if isinstance(key, Cohort) else 0
