"""Ends what is not renewed: the leases of this client whose time is over, and its waiters that show no sign of life.

Its own thread does that, so a renewal that hangs, or work that has stalled, keeps nobody out for longer than the TTL.
If the whole process stands still or dies, the servers end its sessions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import KazooException

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.ops import WAITER_LIFE_NS
from lessor.errors import LessorError
from lessor.stores.zookeeper import family
from lessor.stores.zookeeper.sight import deletion, identity
from lessor.stores.zookeeper.wire import ANY_VERSION, NODE_ERRORS, Delete, GetData, Multi

if TYPE_CHECKING:
    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.ledger import Holding
    from lessor.stores.zookeeper.session import Session

RETRY_NS = 200 * MILLISECOND
REFUSED_NS = 10 * SECOND
"""When to try again what a server refuses: somebody has to change the permissions first."""
SOON_NS = 20 * MILLISECOND
"""When to look again whether a renewal that was under way has brought a lease on."""
FAR_NS = 2**63
TOMBSTONE_NS = 60 * SECOND
"""How long an abandoned id is remembered: longer than any request stays on its way."""


class Reaper:
    """Looks when the next thing may be over."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._next_ns = FAR_NS

    def note(self, when_ns: int) -> None:
        """Look then, at the latest."""
        if when_ns < self._next_ns:
            self._next_ns = when_ns
            self._desk.timetable.at(when_ns, self._look)

    def bury(self, mark: str) -> None:
        """Delete the tombstone of an abandoned id, in a while."""
        self._desk.timetable.at(self._desk.clock.now() + TOMBSTONE_NS, lambda: self._unbury(mark))

    def _unbury(self, mark: str) -> None:
        desk = self._desk
        main = self._main()
        if main is None:
            desk.timetable.at(desk.clock.now() + RETRY_NS, lambda: self._unbury(mark))
        else:
            main.call(Delete(desk.layout.id(mark), ANY_VERSION))

    def _main(self) -> Session | None:
        """Return the main session, if it is connected."""
        try:
            return self._desk.main(0)
        except LessorError:
            return None

    def _look(self) -> None:
        desk = self._desk
        now = desk.clock.now()
        if now < self._next_ns:
            return
        self._next_ns = FAR_NS
        nearest = min(self._leases(now), self._waiters(now))
        if nearest < FAR_NS:
            self.note(nearest)

    def _leases(self, now: int) -> int:
        """End the leases that are over; return when to look for the next one."""
        desk = self._desk
        nearest = FAR_NS
        given_up = []
        for holding in desk.ledger.all():
            over = holding.free_ns()
            if holding.swept:
                continue
            if over > now:
                nearest = min(nearest, over)
            elif desk.ledger.give_up(holding, now):
                self.sweep(holding)
                given_up.append(holding)
            else:
                nearest = min(nearest, now + SOON_NS)
        for holding in given_up:
            if holding.has_children:  # which are gone by now, as far as they rode on it
                holding.session.call(Delete(desk.layout.children(holding.mark), ANY_VERSION))
        return nearest

    def _waiters(self, now: int) -> int:
        """Take the waiters out that gave no sign of life; return when to look for the next one."""
        desk = self._desk
        nearest = FAR_NS
        for waiter in list(desk.bells.waiters.values()):
            over = waiter.shown_ns + WAITER_LIFE_NS
            main = self._main() if over <= now else None
            if main is not None:
                desk.bells.remove(main, waiter)
            else:
                nearest = min(nearest, max(over, now + SOON_NS))
        return nearest

    def sweep(self, holding: Holding) -> None:
        """Delete the nodes of what is over. Where there is no answer, again, as long as the session lasts."""
        desk = self._desk
        if holding.session.id != holding.session_id or desk.ledger.by_mark.get(holding.mark) is not holding:
            desk.ledger.forget(holding)
            return
        for entry in family.entry_of(desk, holding.node):
            holding.session.call(entry)
        transaction = Multi(deletion(desk, holding.resource, holding.mark, holding.version))
        holding.session.call(transaction).rawlink(partial(self._swept, holding, transaction))

    def _swept(self, holding: Holding, transaction: Multi, answer: Any) -> None:
        """On kazoo's thread: see whether the nodes are gone."""
        desk = self._desk
        if answer.exception is not None:
            self._again(holding, answer.exception)
            return
        try:
            failure = transaction.failure(answer.value)
        except KazooException as refusal:
            self._again(holding, refusal, REFUSED_NS)
            return
        if failure is None:
            desk.ledger.forget(holding)
        else:
            look = holding.session.call(GetData(desk.layout.id(holding.mark), None))
            look.rawlink(partial(self._changed, holding))

    def _changed(self, holding: Holding, answer: Any) -> None:
        """On kazoo's thread: see what has become of a lease that is not as we knew it."""
        desk = self._desk
        known = None
        if answer.exception is None:
            known = identity(answer.value)
        elif not isinstance(answer.exception, NODE_ERRORS):
            self._again(holding, answer.exception)
            return
        if known is not None and not known.is_spent and known.version != holding.version:
            holding.version = known.version
            self.sweep(holding)
            return
        if known is not None and not known.is_tombstone:  # the lease is gone, by force or by hand, and its id is left
            holding.session.call(Delete(desk.layout.id(holding.mark), known.version))
        desk.ledger.forget(holding)

    def _again(self, holding: Holding, error: BaseException, in_ns: int = RETRY_NS) -> None:
        desk = self._desk
        if isinstance(error, KazooException) and not desk.closed:
            desk.timetable.at(desk.clock.now() + in_ns, lambda: self.sweep(holding))
