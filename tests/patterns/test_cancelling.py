"""A pattern that is cancelled, whenever that comes, leaves nothing behind: no lease, no place in a queue."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from lessor import AsyncClient, Client, LeaseLost
from lessor.testing.conformance.base import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROUNDS = 60
NAMES = ["pool/0", "pool/1", "pool/gate"]


async def semaphore(client: AsyncClient) -> None:
    async with client.semaphore("pool", 2).acquire(ttl=10):
        await asyncio.sleep(0)


async def several(client: AsyncClient) -> None:
    async with client.acquire_all(["pool/1", "pool/0"], ttl=10):
        await asyncio.sleep(0)


async def session(client: AsyncClient) -> None:
    async with client.session(ttl=10) as session:
        await session.acquire_all(["pool/1", "pool/0"])
        await asyncio.sleep(0)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("work", [semaphore, several, session])
def test_at_random_moments(url: str, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
    choice = random.Random(1)

    async def one(client: AsyncClient, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await work(client)
        except TimeoutError:
            pass

    async def main() -> None:
        async with AsyncClient(url) as client:
            for _ in range(ROUNDS):
                await asyncio.gather(*(one(client, choice.random() * 0.03) for _ in range(5)))
            with Client(url) as look:
                await asyncio.to_thread(until, lambda: not look.list(), "the end of all leases")
                await asyncio.to_thread(until, lambda: not any(map(look.contenders, NAMES)), "the end of all places")
            assert client._engine.held == {}

    asyncio.run(main())


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_body_inside_again_is_cancelled_by_the_loss_and_not_mistaken_for_another_cancellation(url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url) as client:
            lease = await client.acquire("job", ttl=10)
            seen: list[Any] = []

            async def inside() -> None:
                try:
                    async with lease.again():
                        await asyncio.sleep(30)
                except LeaseLost as lost:
                    seen.append(lost.reason)
                    await asyncio.sleep(0)  # our own cancellation was taken back

            async def cancelled() -> None:
                try:
                    async with lease.again():
                        await asyncio.sleep(30)
                except asyncio.CancelledError:
                    seen.append("cancelled")
                    raise

            tasks = [asyncio.create_task(inside()), asyncio.create_task(inside()), asyncio.create_task(cancelled())]
            await asyncio.sleep(0)
            tasks[2].cancel()
            await asyncio.wait([tasks[2]])
            lease.check()
            await client.revoke("job", force=True)
            await asyncio.wait(tasks, timeout=20)
            assert seen == ["cancelled", "revoked", "revoked"]
            assert [task.cancelled() for task in tasks] == [False, False, True]

    asyncio.run(main())


def test_an_interrupt_while_many_are_asked_for_leaves_nothing(tmp_path: Any) -> None:
    """As a signal's handler would raise it, out of the store's call."""
    url = f"sqlite:///{tmp_path}/leases.db"
    with Client(url) as client:
        store = client._engine.store
        apply = store.apply

        def interrupted(ops: Any, *, timeout: float) -> Any:
            apply(ops, timeout=timeout)
            store.apply = apply  # type: ignore[method-assign]
            raise KeyboardInterrupt

        for ask in (
            lambda: client.try_each(["a", "b", "c"]),
            lambda: client.acquire_all(["a", "b"]),
            lambda: client.wait_any(client.places(["a", "b"])),
            lambda: client.semaphore("pool", 2).acquire(),
        ):
            store.apply = interrupted  # type: ignore[method-assign]
            with pytest.raises(KeyboardInterrupt):
                ask()
            until(lambda: client.list() == [], "nothing left")
            assert client._engine.held == {}
