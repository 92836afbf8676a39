"""Any sequence of operations: what must hold of the rules whatever happens.

Every operation goes to two tables, one that keeps copies and one that shares its objects: a change that a rule makes
and forgets to save shows as a difference between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lessor.core import rules
from lessor.core.clock import SECOND
from lessor.core.lease import Closed
from lessor.core.ops import (
    RESERVATION_NS,
    WAITER_LIFE_NS,
    Acquire,
    Granted,
    Held,
    Loss,
    Lost,
    NotHeld,
    Release,
    Released,
    Renew,
    Renewed,
    Revoke,
)
from lessor.errors import ConfigError
from tests.core.virtual_table import MS, CopyingTable, SharingTable, World

if TYPE_CHECKING:
    from lessor.core.lease import Record
    from lessor.core.ops import Op, Outcome

RESOURCES = ("x", "y", "z")
IDS = ("A", "B", "C", "D")
FOLLOWS = 2**62
"""The end of a promise that lasts as long as the parent's does."""

resources = st.sampled_from(RESOURCES)
ids = st.sampled_from(IDS)
ttls = st.sampled_from([50 * MS, SECOND, 3 * SECOND])
short = st.sampled_from([0, 0, 0, 80 * MS, 2 * SECOND])


@dataclass
class Promise:
    """What a client may rely upon."""

    lease_id: str
    token: int
    until: int
    grace: int
    parent: tuple[str, int] | None
    state: str = ""
    soft_from: int = 0
    """From then on a challenger may end it; 0: never."""


@dataclass
class Tenure:
    """What the test itself notes about one resource."""

    highest: int = 0
    promise: Promise | None = None
    closed_until: int = 0
    """Nobody may be granted it before, though it was released: the minimum hold."""
    lock_delay: int = 0
    waiters: dict[str, int] = field(default_factory=dict)
    """Who is in the queue, in the order of arrival, and until when without showing up."""
    diligent: set[str] = field(default_factory=set)
    """Who has shown up since the last grant, so has not missed a turn."""
    priorities: dict[str, int] = field(default_factory=dict)
    """Of those who are in the queue."""
    handed: tuple[str, str, int] | None = None
    """To whom it was handed over, what was left for it, and until when."""
    tombstones: dict[str, int] = field(default_factory=dict)


class RulesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.worlds = [World(CopyingTable()), World(SharingTable())]
        self.notes = {name: Tenure() for name in RESOURCES}
        self.tokens: list[tuple[str, str, int]] = []

    @property
    def now(self) -> int:
        return self.worlds[0].now

    def apply(self, op: Op) -> Outcome | None:
        """Apply it to both; None where both refuse it as misuse."""
        outcomes: list[Outcome | None] = []
        for world in self.worlds:
            try:
                outcomes.append(world.apply(op))
            except ConfigError:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1]
        tables = [world.table for world in self.worlds]
        assert tables[0].events == tables[1].events
        assert tables[0].notices == tables[1].notices
        return outcomes[0]

    def alive(self, name: str) -> Promise | None:
        """Return the promise that stands, its parents' considered."""
        promise = self.notes[name].promise
        if promise is None or promise.until <= self.now:
            return None
        if promise.parent is not None:
            above = self.alive(promise.parent[0])
            if above is None or above.token != promise.parent[1]:
                return None
        return promise

    # --- the operations -------------------------------------------------------------------------------------------

    @initialize()
    def nothing_yet(self) -> None:
        assert all(world.record(name) is None for world in self.worlds for name in RESOURCES)

    @rule(
        name=resources, lease_id=ids, ttl=ttls, queue=st.booleans(), delay=short, least=short, grace=short,
        seen=st.sampled_from([0, 0, 0, 1_700_000_100_000_000]), parent=st.none() | st.none() | resources,
        follow=st.booleans(), stale=st.integers(0, 5), priority=st.sampled_from([0, 0, 1]),
        limit=st.sampled_from([0, 0, 1, 2]), soft=short, recover=st.booleans(),
    )  # fmt: skip
    def acquire(
        self, *, name: str, lease_id: str, ttl: int, queue: bool, delay: int, least: int, grace: int, seen: int,
        parent: str | None, follow: bool, stale: int, priority: int, limit: int, soft: int, recover: bool,
    ) -> None:  # fmt: skip
        above = None if parent is None else (parent, self.notes[parent].highest - (stale == 0))
        op = Acquire(
            name, lease_id, "h-" + lease_id, 0 if above and follow else ttl, queue, "to-" + lease_id, seen, "", above,
            lock_delay_ns=delay, hold_at_least_ns=least, grace_ns=grace, priority=priority, queue_limit=limit,
            soft_ns=soft, recover=recover,
        )  # fmt: skip
        note, standing, now = self.notes[name], self.alive(name), self.now
        outcome = self.apply(op)
        if isinstance(outcome, Granted):
            assert note.tombstones.get(lease_id, 0) <= now, "a tombstoned id was granted"
            assert standing is None or standing.lease_id == lease_id, "two holders at once"
            if standing is not None:
                assert outcome.token == standing.token, "an acquire repeated got another grant"
                assert standing.until in (FOLLOWS, now + outcome.ttl_ns)
                assert outcome.state == standing.state
                return
            self.check_turn(note, lease_id)
            assert outcome.token > note.highest, "a token came back"
            assert outcome.token > seen
            until = now + outcome.ttl_ns
            if above is not None:
                over = self.alive(above[0])
                assert over is not None
                assert over.token == above[1], "granted under a parent that is over"
                assert until <= over.until, "a child outlives its parent"
            note.highest = outcome.token
            note.promise = Promise(lease_id, outcome.token, until if op.ttl_ns else FOLLOWS, grace, above)
            note.promise.state, note.promise.soft_from = outcome.state, soft and now + soft
            self.check_handover(note, op.holder, outcome.state)
            note.lock_delay, note.closed_until, note.handed = delay, 0, None
            note.waiters.pop(lease_id, None)
            note.diligent.clear()
            self.tokens.append((name, lease_id, outcome.token))
        elif isinstance(outcome, Held):
            if queue:
                self.queued(note, op, outcome)
            if recover and standing is not None and 0 < standing.soft_from <= now:
                self.revoked(standing, now + outcome.remaining_ns)
        elif outcome is not None:
            assert isinstance(outcome, Lost)
            own = note.promise is not None and note.promise.lease_id == lease_id
            assert own or above is not None or note.tombstones.get(lease_id, 0) > now, outcome

    def queued(self, note: Tenure, op: Acquire, outcome: Held) -> None:
        """Note who waits, and check that the queue is no longer than it may be."""
        now = self.now
        live = [w for w, until in note.waiters.items() if until > now]
        assert outcome.refused is (op.lease_id not in live and 0 < op.queue_limit <= len(live))
        if outcome.refused:
            return
        if op.lease_id not in live:
            note.waiters.pop(op.lease_id, None)  # it had dropped out: back to the end
            note.priorities[op.lease_id] = op.priority
        note.waiters[op.lease_id] = now + WAITER_LIFE_NS
        note.diligent.add(op.lease_id)

    def revoked(self, standing: Promise, until: int) -> None:
        standing.until, standing.grace = until, 0

    def check_handover(self, note: Tenure, holder: str, state: str) -> None:
        """What was left for somebody goes to nobody else, and to nobody too late."""
        if note.handed is None:
            assert not state
        elif state:
            assert (holder, state) == note.handed[:2]
            assert self.now < note.handed[2]

    def check_turn(self, note: Tenure, lease_id: str) -> None:
        """Nobody closed it, and nobody that came in time was overtaken."""
        now = self.now
        assert now >= note.closed_until, "granted before the minimum hold was over"
        free_since = note.closed_until
        if note.promise is not None:
            if note.promise.until == FOLLOWS or note.promise.parent is not None:
                return  # it ended with a parent: when, is not noted here
            free_since = note.promise.until + note.lock_delay
            assert now >= free_since, "granted within the lock delay"
        live = [w for w, until in note.waiters.items() if until > now and w in note.diligent]
        live.sort(key=lambda w: -note.priorities[w])
        if live and note.handed is None and free_since <= now < free_since + RESERVATION_NS:
            assert live[0] == lease_id, f"{lease_id} overtook {live[0]}"

    @rule(data=st.data(), ttl=ttls)
    def renew(self, data: st.DataObject, ttl: int) -> None:
        if not self.tokens:
            return
        name, lease_id, token = data.draw(st.sampled_from(self.tokens[-4:]))
        lease_id = data.draw(st.sampled_from([lease_id, lease_id, lease_id, "A"]))
        note, standing, now = self.notes[name], self.alive(name), self.now
        outcome = self.apply(Renew(name, lease_id, token, ttl))
        if isinstance(outcome, Renewed):
            promise = note.promise
            assert promise is not None
            assert promise.lease_id == lease_id, "somebody else renewed it"
            if standing is None:
                assert promise.grace, "renewed after its expiry"
                assert now < promise.until + promise.grace
            assert outcome.ttl_ns <= ttl or now + outcome.ttl_ns == promise.until or promise.until == FOLLOWS
            if promise.until != FOLLOWS:
                assert now + outcome.ttl_ns >= promise.until, "a renewal shortened the promise"
                promise.until = now + outcome.ttl_ns
        else:
            assert isinstance(outcome, Lost)
            if outcome.reason is Loss.REVOKED and outcome.remaining_ns:
                record = self.worlds[0].record(name)
                assert record is not None
                assert record.revoked
                assert record.closed is None
                assert record.remaining_ns == outcome.remaining_ns

    @rule(
        name=resources, lease_id=ids, abandon=st.booleans(), successor=st.none() | st.none() | ids,
        reserve=st.sampled_from([RESERVATION_NS, SECOND]), state=st.sampled_from(["", "blob"]),
    )  # fmt: skip
    def release(
        self, *, name: str, lease_id: str, abandon: bool, successor: str | None, reserve: int, state: str
    ) -> None:
        note, standing = self.notes[name], self.alive(name)
        heir = successor and "h-" + successor
        outcome = self.apply(Release(name, lease_id, heir, abandon, state, reserve))
        if isinstance(outcome, Released):
            assert standing is not None
            assert standing.lease_id == lease_id, "somebody else released it"
            self.ended(name, self.now + outcome.free_in_ns)
            note.handed = (heir, state, note.closed_until + reserve) if heir else None
        else:
            assert isinstance(outcome, NotHeld)
            assert standing is None or standing.lease_id != lease_id
            note.waiters.pop(lease_id, None)
            note.diligent.discard(lease_id)
            if note.promise is not None and note.promise.lease_id == lease_id:
                note.promise.grace = 0
        if abandon:
            note.tombstones[lease_id] = self.now + rules.TOMBSTONE_NS

    @rule(name=resources, force=st.booleans(), data=st.data())
    def revoke(self, *, name: str, force: bool, data: st.DataObject) -> None:
        note, standing = self.notes[name], self.alive(name)
        token = data.draw(st.sampled_from([None, note.highest, note.highest - 1]))
        shown = self.worlds[0].record(name)
        outcome = self.apply(Revoke(name, force, token))
        if standing is None:
            self.reopened(name, shown, outcome, meant=token in (None, note.highest), force=force)
            return
        assert isinstance(outcome, Released) is (token in (None, standing.token))
        if not isinstance(outcome, Released):
            return
        if force:
            assert outcome == Released(0)
            self.ended(name, self.now)
        else:
            self.revoked(standing, self.now + outcome.free_in_ns)

    def reopened(self, name: str, shown: Record | None, outcome: Outcome | None, *, meant: bool, force: bool) -> None:
        """Check what became of a resource that nobody held, and note that it is open."""
        if shown is None or not meant:
            assert outcome == NotHeld()
        elif shown.closed is Closed.LOCK_DELAY and not force:
            assert outcome == Held(shown.holder, shown.token, shown.remaining_ns, 0, closed=shown.closed)
        else:
            assert outcome == Released()
            note = self.notes[name]
            if note.promise is not None:
                self.ended(name, self.now)
            note.closed_until, note.lock_delay = self.now, 0
            if note.handed is not None:
                note.handed = (*note.handed[:2], note.handed[2] - shown.remaining_ns)

    def ended(self, name: str, closed_until: int) -> None:
        """Note the end of a lease and of whatever stands under it."""
        note = self.notes[name]
        promise = note.promise
        assert promise is not None
        note.promise, note.closed_until = None, closed_until
        for child, below in self.notes.items():
            if below.promise is not None and below.promise.parent == (name, promise.token):
                self.ended(child, self.now)

    # --- what happens by itself -----------------------------------------------------------------------------------

    @rule(ns=st.sampled_from([1, 20 * MS, 50 * MS, 100 * MS, SECOND, 3 * SECOND, 7 * SECOND, 61 * SECOND]))
    def time_passes(self, ns: int) -> None:
        for world in self.worlds:
            world.advance(ns)

    @rule(step=st.sampled_from([-3_600_000_000, -1, 1_000_000]))
    def the_wall_clock_steps(self, step: int) -> None:
        for world in self.worlds:
            world.table.wall_us += step

    @rule(kept=st.sampled_from([0, 60 * SECOND]))
    def dead_entries_are_forgotten(self, kept: int) -> None:
        forgotten = [world.table.collect(world.now, kept) for world in self.worlds]
        assert forgotten[0] == forgotten[1]
        for name in forgotten[0]:
            assert self.alive(name) is None, "a live lease was forgotten"
            self.notes[name].promise = None
            self.notes[name].closed_until = 0

    # --- what always holds ----------------------------------------------------------------------------------------

    @invariant()
    def the_store_keeps_exactly_what_was_promised(self) -> None:
        for name in RESOURCES:
            promise = self.alive(name)
            for world in self.worlds:
                record = world.record(name)
                if record is not None and record.closed is not None:
                    self.check_closed(name, record)
                    record = None
                assert (record is None) == (promise is None), (name, record, promise)
                if record is not None and promise is not None:
                    assert record.token == promise.token
                    assert promise.until == FOLLOWS or record.remaining_ns == promise.until - self.now

    def check_closed(self, name: str, record: Record) -> None:
        """What is shown as closed is so for as long as was asked for."""
        note, until = self.notes[name], self.now + record.remaining_ns
        if record.closed is Closed.HOLD_AT_LEAST:
            assert (note.promise, note.closed_until) == (None, until)
        else:
            assert note.promise is not None
            assert note.promise.parent is not None or until == note.promise.until + note.lock_delay

    @invariant()
    def no_child_outlives_its_parent(self) -> None:
        world = self.worlds[0]
        for name in RESOURCES:
            record = world.record(name)
            if record is not None and record.parent is not None:
                above = world.record(record.parent[0])
                assert above is not None
                assert above.token == record.parent[1]
                assert record.remaining_ns <= above.remaining_ns


TestRules = RulesMachine.TestCase
TestRules.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
