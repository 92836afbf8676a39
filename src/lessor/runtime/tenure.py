"""A lease that this process holds: what the clients' ``Lease`` objects have in common.

It can't stop work that doesn't ask: call ``check()`` where it matters, and guard writes with ``token``.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Final

from lessor.core import holder as machine
from lessor.core.holder import Confirmed, Ending, Over, Signal, State, Tick, Unconfirmed
from lessor.core.lease import decode_metadata, decode_state
from lessor.core.ops import Loss, Lost, Release, Renew, Renewed
from lessor.core.schedule import Latency, renew_at, retry_at
from lessor.core.timing import Renewal, to_ns
from lessor.errors import ConfigError, LeaseLost
from lessor.runtime.visits import Visited
from lessor.stores.locks import open_in_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from lessor.core.claim import Take
    from lessor.core.holder import Holder, HolderEvent
    from lessor.core.ops import Acquire, Outcome
    from lessor.core.timing import Duration, Timing
    from lessor.errors import Draining
    from lessor.runtime.cohort import Cohort
    from lessor.runtime.engine import Engine
    from lessor.runtime.holding import Holding

OVER_NS: Final = -1
"""The deadline of a lease that is lost: always in the past."""
HELD: Final = State.HELD
LOST: Final = State.LOST
IS_LOST: Final = Signal.LOST
ADAPTIVE: Final = Renewal.ADAPTIVE
"""By names of their own, as in `core.holder`: what happens at each acquisition, renewal and release asks for them."""
DISPOSABLE: Final = (None, Loss.RELEASED, Loss.EXPIRED, Loss.REVOKED, Loss.STALLED)
"""Losses after which the store may still have the lease under our id."""


class Tenure(Visited):
    """A lease held here. Thread-safe; made by the engine, never by hand."""

    # What most leases never need is said here, and not of each: to make one is on the path of every acquisition.
    _parent: Tenure | None = None
    _carried = False
    """Whether the renewal of its parent is all that it takes, so that nobody need do anything for it by itself."""
    _hold_until_ns: int | None = None
    _final = False
    _stall_after_ns: int | None = None
    _progress_ns = 0
    _failures = 0
    _released = False
    _unanswered: Release | None = None
    """How to give it back, if not plainly: as it was tried without an answer, or so that no copy of its request counts."""
    _latency: Latency | None = None
    _again: Renew | None = None
    """Its renewal, where that is always the same."""
    _cohort: Cohort | None = None
    """Those that are renewed along with it, once it is."""
    _children: dict[Tenure, None] | None = None
    """What stands under it here."""
    _ended = 0
    """How many of those, and of those below, had been ended by somebody else when we last knew."""
    _inherited = ""
    _intake: Any = None
    """What counts the work in flight, once somebody wants that."""
    _holding: Holding
    """The engine's reference to it."""
    _lost: Any = None
    """The event to wait on, of the kind that the face has."""
    _listeners: list[tuple[Signal, Callable[[Any], object]]] | None = None

    token: int
    """The fencing token: strictly increasing for each resource. Guards compare it where the writes happen."""

    def __init__(  # noqa: PLR0917 - by place: to name them takes as long as half of what is done here
        self,
        engine: Engine,
        op: Acquire,
        timing: Timing,
        take: Take,
        sent_ns: int,
        owner: object,
        generation: int,
        max_hold_ns: int | None = None,
        stall_after_ns: int | None = None,
    ) -> None:
        token, deadline_ns, inherited, astray = take
        self._engine = engine
        self._generation = generation
        self._now = engine.now
        self._op = op
        self._timing = timing
        self.token = token
        self._sent_ns = sent_ns
        self._owner = owner
        self._lock = RLock()
        if max_hold_ns is not None:
            self._hold_until_ns = sent_ns + max_hold_ns
            self._final = op.ttl_ns >= max_hold_ns
            deadline_ns = min(deadline_ns, self._hold_until_ns)
        if stall_after_ns is not None:
            self._stall_after_ns = stall_after_ns
            self._progress_ns = sent_ns
        if inherited:
            self._inherited = inherited
        if astray:
            self._unanswered = Release(op.resource, op.lease_id, abandon=True)
        self._belief = machine.granted(deadline_ns, timing.at_least(op.grace_ns) if op.grace_ns else 0)
        self._deadline_ns = deadline_ns

    # --- what it is -----------------------------------------------------------------------------------------------

    @property
    def resource(self) -> str:
        """The name of what is held."""
        return self._op.resource

    @property
    def holder(self) -> str:
        """Who holds it, for people."""
        return self._op.holder

    @property
    def id(self) -> str:
        """The proof of ownership. A secret: whoever has it can renew and release this lease."""
        return self._op.lease_id

    @property
    def metadata(self) -> dict[str, str]:
        """What was said about it when it was acquired."""
        return decode_metadata(self._op.metadata)

    @property
    def inherited(self) -> bytes:
        """What the holder before has handed over, if this one is its successor."""
        return decode_state(self._inherited)

    @property
    def parent(self) -> Tenure | None:
        """The lease that it stands under, if there is one: it lasts no longer than that."""
        return self._parent

    @property
    def timing(self) -> Timing:
        """The five numbers that it runs on."""
        return self._timing

    # --- may I go on? ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is safely ours now. Reads the clock, and does no I/O."""
        if self._now() >= self._deadline_ns:
            raise self._lost_error()

    def require(self, seconds: Duration) -> None:
        """Raise `LeaseLost` unless the lease is safely ours for that much longer, without another renewal."""
        left, needed = self._deadline_ns - self._now(), to_ns(seconds, "the required time")
        if left <= 0:
            raise self._lost_error()
        if left < needed:
            raise LeaseLost(self.resource, token=self.token, reason="not enough time left", needed=needed / 1e9)

    @property
    def held(self) -> bool:
        """Whether it is safely ours now: what ``check()`` looks at."""
        return self._now() < self._deadline_ns

    @property
    def remaining(self) -> float:
        """Seconds of safe time: until the deadline, if no renewal succeeds."""
        return max(0, self._deadline_ns - self._now()) / 1e9

    @property
    def state(self) -> State:
        """HELD, JEOPARDY or LOST. Within its grace a lease is in JEOPARDY, and not ``held``."""
        self._tick()
        return self._belief.state

    @property
    def loss(self) -> Loss | None:
        """Why it is lost; None while it isn't."""
        self._tick()
        return self._belief.loss

    @property
    def ending(self) -> Loss | None:
        """Why it will not be renewed any more, so that it ends at its deadline; None while renewals go on."""
        return self._belief.ending

    def progress(self) -> None:
        """Say that the work goes on: with ``stall_after``, renewals stop when this isn't called for so long."""
        now = self._now()
        self._progress_ns = now
        if self._belief.ending is Loss.STALLED:
            self._engine.keeper.renew_soon(self)

    def on_lost(self, callback: Callable[[Self], object]) -> None:
        """Have it called, with the lease, once the lease is lost; at once if it is already. Not when it is released."""
        self._listen(IS_LOST, callback)

    def on_jeopardy(self, callback: Callable[[Self], object]) -> None:
        """Have it called, with the lease, whenever renewals begin to fail or will not come any more."""
        self._listen(Signal.JEOPARDY, callback)

    def on_safe(self, callback: Callable[[Self], object]) -> None:
        """Have it called, with the lease, when a renewal succeeds after jeopardy."""
        self._listen(Signal.SAFE, callback)

    def __repr__(self) -> str:
        state = self.state
        shown = f"{self.remaining:.3g} s left" if state is not LOST else str(self._belief.loss)
        return f"<{type(self).__name__} {self.resource!r} token={self.token} id={self.id[:8]}… {state}: {shown}>"

    # --- for the engine -------------------------------------------------------------------------------------------

    def _advance(self, event: HolderEvent, now: int) -> None:
        """Let the event change what we believe, and tell those who want to know."""
        with self._lock:
            self._belief, signal = machine.step(self._belief, event, now)
            lost = self._belief.state is LOST
            self._deadline_ns = OVER_NS if lost else self._belief.deadline_ns
            listeners = list(self._listeners) if signal is not None and self._listeners else ()
        if self._generation != self._engine.generation and not lost:
            # The process forked in here, in a signal handler: what was just written is the parent's belief.
            self._fork()
            return
        if signal is IS_LOST:
            self._engine.forget(self)
            self._wake()
        for wanted, callback in listeners:
            if wanted is signal and self._belief.loss is not Loss.RELEASED:
                self._call(callback)
        if signal is not None and self._children:
            self._pass_on(signal, now)

    def _to_give_back(self) -> bool:
        """Whether the store may still have it under our id, so that giving it back makes sense."""
        return not self._released and self._belief.loss in DISPOSABLE and self._generation == self._engine.generation

    @property
    def _release(self) -> Release:
        """What gives it back: in the same way as before, if that had no answer."""
        return self._unanswered or Release(self._op.resource, self._op.lease_id)

    def _leave_to_disposer(self, release: Release) -> None:
        """Have it given back in the background; should it be given back again meanwhile, then in the same way."""
        if self._to_give_back():
            self._unanswered = release
            self._engine.keeper.dispose(release, self._timing.ttl_ns)

    def _is_at_work(self) -> bool:
        """Whether counted work is in flight, here or under it. Then the end of a ``with`` gives nothing back.

        It ends with its TTL.
        """
        return self._intake is not None and self._intake.in_flight > 0

    def _is_drained(self) -> bool:
        """Whether it takes no more work."""
        return self._intake is not None and self._intake.closed

    def _refused(self, error: Draining) -> bool:
        """Whether the error says that this very lease takes no more work."""
        return (error.resource, error.token) == (self.resource, self.token)

    # --- what stands under it -------------------------------------------------------------------------------------

    def _adopt(self, child: Tenure) -> None:
        """Take a lease on that was granted under this one."""
        with self._lock:
            if self._children is None:
                self._children = {}
            self._children[child] = None
            lost = self._belief.state is LOST
        if lost:
            child._advance(Over(Loss.PARENT), self._now())

    def _pass_on(self, signal: Signal, now: int) -> None:
        """Let those under it know. What they may believe has changed already: they ask here."""
        for child in list(self._children or ()):
            if signal is IS_LOST:
                child._advance(Over(Loss.PARENT), now)
            else:
                child._hear(signal, now)

    def _hear(self, signal: Signal, now: int) -> None:
        """Hear from the parent."""
        raise NotImplementedError

    def _doubts(self, outcome: Outcome, now: int) -> bool:
        """Whether this renewal must not count before those under it, that it would carry along, have been asked for.

        Somebody has ended one of them or, within the grace, may have taken one.
        """
        return isinstance(outcome, Renewed) and (
            outcome.ended != self._ended or (now >= self._belief.deadline_ns and bool(self._children))
        )

    def _riders(self) -> list[Tenure]:
        """Return all that its renewal carries along, at any depth."""
        riders = [child for child in list(self._children or ()) if child._carried]
        return riders + [below for rider in riders for below in rider._riders()]

    # --- for the engine, again ------------------------------------------------------------------------------------

    def _fork(self) -> None:
        """In a forked child: it is the parent's, not ours."""
        open_in_child(self._lock)
        if self._intake is not None:
            self._intake.fork()
        self._listeners = None
        self._belief, _ = machine.step(self._belief, Over(Loss.FORKED), 0)
        self._deadline_ns = OVER_NS

    def _tick(self, now: int | None = None) -> None:
        if self._belief.state is not LOST:
            if now is None:
                now = self._now()
            if now >= self._deadline_ns:
                self._advance(Tick(), now)

    def _lost_error(self) -> LeaseLost:
        self._tick()
        return LeaseLost(self.resource, token=self.token, reason=str(self._belief.loss or Loss.EXPIRED))

    def _listen(self, signal: Signal, callback: Callable[[Self], object]) -> None:
        if not callable(callback):
            raise ConfigError(f"a callback is called with the lease, and {type(callback).__name__} can't be called")
        self._tick()
        with self._lock:
            lost = self._belief.state is LOST
            if not lost:
                if self._listeners is None:
                    self._listeners = []
                self._listeners.append((signal, callback))
                self._engine.listened.add(self)
        if lost and signal is IS_LOST:
            self._call(callback)

    def _wake(self) -> None:
        """Wake whoever waits for the end."""
        raise NotImplementedError

    def _call(self, callback: Callable[[Any], object]) -> None:
        """Run a callback where the face runs callbacks; never on the thread that found out."""
        raise NotImplementedError

    # --- renewal --------------------------------------------------------------------------------------------------

    def _renewal(self, now: int) -> Renew | None:
        """Return the renewal to send, or None where there will be none."""
        if self._again is not None and now < self._deadline_ns:
            return self._again
        self._tick(now)
        if self._belief.state is LOST:
            return None
        ttl = self._op.ttl_ns
        if self._stall_after_ns is not None and now - self._progress_ns >= self._stall_after_ns:
            self._advance(Ending(Loss.STALLED), now)
            return None
        if self._hold_until_ns is not None:
            if self._final:
                self._advance(Ending(Loss.EXPIRED), now)
                return None
            ttl = min(ttl, self._hold_until_ns - now)
        renewal = Renew(self._op.resource, self._op.lease_id, self.token, ttl)
        if self._stall_after_ns is None and self._hold_until_ns is None:
            self._again = renewal
        return renewal

    def _renewal_on_demand(self, now: int) -> Renew | None:
        """Return the renewal that ``renew()`` sends. None: the lease lasts as long as ``max_hold`` allows already."""
        if self._final and self._belief.ending in {None, Loss.EXPIRED}:
            self.check()
            return None
        op = self._renewal(now)
        if op is None:
            raise self._unrenewable(self.loss or self._belief.ending)
        return op

    def _answer_on_demand(self, outcome: Outcome, sent_ns: int, now: int) -> None:
        """Take the answer to the renewal that ``renew()`` sends."""
        failed = self._failures > 0
        self._answer(outcome, sent_ns, now, 0.0)
        if failed and isinstance(outcome, Renewed):
            self._engine.keeper.renew_soon(self)  # which may have given up, too close to the deadline that was

    def _unrenewable(self, reason: Loss | None) -> LeaseLost:
        return LeaseLost(self.resource, token=self.token, reason=str(reason), remaining=self.remaining)

    def _confirm(self, belief: Holder, sent_ns: int, now: int) -> bool:
        """Take a renewal as good, together with others that were promised the same; False: it is for ``_answer``."""
        if self._hold_until_ns is not None or self._timing.renewal is ADAPTIVE:
            return False
        with self._lock:
            believed = self._belief
            if believed.state is not HELD or now >= believed.deadline_ns or believed.grace_ns:
                return False
            if belief.deadline_ns > believed.deadline_ns:
                self._belief, self._deadline_ns = belief, belief.deadline_ns
        self._sent_ns = sent_ns
        return True

    def _answer(self, outcome: Outcome, sent_ns: int, now: int, jitter: float) -> int | None:
        """Take the answer to a renewal, and return when the next one is due."""
        if isinstance(outcome, Renewed):
            deadline = sent_ns + self._timing.safe_time(outcome.ttl_ns)
            if self._hold_until_ns is not None:
                deadline = min(deadline, self._hold_until_ns)
            self._sent_ns = max(self._sent_ns, sent_ns)
            self._failures = 0
            if self._latency is None:
                self._latency = Latency()
            self._latency.add(now - sent_ns)
            self._advance(Confirmed(deadline), now)
            if self._hold_until_ns is not None and now + self._timing.ttl_ns >= self._hold_until_ns:
                # It lasts as long as it may now: say so while there is time left, rather than renew it bit by bit.
                self._final = True
                self._advance(Ending(Loss.EXPIRED), now)
                return None
            return renew_at(self._timing, sent_ns, deadline - sent_ns, self._latency, jitter)
        if isinstance(outcome, Lost):
            if outcome.remaining_ns > 0:
                promised = sent_ns + self._timing.safe_time(outcome.remaining_ns)
                self._advance(Ending(outcome.reason, promised), now)
            else:
                self._advance(Over(outcome.reason), now)
            return None
        self._failures += 1
        self._advance(Unconfirmed(), now)
        return retry_at(self._timing, self._over_ns, now, self._failures, jitter)

    @property
    def _over_ns(self) -> int:
        """Until when it makes sense to renew it: its deadline, or the end of its grace."""
        return self._belief.over_ns

    @property
    def _unending(self) -> bool:
        """Whether nothing but its owner will end it."""
        bounded = self._hold_until_ns is not None or self._stall_after_ns is not None
        return self.state is State.HELD and not bounded
