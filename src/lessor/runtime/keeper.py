"""Renews: all leases that are due in one call, on a thread of their own, or a few where TTLs are very different.

It also gives back what nobody wants any more: acquisitions that were cancelled, releases that got no answer.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from lessor.core import holder as machine
from lessor.core.clock import SECOND
from lessor.core.holder import State
from lessor.core.ops import Renewed, Unknown
from lessor.core.schedule import SLACK, attempt_timeout, earliest, renew_at
from lessor.errors import StoreUnavailable
from lessor.runtime.agenda import Agenda
from lessor.runtime.cohort import Cohort, wanted
from lessor.runtime.log import log
from lessor.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lessor.core.holder import Holder
    from lessor.core.ops import Op, Outcome, Release, Renew
    from lessor.core.timing import Timing
    from lessor.runtime.holding import Holding
    from lessor.runtime.host import Host
    from lessor.runtime.tenure import Tenure
    from lessor.runtime.visits import Deserted
    from lessor.stores.base import Store

DISPOSAL_TIMEOUT = 1.0
FIRST_DISPOSAL_NS = SECOND // 10
"""Until a release without an answer is sent again; twice as long each time, up to..."""
DISPOSAL_NS = SECOND
"""...this while the lease may last, and..."""
LATE_DISPOSAL_NS = 5 * SECOND
"""...this when it would have run out: a store that stood still may still grant what was asked for before."""
MOST_DISPOSALS = 10_000
"""How many releases without an answer are kept."""


class Disposal(NamedTuple):
    """A lease to give back, urgently until ``until_ns``, when one that is granted already has run out."""

    release: Release
    until_ns: int


class Keeper:
    """Keeps leases alive until they are removed or lost."""

    def __init__(self, store: Store, host: Host, orphaned: Callable[[Holding], None]) -> None:
        self._store = store
        self._host = host
        self._clock = host.clock
        self._orphaned = orphaned
        self.deserted: deque[Deserted] = deque()
        """Blocks that are gone. They are reported by the garbage collector, inside whatever code it interrupts: its
        ``append`` takes no lock, and the watchdog does the rest."""
        self.watchdog = self._watchdog = Watchdog(host, self._add, self._look_after_deserted)
        self._lanes: dict[int, Agenda[Cohort]] = {}
        self._disposer: Agenda[Disposal] = Agenda(
            host, "lessor-disposer", self._dispose, wanted=lambda _: True, slack=lambda _: 0
        )
        self._disposals: dict[Disposal, int] = {}
        """What has yet to be given back, in the order in which it came, and when to try again after a failure."""
        self._disposed = host.condition()
        self._warned_of_too_many = self._closed = False
        self._prepared: tuple[Timing | None, int] = (None, 0)
        """The last one for whose lane there is a thread, and how soon a renewal may be due then."""
        self._receive = self._watchdog.take_on
        self._let_go = self._watchdog.drop

    def is_ready_for(self, timing: Timing) -> bool:
        """Whether the threads run that leases with this timing need."""
        return self._prepared[0] is timing

    def prepare(self, timing: Timing) -> None:
        """Have them run, those included that give back what is not wanted any more."""
        log()  # imported now, and not by a thread to which something has happened
        self._watchdog.start()
        self._disposer.start()
        self._lane(timing).start()
        self._prepared = (timing, earliest(timing))

    def add(self, tenure: Tenure) -> None:
        """Keep this lease alive, and watched, until it is lost or released."""
        timing = tenure._timing
        prepared, soonest = self._prepared  # both at once: another thread may prepare for another timing meanwhile
        if timing is not prepared:
            self.prepare(timing)
            soonest = earliest(timing)
        due = sent = tenure._sent_ns
        if tenure._deadline_ns - sent >= timing.safe_ns:  # else it is short of time, and taken on at once
            due += soonest
        self._receive(tenure, due)

    def drop(self, tenure: Tenure) -> None:
        """Let go of a lease that is over."""
        cohort = tenure._cohort
        if cohort is None:
            self._let_go(tenure)
            return
        cohort.holdings.pop(tenure._op.lease_id, None)
        self._drop_empty(cohort)

    def _look_after_deserted(self) -> None:
        """Deal with blocks that were cut off."""
        while self.deserted:
            self.deserted.popleft().desert(self._orphaned)

    def _add(self, tenures: list[Tenure]) -> None:
        """Let newcomers be renewed; together if they were granted the same, within the time that a renewal may be early."""
        alike: dict[tuple[int, int, int], list[Tenure]] = {}
        for tenure in tenures:
            if tenure._cohort is None:  # else there was news about it already
                timing, sent = tenure._timing, tenure._sent_ns
                about = sent // max(1, int(timing.renew_every_ns * SLACK))
                alike.setdefault((id(timing), tenure._deadline_ns - sent, about), []).append(tenure)
        for (_, safe, _), some in alike.items():
            sent = min([tenure._sent_ns for tenure in some])
            due = renew_at(some[0]._timing, sent, safe, None, self._host.random())
            self._form(some, [None] * len(some), due)

    def renew_soon(self, tenure: Tenure) -> None:
        """Renew now, out of turn: there is news about this lease."""
        before = tenure._cohort
        while not self._form([tenure], [before], self._clock.now()):
            before = tenure._cohort  # somebody has moved it meanwhile
        if before is not None:
            self._drop_empty(before)

    def _form(self, tenures: list[Tenure], whence: Sequence[Cohort | None], due_ns: int | None) -> bool:
        """Let these be renewed together then; None: not any more, so that nothing but their end is to come.

        Only those that are still where they are thought to be; False: none of them is.
        """
        timing = tenures[0]._timing
        lane = self._lane(timing)
        deadline = min([t._deadline_ns for t in tenures])
        cohort = Cohort(lane, timing, deadline if due_ns is None else due_ns + timing.round_trip_ns)
        try:
            cohort.take_in(tenures, whence)
            self._enter(cohort, due_ns, deadline)
        except BaseException:
            self._enter(cohort, due_ns, deadline)  # an interrupt must not leave them out
            raise
        return bool(cohort.holdings)

    def _enter(self, cohort: Cohort, due_ns: int | None, deadline_ns: int) -> None:
        if cohort.holdings:
            if due_ns is not None:
                cohort.lane.set(cohort, due_ns)
            self._watchdog.watch(cohort, deadline_ns)

    def _drop_empty(self, cohort: Cohort) -> None:
        """Don't keep what all have left until it would be due, which may be hours."""
        if not cohort.holdings:
            cohort.lane.drop(cohort)
            self._let_go(cohort)

    def _lane(self, timing: Timing) -> Agenda[Cohort]:
        """Return the thread for leases whose renewals may take about as long.

        In one call with others, a lease waits for as long as the most patient of them; behind a call that hangs, it
        waits for its timeout. So those of very different TTLs have nothing to do with each other.
        """
        patience = timing.round_trip_ns.bit_length() // 2
        lane = self._lanes.get(patience)
        if lane is None:
            fresh: Agenda[Cohort] = Agenda(
                self._host, f"lessor-keeper-{patience}", self._renew, wanted=wanted, slack=_slack
            )
            lane = self._lanes.setdefault(patience, fresh)
            if self._closed:
                lane.close()
        return lane

    def close(self) -> None:
        """End the threads."""
        self._closed = True
        for lane in list(self._lanes.values()):
            lane.close()
        self._disposer.close()

    def dispose(self, release: Release, within_ns: int) -> None:
        """Send the release until the store has answered.

        Not only until the lease would have run out, ``within_ns`` from now: the request that asked for it may wait in a
        buffer of a store that stands still, and is carried out whenever that goes on.
        """
        now = self._clock.now()
        disposal = Disposal(release, now + within_ns)
        self._disposals[disposal] = FIRST_DISPOSAL_NS  # without the condition: an interrupt could leave that taken
        if len(self._disposals) > MOST_DISPOSALS:
            self._drop_oldest()
        self._disposer.set(disposal, now)

    def _drop_oldest(self) -> None:
        with contextlib.suppress(StopIteration, RuntimeError):  # others add and remove meanwhile
            oldest = next(iter(self._disposals))
            self._disposals.pop(oldest, None)
            self._disposer.drop(oldest)
        if not self._warned_of_too_many:
            self._warned_of_too_many = True
            log().warning(
                "more than %d requests had no answer from %s: the oldest are no longer given back, and what the store "
                "still grants for them lasts for its TTL",
                MOST_DISPOSALS,
                self._store.guarantees.store,
            )

    def drain(self, seconds: float) -> int:
        """Wait, but not for longer, until all that is to be given back has been; return how much has not."""
        with self._disposed:
            self._disposed.wait_for(lambda: not self._disposals, seconds)
            return len(self._disposals)

    def _renew(self, cohorts: list[Cohort], now: int) -> None:
        for holding in [holding for cohort in cohorts for holding in cohort.take_orphans()]:
            self._orphaned(holding)
        tenures = [tenure for cohort in cohorts for tenure in cohort.members()]
        round_trip = min([cohort.timing.round_trip_ns for cohort in cohorts])
        most = self._store.guarantees.max_batch
        for start in range(0, len(tenures), most):
            batch = tenures[start : start + most]
            ops: list[Renew] = []
            renewed: list[Tenure] = []
            for tenure in batch:
                if (op := tenure._renewal(now)) is not None:
                    ops.append(op)
                    renewed.append(tenure)
            if not ops:
                continue
            timeout = attempt_timeout(round_trip, _soonest_over(renewed), now) / SECOND
            before = [tenure._cohort for tenure in renewed]
            sent = self._clock.mark()
            outcomes = self._apply(ops, timeout)
            now = self._clock.now()
            self._take(renewed, before, outcomes, sent, now)
        for cohort in cohorts:
            self._drop_empty(cohort)

    def _take(
        self, tenures: list[Tenure], before: list[Cohort | None], outcomes: list[Outcome], sent: int, now: int
    ) -> None:
        """Tell each lease its answer; those that were promised the same go on together.

        One that has changed its cohort since it was sent is to be renewed out of turn, and is left alone there: it
        would miss the news that it is asked for.
        """
        together: list[Tenure] = []
        whence: list[Cohort | None] = []
        timing: Timing | None = None
        ttl_ns = 0
        belief = machine.granted(now)
        for tenure, cohort, outcome in zip(tenures, before, outcomes, strict=True):
            if type(outcome) is Renewed:
                if tenure._timing is not timing or outcome.ttl_ns != ttl_ns:
                    self._go_on(together, whence, sent, belief)
                    together, whence = [], []
                    timing, ttl_ns = tenure._timing, outcome.ttl_ns
                    belief = machine.granted(sent + timing.safe_time(ttl_ns))
                if outcome.ended == tenure._ended and tenure._confirm(belief, sent, now):
                    together.append(tenure)
                    whence.append(cohort)
                    continue
            self._tell(tenure, cohort, outcome, sent, now)
        self._go_on(together, whence, sent, belief)

    def _tell(self, tenure: Tenure, before: Cohort | None, outcome: Outcome, sent: int, now: int) -> None:
        """Tell one lease its answer, and do what follows for it alone."""
        if tenure._doubts(outcome, now):
            outcome, now = self.ask_for_riders(tenure, outcome), self._clock.now()
        due = tenure._answer(outcome, sent, now, self._host.random())
        if tenure._cohort is not before:
            return
        if due is None and tenure._carried:
            tenure._cohort = None
        elif tenure._belief.state is not State.LOST:
            self._form([tenure], [before], due)

    def _go_on(self, tenures: list[Tenure], whence: list[Cohort | None], sent: int, belief: Holder) -> None:
        if tenures:
            safe = belief.deadline_ns - sent
            self._form(tenures, whence, renew_at(tenures[0]._timing, sent, safe, None, self._host.random()))

    def ask_for_riders(self, tenure: Tenure, renewed: Outcome) -> Outcome:
        """Ask for each lease that this renewal would carry along; where one gets no answer, it doesn't count yet."""
        riders = tenure._riders()
        most = self._store.guarantees.max_batch
        for start in range(0, len(riders), most):
            now = self._clock.now()
            asked = [(rider, op) for rider in riders[start : start + most] if (op := rider._renewal(now)) is not None]
            timeout = attempt_timeout(tenure._timing.round_trip_ns, tenure._over_ns, now) / SECOND
            before = [rider._cohort for rider, _ in asked]
            sent = self._clock.mark()
            outcomes = self._apply([op for _, op in asked], timeout) if asked else []
            silence = next((outcome for outcome in outcomes if isinstance(outcome, Unknown)), None)
            for (rider, _), cohort, outcome in zip(asked, before, outcomes, strict=True):
                if not isinstance(outcome, Unknown):
                    self._tell(rider, cohort, outcome, sent, self._clock.now())
            if silence is not None:
                return silence
        assert isinstance(renewed, Renewed)
        tenure._ended = renewed.ended
        return renewed

    def _dispose(self, disposals: list[Disposal], _now: int) -> None:
        most = self._store.guarantees.max_batch
        outcomes: list[Outcome] = []
        for start in range(0, len(disposals), most):
            releases = [disposal.release for disposal in disposals[start : start + most]]
            outcomes += self._apply(releases, DISPOSAL_TIMEOUT)
        now = self._clock.now()
        with self._disposed:
            for disposal, outcome in zip(disposals, outcomes, strict=True):
                pause = self._disposals.get(disposal)
                if isinstance(outcome, Unknown) and pause is not None:
                    longest = DISPOSAL_NS if now < disposal.until_ns else LATE_DISPOSAL_NS
                    self._disposals[disposal] = min(2 * pause, longest)
                    self._disposer.set(disposal, now + pause)
                else:
                    self._disposals.pop(disposal, None)
            self._disposed.notify_all()

    def _apply(self, ops: Sequence[Op], timeout: float) -> list[Outcome]:
        try:
            return self._store.apply(ops, timeout=timeout)
        except Exception as error:  # noqa: BLE001 - a store must not raise; if one does, its leases must still be tried again
            log().exception("the store raised; its leases are retried until their deadlines")
            return [Unknown(StoreUnavailable(self._store.guarantees.store, type(error).__name__))] * len(ops)


def _soonest_over(tenures: list[Tenure]) -> int:
    """Return when the first of them is over. Many share one belief, and are asked once; not those under a parent."""
    beliefs = {id(t._belief): t._belief for t in tenures if t._parent is None}
    below = [t._over_ns for t in tenures if t._parent is not None]
    return min([belief.over_ns for belief in beliefs.values()] + below)


def _slack(cohort: Cohort) -> int:
    return int(cohort.timing.renew_every_ns * SLACK)
