"""What a client, its leases and its watches are in a forked child: nothing of the parent's, and a fresh start."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from lessor import AsyncClient, ConfigError, LeaseHeld, LeaseLost, StillWorking
from lessor.client.place import give_up
from lessor.core.holder import State
from lessor.core.ops import EventKind, Loss
from lessor.testing.child import Child
from lessor.testing.conformance.base import Thread, pass_time, until
from tests.runtime.forked import Forked

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor import Client
    from lessor.client.lease import Lease
    from lessor.client.lease_async import AsyncLease
    from tests.runtime.forked import Line

TTL = 1.5
A_FEW_SECONDS = 5.0


def test_a_child_holds_its_lease_after_the_parent_closed_the_client_that_both_had(client: Client, url: str) -> None:
    def worker(line: Line) -> None:
        warm = client.try_acquire("warm", ttl=TTL)
        assert warm is not None
        warm.release()
        line.say("warm")
        line.hear()
        lease = client.acquire("job", ttl=TTL, wait=0)
        line.say("held")
        line.hear()
        lease.check()
        line.say(lease.state)

    with Forked(worker) as child:
        assert child.hear() == "warm"
        client.close()
        child.say("go")
        assert child.hear() == "held"
        if url.startswith("sqlite"):
            with Child(url) as third:
                for _ in range(2):
                    assert third.ask("acquire", resource="job", ttl=TTL, wait=0).get("error") == "LeaseHeld"
                    pass_time(TTL)
                assert third.ask("acquire", resource="job", ttl=TTL, wait=0).get("error") == "LeaseHeld"
        else:
            pass_time(2 * TTL)
        child.say("still?")
        assert child.hear() == State.HELD
        child.end()


def test_the_parent_holds_its_lease_after_the_child_closed_the_client_that_both_had(
    client: Client, other: Client
) -> None:
    lease = client.acquire("job", ttl=TTL)

    def worker(line: Line) -> None:
        client.acquire("another", ttl=TTL).release()
        client.close()

    with Forked(worker) as child:
        child.end()
    pass_time(2 * TTL)
    lease.check()
    with pytest.raises(LeaseHeld):
        other.acquire("job", ttl=TTL, wait=0)


def test_children_forked_under_load_all_get_leases(client: Client) -> None:
    ended = threading.Event()

    def load(name: str) -> int:
        rounds = 0
        while not ended.is_set():
            with client.acquire(name, ttl=5, wait=20):
                rounds += 1
        return rounds

    threads = [Thread(lambda n=n: load(f"r{n % 2}")) for n in range(4)]  # type: ignore[misc]
    try:
        for n in range(40):

            def worker(line: Line, name: str = f"child{n}") -> None:
                lease = client.acquire(name, ttl=5, wait=A_FEW_SECONDS)
                lease.check()
                assert lease.release()

            with Forked(worker) as child:
                child.end(A_FEW_SECONDS)
    finally:
        ended.set()
    assert all(thread.result() > 0 for thread in threads)


@pytest.mark.parametrize("how", ["close", "leave"])
def test_a_child_that_ends_a_watch_ends_its_own_only(client: Client, url: str, how: str) -> None:
    with client.watch("k") as stream:
        before = wake_state(url)

        def worker(line: Line) -> None:
            if how == "close":
                stream.close()
            else:
                stream.__exit__(None, None, None)
            assert list(stream) == []

        with Forked(worker) as child:
            child.end()
        assert wake_state(url) == before
        next_event = Thread(lambda: next(stream))
        client.acquire("k", ttl=30).release()
        assert next_event.result().kind is EventKind.GRANTED
        assert next(stream).kind is EventKind.RELEASED


def wake_state(url: str) -> tuple[list[str], int]:
    """Return the mailboxes beside the file, and how many watch."""
    if not url.startswith("sqlite"):
        return [], 0
    path = url.removeprefix("sqlite:///")
    db = sqlite3.connect(path)
    try:
        return sorted(os.listdir(path + "-wake")), db.execute("SELECT count(*) FROM watchers").fetchone()[0]
    finally:
        db.close()


def test_a_lease_lost_before_the_fork_is_none_of_the_childs_business(client: Client, other: Client) -> None:
    lease = client.acquire("job", ttl=30)
    other.revoke("job", force=True)
    until(lambda: lease.state is State.LOST, "the loss")
    theirs = other.acquire("job", ttl=30, wait=0)

    def worker(line: Line) -> None:
        touched = watch_the_store(client)
        assert lease.release() is False
        assert touched == []
        with pytest.raises(LeaseLost):
            lease.check()

    with Forked(worker) as child:
        child.end()
    theirs.check()


def test_a_lease_held_at_the_fork_stays_the_parents(client: Client) -> None:
    lease = client.acquire("job", ttl=30)

    def worker(line: Line) -> None:
        touched = watch_the_store(client)
        assert lease.loss is Loss.FORKED
        assert lease.release() is False
        assert touched == []

    with Forked(worker) as child:
        child.end()
    assert lease.release() is True


def test_a_task_lease_lost_before_the_fork_is_none_of_the_childs_business(url: str, other: Client) -> None:
    client = AsyncClient(url)

    async def lose() -> object:
        lease = await client.acquire("job", ttl=30)
        other.revoke("job", force=True)
        await asyncio.wait_for(lease.lost.wait(), 10)
        return lease

    lost = asyncio.run(lose())

    def worker(line: Line) -> None:
        touched = watch_the_store(client)
        assert asyncio.run(lost.release()) is False  # type: ignore[attr-defined]
        assert touched == []

    with Forked(worker) as child:
        child.end()
    asyncio.run(client.close())


def test_who_waits_for_the_loss_in_the_child_is_told(client: Client) -> None:
    lease = client.acquire("job", ttl=30)
    lost = lease.lost

    def worker(line: Line) -> None:
        assert lost.wait(A_FEW_SECONDS)

    with lost._cond, Forked(worker) as child:  # type: ignore[attr-defined]  # as if a thread were about to wait
        child.end()
    assert not lost.is_set()
    lease.check()


def test_who_awaits_the_loss_in_the_child_is_told(url: str) -> None:
    client = AsyncClient(url)

    async def hold() -> AsyncLease:
        lease = await client.acquire("job", ttl=30)
        assert not lease.lost.is_set()
        return lease

    lease = asyncio.run(hold())
    lost = lease._lost

    def worker(line: Line) -> None:
        asyncio.run(asyncio.wait_for(lost.wait(), A_FEW_SECONDS))

    with Forked(worker) as child:
        child.end()
    assert not lost.is_set()
    asyncio.run(client.close())


def test_work_in_flight_at_the_fork_is_the_parents_and_nobody_waits_for_it_in_the_child(client: Client) -> None:
    lease = client.acquire("job", ttl=30)

    def worker(line: Line) -> None:
        with pytest.raises(LeaseLost), lease.work():
            raise AssertionError("it took work")
        assert lease.drain(A_FEW_SECONDS) is False

    with lease.work():
        with lease._intake._lock, Forked(worker) as child:  # as if a thread were about to count
            child.end()
        with pytest.raises(StillWorking):
            lease.drain(0)
    assert lease.drain(A_FEW_SECONDS) is True


def test_a_child_forked_at_work_leaves_the_work_in_peace(client: Client) -> None:
    lease = client.acquire("job", ttl=30)
    work = lease.work()

    def worker(line: Line) -> None:
        work.__exit__(None, None, None)
        assert lease._intake.in_flight == 0

    with work, Forked(worker) as child:
        child.end()
    lease.check()


def test_a_place_in_the_queue_stays_the_parents(client: Client, other: Client) -> None:
    theirs = other.acquire("job", ttl=30)
    place = client.enqueue("job", ttl=30)

    def worker(line: Line) -> None:
        touched = watch_the_store(client)
        with pytest.raises(ConfigError, match="forked from"):
            place.wait(0)
        with pytest.raises(ConfigError, match="forked from"):
            client.wait_any([place], 0)
        place.leave()
        client.acquire("another", ttl=30).release()  # from here on something runs in the background
        client._engine.keeper.drain(A_FEW_SECONDS)
        assert {op.resource for ops in touched for op in ops} == {"another"}  # type: ignore[attr-defined]

    with Forked(worker) as child:
        child.end()
    assert [contender.holder for contender in other.contenders("job")] == [client.holder]
    theirs.release()
    granted = place.wait(A_FEW_SECONDS)
    assert granted is not None
    granted.check()


def test_places_that_fail_in_a_child_take_nothing_from_the_parent(client: Client, other: Client) -> None:
    """Also what was granted to one of them already."""
    other.acquire("b", ttl=30)
    places = client.places(["a", "b"], ttl=30)
    granted = client.wait_any(places, A_FEW_SECONDS)
    assert granted is not None

    def worker(line: Line) -> None:
        touched = watch_the_store(client)
        give_up(places)
        client.acquire("another", ttl=30).release()
        client._engine.keeper.drain(A_FEW_SECONDS)
        assert {op.resource for ops in touched for op in ops} == {"another"}  # type: ignore[attr-defined]

    with Forked(worker) as child:
        child.end()
    granted.check()
    assert other.try_acquire("a") is None
    assert len(other.contenders("b")) == 1


def watch_the_store(client: Client | AsyncClient) -> list[object]:
    """Return the list to which every operation on stores like this client's will be added; for a process that ends."""
    touched: list[object] = []
    kind = type(client._engine.store)
    apply: Callable[..., object] = kind.apply

    def noted(store: object, ops: object, **how: object) -> object:
        touched.append(ops)
        return apply(store, ops, **how)

    setattr(kind, "apply", noted)  # noqa: B010 - a method of a class that this process has for itself
    return touched


