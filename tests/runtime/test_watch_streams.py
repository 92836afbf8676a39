"""Streams of events: left and gone on with, closed under a reader, dropped, and asked for with nonsense."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lessor import AsyncClient, Client, InvalidResource
from lessor.core.holder import State
from lessor.core.ops import EventKind
from lessor.testing.conformance.base import PATIENCE, Thread, until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lessor.client.watch_async import AsyncWatch
    from lessor.core.view import Event
    from lessor.runtime.watch import Watch

GRANTED, RELEASED = EventKind.GRANTED, EventKind.RELEASED


def test_an_async_for_left_after_one_of_several_events_goes_on_with_the_next(url: str) -> None:
    async def main() -> None:
        seen: list[tuple[EventKind, str]] = []
        async with AsyncClient(url) as client, asyncio.timeout(PATIENCE):
            stream = await client.watch()
            for n in range(3):
                await (await client.acquire(f"k{n}")).release()
            for _ in range(6):
                async for event in stream:
                    seen.append((event.kind, event.resource))
                    break
            stream.close()
        assert seen == [(kind, f"k{n}") for n in range(3) for kind in (GRANTED, RELEASED)]

    asyncio.run(main())


def test_an_async_for_that_is_cancelled_loses_no_event(url: str, other: Client) -> None:
    async def main() -> None:
        async with AsyncClient(url) as client, asyncio.timeout(PATIENCE), client.watch() as stream:
            waiting = asyncio.ensure_future(anext(stream))
            while stream._watch._polling.acquire(blocking=False):
                stream._watch._polling.release()
                await asyncio.sleep(0.001)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.to_thread(lambda: other.acquire("k").release())
            assert [(await anext(stream)).kind for _ in range(2)] == [GRANTED, RELEASED]

    asyncio.run(main())


def read(stream: Watch, first: threading.Event) -> list[Event]:
    events = []
    for event in stream:
        first.set()
        events.append(event)
    return events


def test_closing_the_client_ends_the_iteration_of_a_thread(url: str) -> None:
    for _ in range(20):
        client = Client(url)
        first = threading.Event()

        thread = Thread(partial(read, client.watch(), first))
        for n in range(3):
            client.acquire(f"k{n}", ttl=5).release()
        assert first.wait(PATIENCE)
        client.close()
        assert 1 <= len(thread.result(60)) <= 6


def test_a_release_between_the_events_and_the_look_is_told_as_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = client.watch()
    lease = client.acquire("x", ttl=0.2)
    read: Callable[..., Any] = client._engine.store.read

    def released_first(*args: Any, **how: Any) -> Any:
        if lease.state is not State.LOST:
            lease.release()
        return read(*args, **how)

    monkeypatch.setattr(client._engine.store, "read", released_first)
    events = Thread(lambda: [next(stream).kind for _ in range(2)])
    assert events.result() == [GRANTED, RELEASED]
    stream.close()


def test_watches_that_were_dropped_end_with_the_client(sqlite_url: str) -> None:
    before = descriptors()
    client = Client(sqlite_url)

    def peek() -> None:
        stream = client.watch("p")
        client.acquire("p", ttl=5).release()
        assert next(stream).kind is GRANTED

    for _ in range(10):
        peek()
    gc.collect()
    client.close()
    until(lambda: descriptors() <= before, "closing all descriptors", 5)
    assert os.listdir(sqlite_url.removeprefix("sqlite:///") + "-wake") == []


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("prefix", [5, None, b"x", "\ud800"])
def test_a_prefix_that_is_none_is_refused_and_poisons_nothing(client: Client, prefix: Any) -> None:
    with client.watch() as stream:
        with pytest.raises(InvalidResource):
            client.watch(prefix)
        with pytest.raises(InvalidResource):
            client.list(prefix)
        assert len(client._engine.watches) == 1
        client.acquire("k", ttl=30).release()
        assert [next(stream).kind for _ in range(2)] == [GRANTED, RELEASED]
    assert client.list() == []
    with client.watch("k") as fresh:
        client.acquire("k", ttl=30).release()
        assert next(fresh).kind is GRANTED


async def entered(stream: AsyncWatch) -> None:
    async with stream:
        pytest.fail("it was not cancelled")


async def awaited(stream: AsyncWatch) -> None:
    await stream


@pytest.mark.parametrize("way", [entered, awaited])
def test_a_watch_that_is_cancelled_while_it_opens_leaves_nothing_behind(
    url: str, way: Callable[[AsyncWatch], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        async with AsyncClient(url) as client:
            engine, may_go = client._engine, threading.Event()
            subscribe = engine.store.subscribe

            def slowly(prefix: str | None = None) -> Any:
                may_go.wait(PATIENCE)
                return subscribe(prefix)

            engine.store.subscribe = slowly  # type: ignore[method-assign]
            stream = client.watch()
            opening = asyncio.ensure_future(way(stream))
            await asyncio.sleep(0.05)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            may_go.set()
            await asyncio.to_thread(until, lambda: stream._watch.opened, "the thread's end")
            await asyncio.to_thread(until, lambda: not engine.watches, "the end of the watch")

    asyncio.run(main())
