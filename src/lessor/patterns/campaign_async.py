"""Leader election for asyncio.

When a term is lost, the body of its ``async with`` is cancelled, and nothing goes on before it has ended. A body that
blocks the event loop can't be cancelled while it blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any, Protocol

from lessor.errors import Cancelled, LeaseLost, LessorError, StoreUnavailable
from lessor.patterns.election import BaseCampaign, BaseTerm, Leader, Leaders
from lessor.runtime.blocks import AsyncExit, Leaving, block_of
from lessor.runtime.cancellation import watched
from lessor.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from types import TracebackType
    from typing import Self, TypeVar

    from lessor.core.timing import Duration
    from lessor.core.view import Record
    from lessor.patterns.drain import Heir, State
    from lessor.runtime.cancellation import Cancellation

    Result = TypeVar("Result")


class Looker(Protocol):
    """What an observer needs of a client."""

    async def get(self, resource: str) -> Record | None:
        """Return who holds it."""
        ...

    def watch(self, prefix: str) -> Any:
        """Return the stream of events."""
        ...


class AsyncTerm(BaseTerm):
    """One time of leading, in an ``async with``, whose body is cancelled when the term is lost; the loop goes on."""

    _new_event = asyncio.Event
    _cut: asyncio.Timeout | None = None

    async def resign(self) -> bool:
        """Stop leading. True if that ended the term, False if it was over already. Stop the work first."""
        return bool(await self.lease.release())

    async def hand_over(self, to: str, state: bytes = b"", within: Duration = 5.0) -> bool:
        """Stop leading, in favour of the candidate of that name; it finds the state as ``term.lease.inherited``.

        If it doesn't come within that time, the others' turn comes.
        """
        return bool(await self.lease.hand_over(to, state, within))

    async def drain(
        self,
        timeout: Duration | None = None,  # noqa: ASYNC109 - it ends the wait, not the work
        to: Heir = None,
        state: State = b"",
        within: Duration = 5.0,
    ) -> bool:
        """Drain the lease of this term, as ``lease.drain()`` does. True if that ended the term. It is the campaign's last.

        The end of the term's ``async with`` waits for a drain that is under way.
        """
        self._announce_drain()
        over = self._drain
        try:
            return bool(await self.lease.drain(timeout, to, state, within))
        except LeaseLost:
            return False
        finally:
            over.set()

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        return self._enter(block_of(self))

    async def _enter(self, block: object) -> Self:
        try:
            await self.lease._enter_own(block)
        except LeaseLost:
            # Lost before it began. A body can't be left out, but cancelled it can be, at its first await.
            self._cut = asyncio.timeout(0)
            await self._cut.__aenter__()
        return self

    if TYPE_CHECKING:

        async def __aexit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> bool: ...
    else:
        __aexit__ = Leaving(AsyncExit)

    async def _exit(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            if self._drain is not None:
                await (
                    self._drain.wait()
                )  # it releases the lease, or hands it over: a plain release would forestall that
        except asyncio.CancelledError as error:
            if not await self._leave(type(error), error, error.__traceback__):
                raise
            return True
        return await self._leave(exc_type, exc, traceback)

    async def _leave(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        leave = self.lease._exit if self._cut is None else self._cut.__aexit__
        try:
            await leave(exc_type, exc, traceback)
        except TimeoutError:
            if self._cut is None:
                raise
            return True
        except LeaseLost as error:
            if not self._is_own(error):
                raise
            return True
        return self._is_own(exc)


class AsyncCampaign(BaseCampaign[AsyncTerm]):
    """A stream of terms, for an ``async for``: each waits until we lead.

    Leave the loop, call ``stop()``, or cancel the task, to end it.
    """

    def __init__(
        self,
        name: str,
        stand: Callable[[Cancellation], Awaitable[Any]],
        draw: Callable[[], float],
        ready: Callable[[], Any] | None = None,
        cancel: Cancellation | None = None,
    ) -> None:
        super().__init__(name, draw, ready, cancel)
        self._stand = stand  # waits for the lease

    async def drain(
        self,
        timeout: Duration | None = None,  # noqa: ASYNC109 - it ends the wait, not the work
        to: Heir = None,
        state: State = b"",
        within: Duration = 5.0,
    ) -> bool:
        """Stop the campaign, and drain its term, if there is one, as ``lease.drain()`` does. True if that ended a term."""
        term = self._announce_drain()
        return term is not None and await term.drain(timeout, to, state, within)

    def __aiter__(self) -> AsyncIterator[AsyncTerm]:
        return self

    async def __anext__(self) -> AsyncTerm:
        """End the term before, rest if it was lost, get ready, and wait until we lead."""
        well = await self._end_term()
        try:
            while True:
                await self._sleep(self._rest.after(well=well))
                prepared = self._ready() if self._ready else None
                if inspect.isawaitable(prepared):
                    prepared = await prepared
                try:
                    lease = await self._stand(self._stop)
                except StoreUnavailable as error:
                    log().warning(
                        "the election of %r goes on without us until the store answers: %s", self._name, error
                    )
                    well = False
                    continue
                term = AsyncTerm(lease, prepared)
                if self._begin(term):
                    return term
        except Cancelled:
            if not self.stopped:
                raise
        raise StopAsyncIteration

    async def _sleep(self, seconds: float) -> None:
        """Sleep that long. Raise `Cancelled` once the campaign is stopped or cancelled."""
        over, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(over.set)

        with watched(self._cancels, over, wake), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await over.wait()

    async def _end_term(self) -> bool:
        """End a term that the loop didn't; return whether it went well."""
        term = self._take_term()
        if term is None:
            return True
        well = term.went_well
        if term.is_leader:
            try:
                await term.resign()
            except LessorError as error:
                log().warning("the term could not be given back, and ends by itself: %s", error)
        return well


async def lead(campaign: AsyncCampaign, work: Callable[[AsyncTerm], Awaitable[Result]]) -> Result:
    """Run the work in each term, until it has returned while leading, or after it resigned; return what it returned."""
    async for term in campaign:
        async with term:
            result = await work(term)
            if term.went_well:
                return result
        log().info("no longer the leader of %r, and the work has stopped", term.resource)
    raise Cancelled(f"the campaign for {campaign.name!r} was stopped")


class AsyncObservation:
    """A stream of leaders, for an ``async for``: first who leads now, then each change; None for nobody."""

    def __init__(self, client: Looker, name: str) -> None:
        self._client = client
        self._name = name
        self._leaders = Leaders(name)
        self._watch = client.watch(name)
        self._begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Leader | None:
        """Wait for the next change."""
        if not self._begun:
            await self._watch  # before we look, so that no change falls in between
            self._leaders.begin(Leader.of(await self._client.get(self._name)))
            self._begun = True
            return self._leaders.leader
        while not self._leaders.changes(await self._watch.__anext__()):
            pass
        return self._leaders.leader

    def close(self) -> None:
        """End the stream."""
        self._watch.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