def test_threads_that_use_the_client_at_once_after_the_fork_share_one_engine(client: Client) -> None:
    def worker(line: Line) -> None:
        sys.setswitchinterval(1e-5)
        start = threading.Barrier(4)

        def first_use(name: str) -> Lease:
            start.wait()
            return client.acquire(name, ttl=5)

        threads = [Thread(lambda n=n: first_use(f"r{n}")) for n in range(4)]  # type: ignore[misc]
        leases = [thread.result() for thread in threads]
        held = set(client._engine.held)
        assert held == {lease.id for lease in leases}
        client.close()
        assert [lease.loss for lease in leases] == [Loss.CLOSED] * 4

    for _ in range(8):
        with Forked(worker) as child:
            child.end()


def test_a_python_without_ctypes_knows_about_forks_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    lease = client.acquire("job", ttl=30)

    def worker(line: Line) -> None:
        with pytest.raises(LeaseLost):
            lease.check()
        client.acquire("another", ttl=30, wait=0).check()

    with Forked(worker) as child:
        child.end()
    lease.check()


def test_a_child_that_asks_for_several_is_called_itself(url: str, other: Client) -> None:
    """And not where its parent is: it would hear of a revocation at its next renewal only."""
    client = AsyncClient(url)
    asyncio.run(start(client))
    above = client._engine.waiters.address

    def worker(line: Line) -> None:
        async def ask() -> None:
            leases = await client.try_each(["job"], ttl=30)
            notify = leases["job"]._op.notify
            assert notify == client._engine.waiters.address
            assert notify not in {"", above}
            await leases["job"].release()
            await client.close()

        asyncio.run(ask())

    with Forked(worker) as child:
        child.end()
    asyncio.run(client.close())


async def start(client: AsyncClient) -> None:
    await (await client.acquire("warm", ttl=30)).release()
