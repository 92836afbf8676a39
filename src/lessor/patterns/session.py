"""A session: one lease whose renewal keeps any number of others.

One loss loses them all, at once. It doesn't make them one: each has its own token, each can be released or revoked by
itself, and what is written under it is to be guarded by its own token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from lessor.patterns.ports import A, H, L
from lessor.patterns.several import acquire_all, acquire_all_async
from lessor.runtime.blocks import AsyncExit, Exit, Leaving, block_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping
    from types import TracebackType
    from typing import Any, Self, Unpack

    from lessor.core.timing import Duration
    from lessor.patterns.opening import Opening
    from lessor.patterns.options import SessionOptions
    from lessor.patterns.ports import AsyncLeases, Leases
    from lessor.patterns.several import AsyncBundle, Bundle
    from lessor.runtime.host import Host

PREFIX = "session/"
"""What the names of sessions start with."""


def new_name(host: Host) -> str:
    """Return a name that no other session has."""
    return PREFIX + host.entropy(8).hex()


class BaseSession(Generic[H]):
    """What both sessions have in common."""

    def __init__(self, client: Any, lease: Any) -> None:
        self._client = client
        self._lease = lease

    @property
    def lease(self) -> H:
        """The session's own lease, which all others are children of."""
        lease: H = self._lease
        return lease

    @property
    def leases(self) -> tuple[H, ...]:
        """The leases that this session holds, without those that were lost or released."""
        children: list[Any] = list(self._lease._children or ())
        return tuple(child for child in children if child.held)

    @property
    def held(self) -> bool:
        """Whether it is safely ours now."""
        return bool(self._lease.held)

    def check(self) -> None:
        """Raise `LeaseLost` unless it is safely ours now. Reads the clock, and does no I/O."""
        self._lease.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._lease.resource!r} with {len(self.leases)} leases>"


class Session(BaseSession[L], Generic[L]):
    """Leases that are renewed together and end together. Use it in a ``with``, or call ``release()``."""

    def __init__(self, client: Leases[L], lease: L) -> None:
        super().__init__(client, lease)

    def acquire(self, resource: str, wait: Duration | None = None, **options: Unpack[SessionOptions]) -> L:
        """Wait for the resource and return the lease on it, which lasts as long as the session does."""
        lease: L = self._client.acquire(resource, None, wait, parent=self._lease, **options)
        return lease

    def try_acquire(self, resource: str, **options: Unpack[SessionOptions]) -> L | None:
        """Return the lease if the resource is free now, else None."""
        lease: L | None = self._client.try_acquire(resource, None, parent=self._lease, **options)
        return lease

    def try_each(self, resources: Iterable[str], **options: Unpack[SessionOptions]) -> Mapping[str, L]:
        """Ask for several in one batch, and return the leases on those that are free now, by name."""
        leases: Mapping[str, L] = self._client.try_each(resources, None, parent=self._lease, **options)
        return leases

    def acquire_all(
        self, resources: Iterable[str], wait: Duration | None = None, **options: Unpack[SessionOptions]
    ) -> Bundle[L]:
        """Acquire several, all or none."""
        client: Leases[L] = self._client
        return acquire_all(client, resources, None, wait, {"parent": self._lease, **options})

    def release(self) -> bool:
        """Give it back, and in the same step all that is held under it."""
        return bool(self._lease.release())

    def __enter__(self) -> Self:
        self._lease.check()
        self._lease._occupy(block_of(self))
        return self

    if TYPE_CHECKING:

        def __exit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> None: ...
    else:
        __exit__ = Leaving(Exit)

    def _exit(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lease._exit(exc_type, exc, traceback)


class AsyncSession(BaseSession[A], Generic[A]):
    """Leases that are renewed together and end together. Use it in an ``async with``, or await ``release()``.

    When the session is lost, the body of its ``async with`` is cancelled.
    """

    def __init__(self, client: AsyncLeases[A], lease: A) -> None:
        super().__init__(client, lease)

    def acquire(self, resource: str, wait: Duration | None = None, **options: Unpack[SessionOptions]) -> Opening[A]:
        """Wait for the resource and return the lease on it, which lasts as long as the session does.

        Await it, or use it in an ``async with``.
        """
        acquisition: Opening[A] = self._client.acquire(resource, None, wait, parent=self._lease, **options)
        return acquisition

    async def try_acquire(self, resource: str, **options: Unpack[SessionOptions]) -> A | None:
        """Return the lease if the resource is free now, else None."""
        lease: A | None = await self._client.try_acquire(resource, None, parent=self._lease, **options)
        return lease

    async def try_each(self, resources: Iterable[str], **options: Unpack[SessionOptions]) -> Mapping[str, A]:
        """Ask for several in one batch, and return the leases on those that are free now, by name."""
        leases: Mapping[str, A] = await self._client.try_each(resources, None, parent=self._lease, **options)
        return leases

    def acquire_all(
        self, resources: Iterable[str], wait: Duration | None = None, **options: Unpack[SessionOptions]
    ) -> Opening[AsyncBundle[A]]:
        """Acquire several, all or none."""
        client: AsyncLeases[A] = self._client
        return acquire_all_async(client, resources, None, wait, {"parent": self._lease, **options})

    async def release(self) -> bool:
        """Give it back, and in the same step all that is held under it."""
        return bool(await self._lease.release())

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        return self._enter_own(block_of(self))

    async def _enter_own(self, block: object) -> Self:
        await self._lease._enter_own(block)
        return self

    if TYPE_CHECKING:

        async def __aexit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> None: ...
    else:
        __aexit__ = Leaving(AsyncExit)

    async def _exit(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._lease._exit(exc_type, exc, traceback)
