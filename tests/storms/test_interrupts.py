"""Interrupts at every point of acquire, enter, body, exit and release: nothing stays held that the program hasn't got.

First at each point in turn, then at random times by a real signal. `make proof` has 20,000 of the latter on each store.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lessor import AsyncClient, Client, LeaseLost, StoreUnavailable
from lessor.testing.conformance.base import until
from tests.scale import SCALE, scaled
from tests.storms.interrupting import AfterTime, AtPoint, Interrupted, interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from lessor import Record

    Way: TypeAlias = Callable[[Client, str], None]

TTL = 1.0
"""Seconds: long enough to be renewed a few times on a busy machine, short enough to wait for a renewal."""
STORM = 20_000
SOME = max(1, round(0.5 / SCALE))
"""Which points are tried of the longer ways: each one in `make proof`."""
SLOW = (LeaseLost, StoreUnavailable)
"""What a way raises where the machine is so busy that an answer takes longer than the TTL."""
LONGEST = 8e-4
"""Seconds: about as long as an acquisition and a release take."""

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",  # an interrupt may come in a callback of the garbage collector
    "ignore:coroutine .* was never awaited:RuntimeWarning",
)


def way_with(client: Client, name: str) -> None:
    with client.acquire(name, ttl=TTL, wait=0) as lease:
        lease.check()


def way_with_later(client: Client, name: str) -> None:
    lease = client.acquire(name, ttl=TTL, wait=0)
    with lease:
        lease.check()


def way_by_calls(client: Client, name: str) -> None:
    client.acquire(name, ttl=TTL, wait=0).release()


def way_try(client: Client, name: str) -> None:
    lease = client.try_acquire(name, ttl=TTL)
    if lease is not None:
        with lease, lease.work():
            lease.check()


def way_again(client: Client, name: str) -> None:
    with client.acquire(name, ttl=TTL, wait=0) as lease, lease.again(), lease.again():
        lease.check()


def way_several(client: Client, name: str) -> None:
    with client.acquire_all([f"{name}/a", f"{name}/b"], ttl=TTL, wait=0) as bundle:
        bundle.check()


def way_session(client: Client, name: str) -> None:
    with client.session(ttl=TTL, name=f"{name}/session") as session, session.acquire(f"{name}/one", wait=0) as lease:
        lease.check()


def way_place(client: Client, name: str) -> None:
    with client.enqueue(name, ttl=TTL) as place:
        lease = place.wait(0)
        assert lease is not None
        with lease:
            lease.check()


def way_semaphore(client: Client, name: str) -> None:
    with client.semaphore(name, slots=2).acquire(ttl=TTL, wait=5) as lease:
        lease.check()


def way_campaign(client: Client, name: str) -> None:
    for term in client.campaign(name, ttl=TTL):
        with term:
            term.check()
        break


def way_singleton(client: Client, name: str) -> None:
    client.singleton(name, ttl=TTL)(lambda: None)()


WAYS: list[Way] = [
    way_with,
    way_with_later,
    way_by_calls,
    way_try,
    way_again,
    way_several,
    way_session,
    way_place,
    way_semaphore,
    way_campaign,
    way_singleton,
]


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        client.acquire("first", ttl=TTL).release()  # what the first use opens is open
        yield client


@pytest.fixture
def other(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.mark.heavy
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_at_each_point_leaves_nothing_held(client: Client, other: Client, way: Way) -> None:
    collect = getattr(other._engine.store, "collect", lambda: None)

    def work(n: int) -> Callable[[], None]:
        collect()  # of what the rounds before have left, or each round would be longer than the one before
        return partial(way, client, f"r{n}")

    at_each_point(work, 1 if way is way_with else SOME)
    nothing_is_held(client, other)
    the_client_works(client)


@pytest.mark.heavy
def test_interrupts_at_random_times_leave_nothing_held(client: Client, other: Client) -> None:
    draw = random.Random(20_26)
    timer = AfterTime(interrupt)
    wanted = scaled(STORM)
    try:
        for n in itertools.count():
            if timer.came >= wanted:
                break
            with contextlib.suppress(Interrupted, *SLOW):
                timer.run(partial(WAYS[n % 3], client, f"r{n}"), draw.uniform(5e-6, LONGEST))
    finally:
        timer.close()
    nothing_is_held(client, other)
    the_client_works(client)


def test_an_interrupt_at_each_point_of_the_first_use_comes_out_as_itself() -> None:
    """Also in the standard library, which starts the threads: its conditions may raise a RuntimeError instead."""
    for n in itertools.count():
        with Client("memory://first-use") as client:
            point = AtPoint(n, interrupt, threading.__file__)
            with contextlib.suppress(Interrupted):
                point.run(partial(way_by_calls, client, f"r{n}"))
        if not point.came:
            break


def test_an_interrupt_at_each_point_of_a_task_leaves_nothing_held(url: str, other: Client) -> None:
    loop = asyncio.new_event_loop()
    client = AsyncClient(url)

    async def way_async(name: str) -> None:
        async with client.acquire(name, ttl=TTL, wait=0) as lease:
            lease.check()

    loop.run_until_complete(way_async("first"))

    def work(n: int) -> Callable[[], None]:
        tidy_up(loop)
        return lambda: loop.run_until_complete(way_async(f"r{n}"))

    at_each_point(work)
    nothing_is_held(client, other)
    loop.run_until_complete(way_async("afterwards"))
    loop.run_until_complete(client.close())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def tidy_up(loop: asyncio.AbstractEventLoop) -> None:
    """Do what ``asyncio.run`` does after a Ctrl-C: cancel all tasks, and wait for them."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))


def at_each_point(work: Callable[[int], Callable[[], object]], every: int = 1) -> int:
    """Do the work again and again, each time interrupted at the next point; return how many there are."""
    for n in itertools.count(step=every):
        point = AtPoint(n, interrupt)
        with contextlib.suppress(Interrupted, *SLOW):
            point.run(work(n))
        if not point.came:
            return n
    raise AssertionError


def nothing_is_held(client: Client | AsyncClient, other: Client) -> None:
    def held() -> list[Record]:
        gc.collect()  # what was caught in a cycle with its own traceback
        return other.list()

    until(lambda: held() == [], "all being given back")
    until(lambda: client._engine.leases() == [], "all being let go of")


def the_client_works(client: Client) -> None:
    """It takes leases, and renews them: on a busy machine not always in time, but sooner or later."""

    def is_renewed() -> bool:
        with contextlib.suppress(LeaseLost), client.acquire("afterwards", ttl=TTL, wait=30) as lease:
            first = lease._deadline_ns
            until(lambda: lease._deadline_ns > first or not lease.held, "a renewal, or a loss")
            return lease.held
        return False

    until(is_renewed, "a renewal")
