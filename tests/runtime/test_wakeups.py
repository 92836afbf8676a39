"""Many who wait are all called, and those who call close no descriptors but their own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lessor import AsyncClient
from lessor.testing.child import Child
from lessor.testing.conformance.base import PATIENCE, Thread, pass_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor import Client
    from lessor.client.lease_async import AsyncLease

MANY = 100
AT_ONCE = 1.0
"""Seconds that are far more than to be called takes, and less than it would take to come by oneself."""


def wait_for_many(url: str, free_all: Callable[[], object]) -> float:
    """Have many tasks of one client wait, free all at once, and return for how long the last one waited from then on."""

    async def main() -> float:
        async with AsyncClient(url) as client, asyncio.timeout(PATIENCE):

            async def acquire(name: str) -> AsyncLease:
                return await client.acquire(name, ttl=60)

            tasks = [asyncio.create_task(acquire(f"r{n}")) for n in range(MANY)]
            while sum(callable(bell) for bell in list(client._engine.waiters._bells.values())) < MANY:  # noqa: ASYNC110 - a bounded look
                await asyncio.sleep(0.001)
            started = time.monotonic()
            freeing = asyncio.create_task(asyncio.to_thread(free_all))
            leases = await asyncio.gather(*tasks)
            took = time.monotonic() - started
            assert len({lease.id for lease in leases}) == MANY
            await freeing
            return took

    return asyncio.run(main())


@pytest.fixture
def _nobody_comes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lessor.core.claim.REFRESH_NS", 60 * 10**9)


@pytest.mark.usefixtures("_nobody_comes_by_itself")
def test_many_waiters_of_one_client_are_all_called_when_another_is_closed(url: str, other: Client) -> None:
    for n in range(MANY):
        other.acquire(f"r{n}", ttl=60)
    assert wait_for_many(url, other.close) < AT_ONCE


@pytest.mark.usefixtures("_nobody_comes_by_itself")
def test_many_waiters_are_all_called_when_another_process_ends(sqlite_url: str) -> None:
    with Child(sqlite_url) as child:
        for n in range(MANY):
            child.ask("acquire", resource=f"r{n}", ttl=60)
        assert wait_for_many(sqlite_url, child.end) < 2 * AT_ONCE


@pytest.mark.usefixtures("_nobody_comes_by_itself")
@pytest.mark.parametrize("how", ["alone", "together"])
def test_places_that_were_made_before_anything_was_asked_are_called_too(url: str, other: Client, how: str) -> None:
    theirs = other.acquire("r", ttl=60)

    async def main() -> None:
        async with AsyncClient(url) as client, asyncio.timeout(PATIENCE):
            (place,) = places = client.places(["r"], ttl=60)
            waiting = asyncio.ensure_future(place.wait() if how == "alone" else client.wait_any(places))
            while not await client.contenders("r"):  # noqa: ASYNC110 - a bounded look
                await asyncio.sleep(0.01)
            await asyncio.to_thread(theirs.release)
            assert await waiting is not None

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_nobody_elses_descriptor_is_closed_while_the_dead_are_swept(
    sqlite_url: str, open_client: Callable[..., Client]
) -> None:
    client, sweeper = open_client(sqlite_url), open_client(sqlite_url)
    folder = sqlite_url.removeprefix("sqlite:///") + "-wake"
    ended = threading.Event()

    def acquire_and_release(name: str) -> int:
        rounds = 0
        while not ended.is_set():
            client.acquire(name, ttl=5, wait=5).release()
            rounds += 1
        return rounds

    def use_descriptors() -> int:
        rounds = 0
        while not ended.is_set():
            descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
            time.sleep(0.0005)
            for descriptor in descriptors:
                os.close(descriptor)
            rounds += 1
        return rounds

    def leave_the_dead_and_sweep() -> int:
        rounds = 0
        while not ended.is_set():
            watch = sweeper.watch("")
            mailbox = watch._subscription._mailbox  # type: ignore[union-attr]
            os.unlink(os.path.join(folder, mailbox.name))  # swept: who writes to it finds nothing
            ended.wait(0.02)
            watch.close()
            rounds += 1
        return rounds

    work: list[Callable[[], int]] = [lambda n=n: acquire_and_release(f"r{n}") for n in range(4)]  # type: ignore[misc]
    threads = [Thread(each) for each in [*work, use_descriptors, leave_the_dead_and_sweep]]
    pass_time(2)
    ended.set()
    assert all(thread.result() > 0 for thread in threads)
