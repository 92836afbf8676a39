"""What depends on threads: whose lease it is, threads that can't be started, and work in them that goes wrong."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lessor import AsyncClient, Client, StoreUnavailable
from lessor.core.holder import State
from lessor.core.ops import Renew
from lessor.runtime.clock import SYSTEM
from lessor.runtime.tenure import Tenure
from lessor.runtime.watchdog import Watchdog
from lessor.stores.registry import open_store
from lessor.testing import FaultyStore
from lessor.testing.conformance.base import PATIENCE, Thread, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.client.lease import Lease


def waiting(client: Client | AsyncClient) -> int:
    """Return how many wait for a call."""
    return sum(callable(bell) for bell in list(client._engine.waiters._bells.values()))


def until_renewed(lease: Tenure) -> None:
    before = lease._sent_ns
    until(lambda: lease._sent_ns > before, "a renewal")
    lease.check()


def test_a_thread_with_the_ident_of_a_dead_one_may_wait_for_its_lease(client: Client) -> None:
    box: list[Lease] = []
    first = threading.Thread(target=lambda: box.append(client.acquire("r", ttl=30)))
    first.start()
    first.join()

    def wait_if_alike(*, anyway: bool) -> Lease | None:
        return client.acquire("r", ttl=30, wait=PATIENCE) if anyway or threading.get_ident() == first.ident else None

    for _ in range(100):  # mostly the very first has it
        second = Thread(lambda: wait_if_alike(anyway=False))
        until(lambda: waiting(client) == 1 or not second.is_alive(), "waiting, or the end")  # noqa: B023
        if waiting(client):
            break
        assert second.result() is None
    else:
        second = Thread(lambda: wait_if_alike(anyway=True))
        until(lambda: waiting(client) == 1, "waiting")
    box[0].release()
    second.result().release()


class Unstartable:
    """Lets the start of one thread fail, as it does where no more are to be had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.failed = 0
        start = threading.Thread.start

        def failing(thread: threading.Thread) -> None:
            if name in thread.name and not self.failed:
                self.failed += 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", failing)


@pytest.mark.parametrize("name", ["lessor-keeper", "lessor-watchdog", "lessor-listener"])
def test_an_acquire_without_its_thread_fails_and_leaves_nothing(
    url: str, open_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    client, other = open_client(url), open_client(url)
    unstartable = Unstartable(monkeypatch, name)
    with pytest.raises(StoreUnavailable, match="can't start new thread"):
        client.acquire("x", ttl=30)
    assert unstartable.failed == 1
    assert client._engine.held == {}
    until(lambda: other.get("x") is None, "what was acquired being given back", 5)
    until_renewed(client.acquire("y", ttl=0.5, wait=0))
    until_renewed(client.acquire("x", ttl=0.5, wait=0))


def test_waiters_are_called_by_a_listener_that_could_not_be_started_once(
    url: str, open_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = open_client(url), open_client(url)
    theirs = other.acquire("x", ttl=120)
    Unstartable(monkeypatch, "lessor-listener")
    monkeypatch.setattr("lessor.core.claim.REFRESH_NS", 3600 * 10**9)  # nobody comes by itself
    with pytest.raises(StoreUnavailable, match="can't start new thread"):
        client.acquire("x", ttl=30)
    thread = Thread(lambda: client.acquire("x", ttl=30, wait=120))
    until(lambda: waiting(client) == 1, "waiting")
    theirs.release()
    thread.result().check()


def test_a_task_without_its_batcher_fails_and_leaves_nothing(
    url: str, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    unstartable = Unstartable(monkeypatch, "lessor-batcher")

    async def body() -> None:
        async with AsyncClient(url) as client:
            with pytest.raises(StoreUnavailable, match="can't start new thread"):
                await client.acquire("x", ttl=30)
            assert unstartable.failed == 1
            lease = await client.acquire("y", ttl=30, wait=0)
            assert await lease.release()
            until(lambda: other.list() == [], "what was acquired being given back", 5)

    asyncio.run(body())


def test_a_callback_that_exits_does_not_stop_later_ones(client: Client, other: Client) -> None:
    told = threading.Event()
    first, second = client.acquire("a", ttl=30), client.acquire("b", ttl=30)
    exited = threading.Event()

    def leave(_lease: Lease) -> None:
        exited.set()
        sys.exit("lost!")

    first.on_lost(leave)
    second.on_lost(lambda _lease: told.set())
    other.revoke("a", force=True)
    assert exited.wait(PATIENCE)
    other.revoke("b", force=True)
    assert told.wait(PATIENCE)


class Once:
    """Raises at the first call of a method, and lets it work from then on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, method: str) -> None:
        self.raised = threading.Event()
        work = getattr(kind, method)

        def failing(*args: Any) -> Any:
            if not self.raised.is_set():
                self.raised.set()
                raise ZeroDivisionError("a defect of ours")
            return work(*args)

        monkeypatch.setattr(kind, method, failing)


@pytest.mark.parametrize(("method", "renewal"), [("_renewal", "third"), ("_confirm", "third"), ("_answer", "adaptive")])
def test_a_defect_in_the_keepers_work_does_not_end_renewals(
    client: Client, monkeypatch: pytest.MonkeyPatch, method: str, renewal: str
) -> None:
    once = Once(monkeypatch, Tenure, method)
    lease = client.acquire("x", ttl=1, renewal=renewal)
    assert once.raised.wait(PATIENCE)
    until_renewed(lease)
    until_renewed(lease)


def test_a_defect_in_the_watchdogs_work_ends_neither_renewals_nor_the_watch(
    url: str, open_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Once(monkeypatch, Watchdog, "_look")
    store = FaultyStore(open_store(url, SYSTEM))
    store.matching = lambda op: isinstance(op, Renew)
    store.reply_delay = 0.6  # a renewal that is late is what it looks for
    client = open_client(store)
    lease = client.acquire("x", ttl=2)
    assert once.raised.wait(PATIENCE)
    store.reply_delay = 0
    until_renewed(lease)
    until_renewed(lease)
    lost = threading.Event()
    lease.on_lost(lambda _lease: lost.set())
    client._engine.keeper.close()  # from here on only the watchdog can tell
    assert lost.wait(PATIENCE)
    assert lease._belief.state is State.LOST
