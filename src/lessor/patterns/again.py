"""Re-entrancy, by the lease itself: who has the lease may enter it again, and the last one out gives it back.

Nothing is asked for: it is the same lease, with the same token. A thread or process that merely asks for the resource
by name again is refused or waits, as anybody is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from lessor.runtime.blocks import AsyncExit, Exit, Leaving, block_of

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType


class ByThread(Protocol):
    """A lease that counts who is inside."""

    def _join(self, block: object) -> Any: ...
    def _leave(self, visit: Any, exc_type: type[BaseException] | None) -> None: ...


class ByTask(Protocol):
    """A lease that counts who is inside, and cancels each of them when it is lost."""

    def _join(self, block: object) -> tuple[Any, Any]: ...
    async def _leave(self, body: Any, visit: Any, exc_type: type[BaseException] | None) -> None: ...


L = TypeVar("L", bound=ByThread)
A = TypeVar("A", bound=ByTask)


class Again(Generic[L]):
    """One more ``with`` on a lease."""

    def __init__(self, lease: L) -> None:
        self._lease = lease
        self._visit: Any = None

    def __enter__(self) -> L:
        self._visit = self._lease._join(block_of(self))
        return self._lease

    if TYPE_CHECKING:

        def __exit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> None: ...
    else:
        __exit__ = Leaving(Exit)

    def _exit(self, exc_type: type[BaseException] | None, *_: object) -> None:
        self._lease._leave(self._visit, exc_type)


class AsyncAgain(Generic[A]):
    """One more ``async with`` on a lease, in any task: it is cancelled too when the lease is lost."""

    def __init__(self, lease: A) -> None:
        self._lease = lease
        self._inside: tuple[Any, Any] = (None, None)

    def __aenter__(self) -> Coroutine[Any, Any, A]:
        return self._enter(block_of(self))

    async def _enter(self, block: object) -> A:
        self._inside = self._lease._join(block)
        return self._lease

    if TYPE_CHECKING:

        async def __aexit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> None: ...
    else:
        __aexit__ = Leaving(AsyncExit)

    async def _exit(self, exc_type: type[BaseException] | None, *_: object) -> None:
        await self._lease._leave(*self._inside, exc_type)
