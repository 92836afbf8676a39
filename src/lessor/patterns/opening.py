"""What takes a moment to get: awaited for the thing itself, or used in an ``async with`` directly."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from lessor.errors import LessorError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType


class Closing(Protocol):
    """What can be used in an ``async with``, and given back."""

    async def release(self) -> object: ...
    async def __aenter__(self) -> Any: ...
    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


T = TypeVar("T", bound=Closing)


class Opening(Generic[T]):
    """Await it, or use it in an ``async with``."""

    __slots__ = ("_start", "_thing")

    def __init__(self, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._start = start
        self._thing: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._start().__await__()

    async def __aenter__(self) -> T:
        thing = self._thing = await self._start()
        try:
            await thing.__aenter__()
        except BaseException:
            with contextlib.suppress(LessorError):
                await thing.release()
            raise
        return thing

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._thing is not None
        await self._thing.__aexit__(exc_type, exc, traceback)
