"""A lease lasts as long as the program has it: cases in which nothing but an indirect reference is left."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from lessor import AsyncClient, Client

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0


def look_after_deserted(client: Client | AsyncClient) -> None:
    """Do what the watchdog does within half a second."""
    gc.collect()
    client._engine.keeper._look_after_deserted()


@pytest.mark.parametrize(
    "enter",
    [
        lambda client: client.acquire("x").__enter__(),
        lambda client: client.acquire_all(["x"]).__enter__()["x"],
        lambda client: client.session().__enter__().lease,
        lambda client: client.session().__enter__().acquire("x"),
    ],
    ids=["acquire", "acquire_all", "session", "session.acquire"],
)
def test_a_lease_entered_by_hand_is_held_while_it_is_kept(enter: Callable[[Client], Any]) -> None:
    with Client("memory://") as client:
        lease = enter(client)
        look_after_deserted(client)
        lease.check()
        lease.release()


@pytest.mark.parametrize("what", ["acquire", "acquire_all", "session"])
def test_an_async_lease_entered_by_hand_is_held_while_it_is_kept(what: str) -> None:
    async def main() -> None:
        async with AsyncClient("memory://") as client:
            if what == "acquire":
                lease = await client.acquire("x").__aenter__()
            elif what == "acquire_all":
                lease = (await client.acquire_all(["x"]).__aenter__())["x"]
            else:
                lease = (await client.session().__aenter__()).lease
            look_after_deserted(client)
            lease.check()
            await lease.__aexit__(None, None, None)

    asyncio.run(main())


def test_a_task_that_waits_for_the_loss_is_kept_with_its_lease() -> None:
    async def main() -> None:
        async with AsyncClient("memory://") as client:
            waits, told = asyncio.Event(), asyncio.Event()

            async def hold() -> None:
                lease = await client.acquire("x")
                waits.set()
                await lease.lost.wait()
                told.set()

            asyncio.create_task(hold())  # noqa: RUF006 - nothing but the wait itself keeps it
            await waits.wait()
            look_after_deserted(client)
            assert await client.get("x") is not None
            await client.revoke("x", force=True)
            async with asyncio.timeout(PATIENCE):
                await told.wait()
            assert not client._engine.waiting

    asyncio.run(main())
