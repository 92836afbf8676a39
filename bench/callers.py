"""Many tasks on one event loop, each with a resource of its own: what batching makes of them."""

from __future__ import annotations

import asyncio
from time import perf_counter

from bench.place import folder, url
from bench.progress import rounds
from bench.result import Result
from leasehold import AsyncClient

CALLERS = 64


def run(*, quick: bool) -> Result:
    count, pairs = (3, 512) if quick else (12, 4096)
    return asyncio.run(_run(count, pairs))


async def _run(count: int, pairs: int) -> Result:
    many: list[float] = []
    one: list[float] = []
    with folder() as path:
        async with AsyncClient(url(path)) as client:
            await _rate(client, CALLERS, pairs // 4)
            for _ in rounds("callers", count):
                many.append(await _rate(client, CALLERS, pairs))
                one.append(await _rate(client, 1, pairs // 8))
    result = Result(f"{CALLERS} async callers on distinct resources, SQLite")
    gain = [m / o for m, o in zip(many, one, strict=True)]
    result.ratio("callers_vs_one", f"pairs a second, {CALLERS} callers / 1 caller", gain)
    result.absolute("callers_many", f"{CALLERS} callers", many, "pairs/s", digits=0)
    result.absolute("callers_one", "1 caller", one, "pairs/s", digits=0)
    return result


async def _rate(client: AsyncClient, callers: int, pairs: int) -> float:
    """Return how many acquire + release pairs a second they make together."""

    async def work(name: str) -> None:
        for _ in range(pairs // callers):
            lease = await client.acquire(name, ttl=30)
            await lease.release()

    start = perf_counter()
    await asyncio.gather(*(work(f"bench/callers/{number}") for number in range(callers)))
    return pairs // callers * callers / (perf_counter() - start)
