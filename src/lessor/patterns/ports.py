"""What the patterns need of a client and of a lease, and no more: the clients stand above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self

    from lessor.core.view import Record
    from lessor.patterns.opening import Opening
    from lessor.runtime.host import Host


class Held(Protocol):
    """A lease of either face."""

    token: int

    @property
    def resource(self) -> str: ...
    @property
    def held(self) -> bool: ...
    def check(self) -> None: ...
    def on_lost(self, callback: Callable[[Any], object]) -> None: ...


class HeldByThread(Held, Protocol):
    """A lease for a ``with``."""

    def release(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class HeldByTask(Held, Protocol):
    """A lease for an ``async with``."""

    async def release(self) -> bool: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


H = TypeVar("H", bound=Held)
L = TypeVar("L", bound=HeldByThread)
A = TypeVar("A", bound=HeldByTask)


class Leases(Protocol[L]):
    """A client for threads."""

    @property
    def _host(self) -> Host: ...
    @property
    def acquire(self) -> Callable[..., L]: ...
    @property
    def try_acquire(self) -> Callable[..., L | None]: ...
    @property
    def try_each(self) -> Callable[..., Mapping[str, L]]: ...
    @property
    def places(self) -> Callable[..., Sequence[Any]]: ...
    @property
    def wait_any(self) -> Callable[..., L | None]: ...
    def get_each(self, resources: Iterable[str]) -> Sequence[Record | None]: ...
    def release_each(self, leases: Iterable[L]) -> None: ...
    @property
    def drop(self) -> Callable[[L], None]: ...


class AsyncLeases(Protocol[A]):
    """A client for asyncio."""

    @property
    def _host(self) -> Host: ...
    @property
    def acquire(self) -> Callable[..., Opening[A]]: ...
    @property
    def try_acquire(self) -> Callable[..., Awaitable[A | None]]: ...
    @property
    def try_each(self) -> Callable[..., Awaitable[Mapping[str, A]]]: ...
    @property
    def places(self) -> Callable[..., Sequence[Any]]: ...
    @property
    def wait_any(self) -> Callable[..., Awaitable[A | None]]: ...
    async def get_each(self, resources: Iterable[str]) -> Sequence[Record | None]: ...
    async def release_each(self, leases: Iterable[A]) -> None: ...
    @property
    def drop(self) -> Callable[[A], None]: ...
