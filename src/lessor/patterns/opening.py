"""What takes a moment to get: awaited for the thing itself, or used in an ``async with`` directly."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from lessor.errors import LessorError
from lessor.runtime.blocks import AsyncExit, Leaving, block_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType


class Closing(Protocol):
    """What can be used in an ``async with``, and given back."""

    async def release(self) -> object: ...
    async def _enter_own(self, block: object) -> Any: ...
    async def __aenter__(self) -> Any: ...
    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


T = TypeVar("T", bound=Closing)
R = TypeVar("R")


def named(called: str, coroutine: Coroutine[Any, Any, R]) -> Coroutine[Any, Any, R]:
    """Have Python's warning about a coroutine that was never awaited name what was called."""
    cast(Any, coroutine).__qualname__ = called
    return coroutine


class Opening(Coroutine[Any, Any, T]):
    """Await it, or use it in an ``async with``, once. It is a coroutine, and as good as one for ``asyncio.create_task``.

    One that is never awaited nor entered is a mistake, which Python tells of as it does for any coroutine: by a
    `RuntimeWarning` that names ``called``.
    """

    __slots__ = ("__weakref__", "_coroutine", "_thing")

    def __init__(self, called: str, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = named(called, coroutine)
        self._thing: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __aenter__(self) -> Coroutine[Any, Any, T]:
        return self._enter(block_of(self))

    async def _enter(self, block: object) -> T:
        thing = self._thing = await self._coroutine
        try:
            await thing._enter_own(block)
        except BaseException:
            with contextlib.suppress(LessorError):
                await thing.release()
            raise
        return thing

    if TYPE_CHECKING:

        async def __aexit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> None: ...
    else:
        __aexit__ = Leaving(AsyncExit)

    async def _exit(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._thing is not None
        await self._thing.__aexit__(exc_type, exc, traceback)
