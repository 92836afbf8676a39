"""Several resources, all or none.

Not a transaction: each is a lease of its own, with its own token, and each can be lost by itself. Whoever holds some of
them by other means, and waits for others in another order, can still wait in a circle: then ``wait`` is what ends it.

All ask in the order of the names, and keep nothing that comes after what they wait for. So of those that wait for each
other, the one with the highest name waits for nobody among them, and there is no circle.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Generic

from lessor.errors import ConfigError
from lessor.patterns.opening import Opening
from lessor.patterns.patience import Patience
from lessor.patterns.ports import A, L
from lessor.runtime.blocks import AsyncExit, Exit, Leaving, block_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import TracebackType
    from typing import Any, Self

    from lessor.core.timing import Duration, Timing
    from lessor.patterns.ports import AsyncLeases, Held, Leases


class Order:
    """Which are held, and what to do about the others. Pure: it is told what has happened."""

    def __init__(self, resources: Iterable[str]) -> None:
        if isinstance(resources, str):
            raise ConfigError("several resources are a list of names, not one name")
        self._names = sorted(resources)
        if not self._names or len(set(self._names)) != len(self._names):
            raise ConfigError("several resources are one or more different names")
        self.held: dict[str, Any] = {}

    @property
    def missing(self) -> list[str]:
        """The names to ask for, in their order."""
        return [name for name in self._names if name not in self.held]

    def give_back(self) -> list[Any]:
        """Return what may not be kept while we wait for the first that is missing: all that comes after it."""
        first = self.missing[0]
        beyond = [name for name in self._names if name > first and name in self.held]
        return [self.held.pop(name) for name in beyond]

    def all(self) -> dict[str, Any]:
        """Return all leases by name, in order, if none was lost while we waited for others."""
        for lease in self.held.values():
            lease.check()
        return {name: self.held[name] for name in self._names}


class BaseBundle:
    """What both bundles have in common."""

    def __init__(self, client: Any, leases: Mapping[str, Held]) -> None:
        self._client = client
        self._leases: Mapping[str, Any] = leases

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing tokens, by name."""
        return {name: lease.token for name, lease in self._leases.items()}

    @property
    def held(self) -> bool:
        """Whether all of them are safely ours now."""
        return all(lease.held for lease in self._leases.values())

    def check(self) -> None:
        """Raise `LeaseLost` unless all of them are safely ours now. Reads the clock, and does no I/O."""
        for lease in self._leases.values():
            lease.check()

    def on_lost(self, callback: Callable[[Any], object]) -> None:
        """Have it called, with the lease, for each that is lost. Not when they are released."""
        for lease in self._leases.values():
            lease.on_lost(callback)

    def _idle(self) -> list[Any]:
        """Return those without counted work in flight, which alone are given back at the end of a ``with``."""
        return [lease for lease in self._leases.values() if not lease._is_at_work()]

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, resource: object) -> bool:
        return resource in self._leases

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}, {'held' if self.held else 'not all of them held'}>"


class Bundle(BaseBundle, Generic[L]):
    """Several leases that were acquired together. ``bundle["a"]`` is one of them; a ``with`` gives all of them back.

    Each can be lost by itself: ``check()`` looks at all of them.
    """

    def __init__(self, client: Leases[L], leases: Mapping[str, L]) -> None:
        super().__init__(client, leases)
        self._stack = contextlib.ExitStack()

    def __getitem__(self, resource: str) -> L:
        lease: L = self._leases[resource]
        return lease

    def release(self) -> None:
        """Give all of them back, in one batch. What gets no answer is given back in the background."""
        self._client.release_each(self._leases.values())

    def _release_idle(self) -> None:
        self._client.release_each(self._idle())

    def __enter__(self) -> Self:
        block = block_of(self)
        self.check()
        with contextlib.ExitStack() as entered:  # where one can't be entered, the others are left again
            for lease in self._leases.values():
                lease._occupy(block)
                entered.push(lease._exit)
            entered.callback(self._release_idle)  # before they are left one by one, which then costs nothing
            self._stack = entered.pop_all()
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
        self._stack.__exit__(exc_type, exc, traceback)


class AsyncBundle(BaseBundle, Generic[A]):
    """Several leases that were acquired together. ``bundle["a"]`` is one of them; an ``async with`` gives all back.

    Each can be lost by itself: the body of the ``async with`` is cancelled when one is.
    """

    def __init__(self, client: AsyncLeases[A], leases: Mapping[str, A]) -> None:
        super().__init__(client, leases)
        self._stack = contextlib.AsyncExitStack()

    def __getitem__(self, resource: str) -> A:
        lease: A = self._leases[resource]
        return lease

    async def release(self) -> None:
        """Give all of them back, in one batch. What gets no answer is given back in the background."""
        await self._client.release_each(self._leases.values())

    async def _release_idle(self) -> None:
        await self._client.release_each(self._idle())

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        return self._enter_own(block_of(self))

    async def _enter_own(self, block: object) -> Self:
        self.check()
        async with contextlib.AsyncExitStack() as entered:  # where one can't be entered, the others are left again
            for lease in self._leases.values():
                await lease._enter_own(block)
                entered.push_async_exit(lease._exit)
            entered.push_async_callback(self._release_idle)  # before they are left one by one, which then costs nothing
            self._stack = entered.pop_all()
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
        await self._stack.__aexit__(exc_type, exc, traceback)


def acquire_all(
    client: Leases[L],
    resources: Iterable[str],
    ttl: Duration | Timing | None,
    wait: Duration | None,
    options: Mapping[str, Any],
) -> Bundle[L]:
    """Take all that are free in one batch; wait for the first that isn't, in the order of the names; and so on."""
    order, patience = Order(resources), Patience(wait, client._host.clock)
    try:
        while missing := order.missing:
            order.held |= client.try_each(missing, ttl, **options)
            if missing := order.missing:
                client.release_each(order.give_back())
                order.held[missing[0]] = client.acquire(missing[0], ttl, patience.left(), **options)
        return Bundle(client, order.all())
    except BaseException:
        client.release_each(order.held.values())
        raise


def acquire_all_async(
    client: AsyncLeases[A],
    resources: Iterable[str],
    ttl: Duration | Timing | None,
    wait: Duration | None,
    options: Mapping[str, Any],
) -> Opening[AsyncBundle[A]]:
    """Do so for tasks."""
    order = Order(resources)

    async def start() -> AsyncBundle[A]:
        patience = Patience(wait, client._host.clock)
        try:
            while missing := order.missing:
                order.held |= await client.try_each(missing, ttl, **options)
                if missing := order.missing:
                    await client.release_each(order.give_back())
                    order.held[missing[0]] = await client.acquire(missing[0], ttl, patience.left(), **options)
            return AsyncBundle(client, order.all())
        except BaseException:
            await client.release_each(order.held.values())
            raise

    return Opening("AsyncClient.acquire_all", start())
