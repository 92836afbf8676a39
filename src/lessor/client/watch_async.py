"""The stream of events for asyncio: a thread waits, and the loop goes on."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from lessor.client.errand import Errand
from lessor.patterns.opening import named

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Self

    from lessor.core.view import Event
    from lessor.runtime.watch import Watch

WATCH_POLL = 0.5
"""Seconds after which a watching thread looks whether it is still wanted."""


async def _used() -> None:
    """Never run: a stream that is dropped unused drops this coroutine, and Python warns that it was never awaited."""


class AsyncWatch:
    """Iterate over it with ``async for``; close it when done. Enter or await it first: it tells what happens from then on.

    It can't promise every event: see `gaps`.

    If that is cancelled the stream is closed: nobody was handed what would have to be closed later.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._missed = named("AsyncClient.watch", _used())
        self._opening = Errand(watch.open)
        self._polling = Errand(partial(watch.poll, WATCH_POLL))

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event."""
        await self._opened()
        while (event := self._watch.take()) is None:
            if self._watch.ended:
                self.close()
                raise StopAsyncIteration
            await self._polling.run()
        return event

    @property
    def gaps(self) -> int:
        """How often something may have been missed, as for the `Watch` of a `Client`."""
        return self._watch.gaps

    def close(self) -> None:
        """End the stream."""
        self._missed.close()
        self._watch.close()

    async def _opened(self) -> Self:
        self._missed.close()
        if not self._watch.opened and not self._watch.ended:
            await self._opening.run()
        return self

    async def __aenter__(self) -> Self:
        try:
            return await self._opened()
        except asyncio.CancelledError:
            self.close()  # or the thread that goes on opening it would leave it open
            raise

    async def __aexit__(self, *_: object) -> None:
        self.close()
