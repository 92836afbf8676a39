from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import pytest

from lessor import AsyncClient, AsyncSession
from lessor.testing.conformance.base import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

URL = "memory://never-awaited"
FORGOTTEN: dict[str, Callable[[AsyncClient, AsyncSession[Any]], Any]] = {
    "AsyncClient.acquire": lambda client, _: client.acquire("x"),
    "AsyncClient.acquire_all": lambda client, _: client.acquire_all(["x", "y"]),
    "AsyncClient.session": lambda client, _: client.session(30),
    "AsyncSemaphore.acquire": lambda client, _: client.semaphore("pool", 2).acquire(),
    "AsyncClient.watch": lambda client, _: client.watch("x"),
    "AsyncClient.watch of an observation": lambda client, _: client.observe("x"),
    "AsyncClient.acquire of a session": lambda _, session: session.acquire("x"),
    "AsyncClient.acquire_all of a session": lambda _, session: session.acquire_all(["x", "y"]),
    "AsyncClient.enqueue": lambda client, _: client.enqueue("x"),
}


@pytest.mark.parametrize("called", FORGOTTEN)
def test_what_is_never_awaited_is_told_of_as_python_does_for_coroutines(called: str) -> None:
    async def main() -> None:
        async with AsyncClient(URL) as client, client.session(30) as session:
            with pytest.warns(RuntimeWarning) as caught:  # noqa: PT031 - what isn't collected at once is so now
                FORGOTTEN[called](client, session)
                gc.collect()
            assert [str(one.message) for one in caught] == [f"coroutine '{called.partition(' ')[0]}' was never awaited"]
            assert len(await client.list()) == 1, "nothing but the session was asked for"

    asyncio.run(main())


def test_what_is_used_is_not_told_of() -> None:
    async def main() -> None:
        async with AsyncClient(URL) as client:
            async with client.acquire("x"):
                pass
            await (await client.acquire("x")).release()
            async with client.acquire_all(["x", "y"]), client.session(30) as session, session.acquire("z"):
                pass
            async with client.semaphore("pool", 2).acquire():
                pass
            async with client.watch("x"):
                pass
            await client.watch("x")
            client.watch("x").close()
            client.observe("x").close()
            stream = client.watch("x")
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(until, lambda: stream._watch.opened, "the stream")
            async with client.acquire("x"):
                assert (await waiting).resource == "x"
            stream.close()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()


def test_one_that_is_cancelled_before_it_began_is_not_told_of() -> None:
    async def main() -> None:
        async with AsyncClient(URL) as client:
            for wrapped in (asyncio.ensure_future(client.acquire("x")), asyncio.create_task(client.acquire("x"))):
                wrapped.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await wrapped
            assert await client.list() == []

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()


def test_it_can_be_a_task_as_any_coroutine_can() -> None:
    async def main() -> None:
        async with AsyncClient(URL) as client:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(client.acquire(f"x/{number}")) for number in range(3)]
            assert [task.result().resource for task in tasks] == ["x/0", "x/1", "x/2"]
            once = client.acquire("x/3")
            await once
            with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                await once

    asyncio.run(main())


def test_the_warning_says_where_it_was_made() -> None:
    code = (
        "import asyncio\n"
        "from lessor import AsyncClient\n"
        "async def forgets(client):\n"
        "    client.acquire('x')\n"
        "async def main():\n"
        "    async with AsyncClient('memory://') as client:\n"
        "        await forgets(client)\n"
        "asyncio.run(main(), debug=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "RuntimeWarning: coroutine 'AsyncClient.acquire' was never awaited" in done.stderr
    assert "Coroutine created at" in done.stderr
    assert "in forgets" in done.stderr
