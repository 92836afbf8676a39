"""A lease for asyncio.

When it is lost, the body of its ``async with`` is cancelled and `LeaseLost` comes out. A body that blocks the event
loop can't be cancelled while it blocks; its lease is renewed all the same, by a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from functools import partial
from typing import TYPE_CHECKING

from lessor.client.body import Body
from lessor.client.calls import call
from lessor.client.lease import RELEASED
from lessor.client.options import handover
from lessor.core.holder import State
from lessor.core.ops import Loss, Lost, Release, Released, Unknown
from lessor.errors import LeaseLost
from lessor.patterns import drain
from lessor.patterns.again import AsyncAgain
from lessor.runtime.blocks import AsyncExit, Leaving, block_of
from lessor.runtime.tenure import Tenure
from lessor.runtime.under import Under

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Any, Literal, Self

    from lessor.client.options import Terms
    from lessor.core.claim import Take
    from lessor.core.ops import Acquire
    from lessor.core.timing import Duration
    from lessor.patterns.drain import Work
    from lessor.runtime.engine import Engine
    from lessor.runtime.visits import Visit


class LossEvent(asyncio.Event):
    """What ``lease.lost`` is. It keeps the lease: the program that waits for the loss has the lease still."""

    def __init__(self, lease: AsyncLease) -> None:
        super().__init__()
        self.lease = lease

    async def wait(self) -> Literal[True]:
        """Wait for the loss. An event loop refers to its tasks weakly; the engine, which sets this event, keeps the task."""
        kept, task = self.lease._engine.waiting, asyncio.current_task()
        kept.add(task)
        try:
            return await super().wait()
        finally:
            kept.discard(task)


class AsyncLease(Tenure):
    """A lease held by this process. Use it in an ``async with``, or await ``release()``."""

    _loop: asyncio.AbstractEventLoop
    _own: Body | None = None
    """The body of its own 'async with'."""
    _bodies: tuple[Body, ...] = ()
    """That one, and those that have entered it again."""
    _tasks: set[asyncio.Task[Any]] | None = None

    @property
    def lost(self) -> asyncio.Event:
        """An event to await: set when the lease is lost or released."""
        self._tick()
        if self._lost is None:
            self._lost = LossEvent(self)
        event: asyncio.Event = self._lost
        if self._belief.state is State.LOST:  # after it can be found there: whoever ends the lease sets it, or we do
            event.set()
        return event

    async def renew(self) -> None:
        """Renew now, besides the renewals that happen by themselves.

        Raises `LeaseLost` if the lease is lost or can't be renewed any more; ``error.remaining`` says for how long it is
        still held. A lease that lasts as long as ``max_hold`` allows already is left as it is.
        """
        op = self._renewal_on_demand(self._now())
        if op is None:
            return
        outcome, sent = await call(self._engine, op)
        now = self._now()
        if self._doubts(outcome, now):
            outcome = await asyncio.to_thread(self._engine.keeper.ask_for_riders, self, outcome)
            now = self._now()
        self._answer_on_demand(outcome, sent, now)
        self.check()
        if isinstance(outcome, Lost):
            raise self._unrenewable(outcome.reason)
        if isinstance(outcome, Unknown):
            raise outcome.error

    async def release(self) -> bool:
        """Give it back. True if that ended it, False if it was over already.

        When the store doesn't answer, `StoreUnavailable` is raised, and the release is tried again in the background;
        either way this lease is not ours any more.
        """
        return await self._give_back(self._now(), raising=True)

    async def hand_over(self, to: str, state: bytes = b"", within: Duration = 5.0) -> bool:
        """End it here, and keep the resource for the holder of that name. True if that ended it, as in ``release()``.

        The successor acquires as anybody does, within that time, and finds the state as ``lease.inherited``; nobody
        else gets it. If it doesn't come, the queue goes on. A successor that waits already is called at once.
        """
        release = handover(self, self._engine.store.guarantees, to, state, within)
        self.check()
        return await self._give_back(self._now(), raising=True, release=release)

    def work(self) -> Work:
        """Count the body of a ``with`` as work in flight. Raises `Draining` once ``drain()`` was called, or `LeaseLost`."""
        return drain.Work(self)

    async def drain(
        self,
        timeout: Duration | None = None,  # noqa: ASYNC109 - it ends the wait, not the work
        to: str | Callable[[], Any] | None = None,
        state: bytes | Callable[[], Any] = b"",
        within: Duration = 5.0,
    ) -> bool:
        """Take no more work, wait for what is in flight, then release; or, with ``to``, hand over. True if that ended it.

        Raises `StillWorking` if the time is over first: the lease is kept then, and this may be called again. The name
        and the state may be functions, which are called when the work has ended; nobody's name, None, means a release.
        """
        return await drain.drain_async(self, timeout, to, state, within)

    def _announce_drain(self) -> None:
        drain.announce(self)

    async def _give_back(self, now: int, *, raising: bool, release: Release | None = None) -> bool:
        if release is None:
            release = self._release
        at_work = not raising and self._is_at_work()
        try:
            # Stop believing and renewing first: a late renewal must not follow the release.
            self._advance(RELEASED, now)
            if at_work or not self._to_give_back():
                return False
            outcome, _ = await call(self._engine, release)
        except BaseException:
            self._advance(RELEASED, now)
            self._engine.forget(self)
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

    def again(self) -> AsyncAgain[Self]:
        """Enter it once more: ``async with lease.again():``, in any task. The same lease, with the same token.

        Whoever leaves last gives it back, be it this one or the ``async with`` of the lease; ``release()`` ends it for
        all. Each body is cancelled when the lease is lost.
        """
        return AsyncAgain(self)

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        return self._enter_own(block_of(self))

    async def _enter_own(self, block: object) -> Self:
        self.check()
        self._occupy(block)
        self._own = self._enter()
        return self

    if TYPE_CHECKING:

        async def __aexit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> None: ...
    else:
        __aexit__ = Leaving(AsyncExit)

    async def _exit(self, exc_type: type[BaseException] | None, *_: object) -> None:
        body, self._own = self._own, None
        assert body is not None
        await self._leave(body, self._own_visit, exc_type)

    def _join(self, block: object) -> tuple[Body, Visit]:
        return self._enter(), self._visit(block)

    def _enter(self) -> Body:
        body = Body()
        self._bodies = (*self._bodies, body)
        try:
            self.check()  # after the body can be found there: a loss from here on cancels it
        except LeaseLost:
            self._bodies = tuple(other for other in self._bodies if other is not body)
            raise
        return body

    async def _leave(self, body: Body, visit: Visit | None, exc_type: type[BaseException] | None) -> None:
        self._bodies = tuple(other for other in self._bodies if other is not body)
        now = self._now()
        self._tick(now)
        loss = self._belief.loss or (Loss.EXPIRED if now >= self._deadline_ns else None)
        body.take_back()
        if self._is_last_out(visit):
            try:
                await self._give_back(now, raising=False)
            except asyncio.CancelledError:
                if not body.was_ours():
                    raise
        self._is_gone(visit)
        if loss is not None and loss is not Loss.RELEASED and (exc_type is None or body.was_cancelled_by_us(exc_type)):
            raise LeaseLost(self.resource, token=self.token, reason=str(loss)) from None

    def _wake(self) -> None:
        if self._lost is not None or (self._bodies and self._belief.loss is not Loss.RELEASED):
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        if self._lost is not None:
            self._lost.set()
        if self._belief.loss is not Loss.RELEASED:
            for body in self._bodies:
                body.cancel()

    def _fork(self) -> None:
        super()._fork()
        if self._lost is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._lost.set()

    def _call(self, callback: Callable[[Any], object]) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._run, callback)

    def _run(self, callback: Callable[[Any], object]) -> None:
        result = callback(self)
        if inspect.iscoroutine(result):
            task = self._loop.create_task(result)
            if self._tasks is None:
                self._tasks = set()
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class AsyncChildLease(Under, AsyncLease):
    """A lease under another one."""


def hold(engine: Engine, op: Acquire, generation: int, terms: Terms, take: Take, sent_ns: int) -> AsyncLease:  # noqa: PLR0917 - as in `Tenure`
    """Make the lease of what was granted, to this task, and have it renewed."""
    timing, _, max_hold_ns, stall_after_ns, _, parent, _ = terms
    loop = asyncio.get_running_loop()
    make = AsyncLease if parent is None else partial(AsyncChildLease, parent=parent)
    task = asyncio.current_task(loop)
    lease = make(engine, op, timing, take, sent_ns, task, generation, max_hold_ns, stall_after_ns)
    lease._loop = loop
    engine.hold(lease)
    return lease
