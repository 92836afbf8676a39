"""Re-entrancy, by the lease itself: who has the lease may enter it again, and the last one out gives it back.

Nothing is asked for: it is the same lease, with the same token. A thread or process that merely asks for the resource
by name again is refused or waits, as anybody is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any


class ByThread(Protocol):
    """A lease that counts who is inside."""

    def _join(self) -> None: ...
    def _leave(self, exc_type: type[BaseException] | None) -> None: ...


class ByTask(Protocol):
    """A lease that counts who is inside, and cancels each of them when it is lost."""

    def _join(self) -> Any: ...
    async def _leave(self, body: Any, exc_type: type[BaseException] | None) -> None: ...


L = TypeVar("L", bound=ByThread)
A = TypeVar("A", bound=ByTask)


class Again(Generic[L]):
    """One more ``with`` on a lease."""

    __slots__ = ("_lease",)

    def __init__(self, lease: L) -> None:
        self._lease = lease

    def __enter__(self) -> L:
        self._lease._join()
        return self._lease

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lease._leave(exc_type)


class AsyncAgain(Generic[A]):
    """One more ``async with`` on a lease, in any task: it is cancelled too when the lease is lost."""

    __slots__ = ("_body", "_lease")

    def __init__(self, lease: A) -> None:
        self._lease = lease
        self._body: Any = None

    async def __aenter__(self) -> A:
        self._body = self._lease._join()
        return self._lease

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._lease._leave(self._body, exc_type)
