"""A program in which there is no free descriptor, or no thread to be had, from the k-th one on: for each k in a process of its own.

It prints a line of JSON for each: at which stage it failed, how, and what was left behind.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import json
import os
import resource
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import lessor
from lessor import AsyncClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TTL = 60.0
TIMEOUT = 20.0
FAILING_NS = 10**8
"""For so long something is tried that fails at once."""
PATIENCE = 20.0
"""Less than the TTL: what is left for that long is left behind."""


@contextlib.contextmanager
def few_descriptors(number: int) -> Iterator[None]:
    """Let so many more be opened, and none beyond."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    fillers = []
    with contextlib.suppress(OSError):
        while True:
            fillers.append(os.open("/dev/null", os.O_RDONLY))
    for _ in range(number):
        os.close(fillers.pop())
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


@contextlib.contextmanager
def few_threads(number: int) -> Iterator[None]:
    """Let so many more be started, and none beyond."""
    start, left = _thread.start_new_thread, [number]

    def limited(*arguments: Any) -> int:
        if left[0] <= 0:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        return start(*arguments)

    _thread.start_new_thread = threading._start_new_thread = limited  # type: ignore[attr-defined]
    try:
        yield
    finally:
        _thread.start_new_thread = threading._start_new_thread = start  # type: ignore[attr-defined]


LIMITS = {"descriptors": few_descriptors, "threads": few_threads}


def until(happened: Callable[[], bool]) -> bool:
    give_up = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.002)
    return True


def failed(stage: str, error: BaseException) -> dict[str, Any]:
    known = isinstance(error, lessor.StoreUnavailable)
    return {"stage": stage, "error": "StoreUnavailable" if known else type(error).__name__, "text": str(error)}


def for_threads(url: str, name: str) -> dict[str, Any]:
    try:
        client = lessor.Client(url, timeout=TIMEOUT)
    except BaseException as error:  # noqa: BLE001 - that is the question
        return failed("open", error)
    client._engine.patience_ns = FAILING_NS
    try:
        lease = client.acquire(name, ttl=TTL, wait=0)
    except BaseException as error:  # noqa: BLE001
        client.close()
        return failed("acquire", error)
    sent = lease._sent_ns
    client._engine.keeper.renew_soon(lease)
    result = {"stage": "held", "renewed": until(lambda: lease._sent_ns > sent or not lease.held) and lease.held}
    client.close()
    return result


async def for_tasks(url: str, name: str) -> dict[str, Any]:
    try:
        client = AsyncClient(url, timeout=TIMEOUT)
    except BaseException as error:  # noqa: BLE001
        return failed("open", error)
    client._engine.patience_ns = FAILING_NS
    try:
        lease = await client.acquire(name, ttl=TTL, wait=0)
    except BaseException as error:  # noqa: BLE001
        await client.close()
        return failed("acquire", error)
    sent = lease._sent_ns
    client._engine.keeper.renew_soon(lease)
    give_up = time.monotonic() + PATIENCE
    while lease._sent_ns == sent and lease.held and time.monotonic() < give_up:  # noqa: ASYNC110 - a keeper's thread tells nobody
        await asyncio.sleep(0.002)
    result = {"stage": "held", "renewed": lease._sent_ns > sent and lease.held}
    await client.close()
    return result


def tell(url: str, face: str, kind: str, number: int) -> dict[str, Any]:
    """Try it, and then look from outside at what is left."""
    name = f"job/{number}"
    if face == "async":
        loop = asyncio.new_event_loop()  # what it needs itself is there
        with LIMITS[kind](number):
            result = loop.run_until_complete(for_tasks(url, name))
    else:
        with LIMITS[kind](number):
            result = for_threads(url, name)
    with lessor.Client(url) as other:
        result["left"] = other.get(name) is not None
    return {"k": number, **result}


def main(url: str, face: str, kind: str, most: str) -> None:
    """Do it for all at once, each with a resource of its own."""
    children = []
    for number in range(int(most)):
        child = os.fork()
        if child == 0:
            try:
                line = json.dumps(tell(url, face, kind, number)) + "\n"
                os.write(1, line.encode())
            except BaseException:  # noqa: BLE001 - a child never goes on as its parent
                traceback.print_exc()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
