"""Forks in a signal handler, at every point of an acquisition: the child never has what its parent asked for.

First at each point in turn, then at random times by a real signal. `make proof` has 2,000 of the latter on each store.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lessor import AsyncClient, Client
from lessor.testing.conformance.base import until
from tests.scale import SCALE, scaled
from tests.storms.forking import Twins
from tests.storms.interrupting import AfterTime, AtPoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

TTL = 30.0
STORM = 2_000
SOME = max(1, round(0.2 / SCALE))
LONGEST = 8e-3
"""Seconds: about as long as an acquisition takes that waits for another one's end."""
FORKED = {"LeaseLost"}


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        client.acquire("first", ttl=TTL).release()  # what the first use opens is open
        yield client


@pytest.fixture
def other(url: str) -> Iterator[Client]:
    with Client(url) as client:
        client.acquire("first", ttl=TTL).release()
        yield client


@pytest.mark.heavy
def test_a_fork_at_each_point_of_an_acquisition_gives_the_child_nothing(client: Client) -> None:
    for n in itertools.count(step=SOME):
        twins = Twins()
        point = AtPoint(n, twins.fork)

        def way_with(name: str = f"r{n}", twins: Twins = twins) -> list[Any]:
            with client.acquire(name, ttl=TTL, wait=TTL) as lease:
                return [lease.id, twins.in_child and lease.held]

        def work(point: AtPoint = point, way: Any = way_with) -> list[Any]:
            found: list[Any] = []
            point.run(lambda: found.extend(way()))
            return found

        mine = twins.run(work)
        told = twins.told()
        if not point.came:
            break
        is_not_held_twice(mine, told)


@pytest.mark.heavy
def test_forks_at_random_times_give_the_child_nothing(client: Client, other: Client) -> None:
    """Half of the acquisitions wait for another client's lease."""
    draw = random.Random(20_26)
    came, wanted = 0, STORM if SCALE >= 1 else scaled(STORM // 10)
    for n in itertools.count():
        if came >= wanted:
            break
        twins, name = Twins(), f"r{n}"
        before = other.acquire(name, ttl=TTL) if n % 2 else None
        end = threading.Thread(target=give_back, args=(before, draw.uniform(0, LONGEST)))
        end.start()
        timer = AfterTime(twins.fork)

        def way_with(name: str = name, twins: Twins = twins) -> list[Any]:
            with client.acquire(name, ttl=TTL, wait=TTL) as lease:
                return [lease.id, twins.in_child and lease.held]

        def work(
            timer: AfterTime = timer, way: Any = way_with, after: float = draw.uniform(5e-6, LONGEST)
        ) -> list[Any]:
            found: list[Any] = []
            timer.run(lambda: found.extend(way()), after)
            return found

        mine = twins.run(work)
        timer.close()
        is_not_held_twice(mine, twins.told())
        came += timer.came
        end.join()


@pytest.mark.long
def test_a_fork_while_tasks_wait_gives_the_child_nothing(url: str, other: Client) -> None:
    """The child's loop goes on with copies of the parent's tasks: each of them raises."""
    twins, loop, client = Twins(), asyncio.new_event_loop(), AsyncClient(url)
    before = other.acquire("r", ttl=TTL)

    async def one() -> str:
        async with client.acquire("r", ttl=TTL, wait=TTL) as lease:
            return lease.id

    async def some() -> list[Any]:
        results = await asyncio.gather(*[one() for _ in range(3)], return_exceptions=True)
        return [type(result).__name__ if isinstance(result, BaseException) else result for result in results]

    def fork_and_release() -> None:
        until(lambda: len(other.contenders("r")) == 3, "three that wait")
        os.kill(os.getpid(), signal.SIGALRM)
        until(lambda: twins.pid > 0, "the fork")
        before.release()

    thread = threading.Thread(target=fork_and_release)
    thread.start()
    timer = AfterTime(twins.fork)
    mine = twins.run(lambda: timer.run(lambda: loop.run_until_complete(some()), TTL))
    timer.close()
    told = twins.told()
    thread.join()
    assert told == {"result": ["LeaseLost"] * 3}, told
    assert len(set(mine)) == 3
    assert not {"LeaseLost"} & set(mine)
    loop.run_until_complete(client.close())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def give_back(lease: Any, after: float) -> None:
    if lease is not None:
        time.sleep(after)
        lease.release()


def is_not_held_twice(mine: list[Any], told: dict[str, Any]) -> None:
    """In the child it was refused; or it was asked for, or ended, after or before the fork, and has another id."""
    assert len(mine) == 2
    if not told:
        return
    if "error" in told:
        assert told["error"] in FORKED, told["text"]
    else:
        theirs, held = told["result"]
        assert not held or theirs != mine[0], "both hold the same lease"
