"""A lease for threads.

A thread can't be stopped from outside: when a lease is lost, ``check()`` raises and callbacks are called, and the
work has to look. Guard its writes with the token.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from lessor.client.options import handover
from lessor.core.holder import Over, State
from lessor.core.ops import Loss, Lost, Release, Released, Unknown
from lessor.errors import LeaseLost
from lessor.patterns import drain
from lessor.patterns.again import Again
from lessor.runtime.blocks import Exit, Leaving, block_of
from lessor.runtime.tenure import Tenure
from lessor.runtime.under import Under
from lessor.stores.scarcity import scarce

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self

    from lessor.client.lease_async import AsyncLease
    from lessor.client.options import Terms
    from lessor.core.claim import Take
    from lessor.core.holder import Signal
    from lessor.core.ops import Acquire
    from lessor.core.timing import Duration
    from lessor.patterns.drain import Work
    from lessor.runtime.engine import Engine
    from lessor.runtime.visits import Visit

RELEASED = Over(Loss.RELEASED)


class LossEvent(threading.Event):
    """What ``lease.lost`` is. It keeps the lease: the program that waits for the loss has the lease still."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.lease = lease


class Lease(Tenure):
    """A lease held by this process. Use it in a ``with``, or call ``release()``."""

    @property
    def lost(self) -> threading.Event:
        """An event to wait on: set when the lease is lost or released."""
        self._tick()
        with self._lock:
            event: threading.Event = self._lost or LossEvent(self)
            self._lost = event
        if self._belief.state is State.LOST:  # after it can be found there: whoever ends the lease sets it, or we do
            event.set()
        return event

    def renew(self) -> None:
        """Renew now, besides the renewals that happen by themselves.

        Raises `LeaseLost` if the lease is lost or can't be renewed any more; ``error.remaining`` says for how long it is
        still held. A lease that lasts as long as ``max_hold`` allows already is left as it is.
        """
        engine = self._engine
        op = self._renewal_on_demand(self._now())
        if op is None:
            return
        sent = engine.clock.mark()
        outcome = engine.store.apply([op], timeout=engine.timeout)[0]
        now = self._now()
        if self._doubts(outcome, now):
            outcome, now = engine.keeper.ask_for_riders(self, outcome), self._now()
        self._answer_on_demand(outcome, sent, now)
        self.check()
        if isinstance(outcome, Lost):
            raise self._unrenewable(outcome.reason)
        if isinstance(outcome, Unknown):
            raise outcome.error

    def release(self) -> bool:
        """Give it back. True if that ended it, False if it was over already.

        When the store doesn't answer, `StoreUnavailable` is raised, and the release is tried again in the background;
        either way this lease is not ours any more.
        """
        return self._give_back(self._now(), raising=True)

    def hand_over(self, to: str, state: bytes = b"", within: Duration = 5.0) -> bool:
        """End it here, and keep the resource for the holder of that name. True if that ended it, as in ``release()``.

        The successor acquires as anybody does, within that time, and finds the state as ``lease.inherited``; nobody
        else gets it. If it doesn't come, the queue goes on. A successor that waits already is called at once.
        """
        release = handover(self, self._engine.store.guarantees, to, state, within)
        self.check()
        return self._give_back(self._now(), raising=True, release=release)

    def work(self) -> Work:
        """Count the body of a ``with`` as work in flight. Raises `Draining` once ``drain()`` was called, or `LeaseLost`."""
        return drain.Work(self)

    def drain(
        self,
        timeout: Duration | None = None,
        to: str | Callable[[], Any] | None = None,
        state: bytes | Callable[[], Any] = b"",
        within: Duration = 5.0,
    ) -> bool:
        """Take no more work, wait for what is in flight, then release; or, with ``to``, hand over. True if that ended it.

        Raises `StillWorking` if the time is over first: the lease is kept then, and this may be called again. The name
        and the state may be functions, which are called when the work has ended; nobody's name, None, means a release.
        """
        return drain.drain(self, timeout, to, state, within)

    def _announce_drain(self) -> None:
        drain.announce(self)

    def _give_back(self, now: int, *, raising: bool, release: Release | None = None) -> bool:
        engine = self._engine
        if release is None:
            release = self._release
        at_work = not raising and self._is_at_work()
        try:
            # Stop believing and renewing first: a late renewal must not follow the release.
            self._advance(RELEASED, now)
            if at_work or not self._to_give_back():
                return False
            outcome = engine.store.apply([release], timeout=engine.timeout)[0]
        except BaseException:
            self._advance(RELEASED, now)
            engine.forget(self)
            if not at_work:
                self._leave_to_disposer(release)
            raise
        if isinstance(outcome, Unknown):
            self._leave_to_disposer(release)
            if raising:
                raise outcome.error
            return False
        self._released = True
        return isinstance(outcome, Released)

    def __enter__(self) -> Self:
        self.check()
        self._occupy(block_of(self))
        return self

    def again(self) -> Again[Self]:
        """Enter it once more: ``with lease.again():``, in any thread. The same lease, with the same token.

        Whoever leaves last gives it back, be it this one or the ``with`` of the lease; ``release()`` ends it for all.
        """
        return Again(self)

    def _join(self, block: object) -> Visit:
        self.check()
        return self._visit(block)

    if TYPE_CHECKING:

        def __exit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> None: ...
    else:
        __exit__ = Leaving(Exit)

    def _exit(self, exc_type: type[BaseException] | None, *_: object) -> None:
        self._leave(self._own_visit, exc_type)

    def _leave(self, visit: Visit | None, exc_type: type[BaseException] | None) -> None:
        now = self._now()
        self._tick(now)
        loss = self._belief.loss or (Loss.EXPIRED if now >= self._deadline_ns else None)
        if self._is_last_out(visit):
            self._give_back(now, raising=False)
        self._is_gone(visit)
        if exc_type is None and loss is not None and loss is not Loss.RELEASED:
            raise LeaseLost(self.resource, token=self.token, reason=str(loss))

    def _wake(self) -> None:
        if self._lost is not None:
            self._lost.set()

    def _fork(self) -> None:
        super()._fork()
        if self._lost is not None:
            self._lost._at_fork_reinit()  # a thread that doesn't exist here may have its lock
            self._lost.set()

    def _listen(self, signal: Signal, callback: Callable[[Self], object]) -> None:
        with scarce(self._engine.store.guarantees.store):
            self._engine.callbacks.start()  # now, and not when there is something to tell
        super()._listen(signal, callback)

    def _call(self, callback: Callable[[Any], object]) -> None:
        self._engine.callbacks.run(lambda: callback(self))


class ChildLease(Under, Lease):
    """A lease under another one."""


def current_lease() -> Lease | AsyncLease:
    """Return the lease of the singleton that is running: an `AsyncLease` in a coroutine function, else a `Lease`.

    Of nested singletons it is the innermost one's. Raises `ConfigError` outside of a singleton.
    """
    from lessor.patterns import singleton  # noqa: PLC0415 - most programs have none

    lease: Lease | AsyncLease = singleton.current()
    return lease


def hold(engine: Engine, op: Acquire, generation: int, terms: Terms, take: Take, sent_ns: int) -> Lease:  # noqa: PLR0917 - as in `Tenure`
    """Make the lease of what was granted, to this thread, and have it renewed."""
    timing, _, max_hold_ns, stall_after_ns, _, parent, _ = terms
    make = Lease if parent is None else partial(ChildLease, parent=parent)
    lease = make(engine, op, timing, take, sent_ns, threading.current_thread(), generation, max_hold_ns, stall_after_ns)
    engine.hold(lease)
    return lease
