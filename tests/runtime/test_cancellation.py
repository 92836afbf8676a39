"""A cancellation wakes its waits by itself: they would otherwise last for an hour here."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lessor import AsyncClient, Cancellation, Cancelled, Client, ConfigError
from lessor.client.terms import make_claim
from lessor.core.clock import HOUR
from lessor.testing.conformance.base import Thread, until
from lessor.testing.faults import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AN_HOUR = 3600.0


@pytest.fixture(params=["pushed to", "deaf"])
def reading(request: pytest.FixtureRequest, client: Client, open_client: Callable[..., Client]) -> Client:
    """Return a client whose waiting threads read the store's news themselves, and one that hears nothing."""
    if request.param == "pushed to":
        client.try_acquire("first")
        return client
    faulty = FaultyStore(client._engine.store)
    faulty.deaf = True
    deaf = open_client(faulty)
    deaf.try_acquire("first")
    return deaf


def is_waiting(client: Client) -> bool:
    return any(map(callable, list(client._engine.waiters._bells.values())))


def test_a_thread_is_woken_at_once(reading: Client) -> None:
    cancel = Cancellation()
    waits = [Thread(partial(reading._engine.waiters.wait, [f"id{n}"], AN_HOUR, [cancel])) for n in range(3)]
    until(lambda: len(cancel._wakers) == 3, "the waits")
    cancel.cancel()
    assert [wait.result() for wait in waits] == [True, True, True]
    assert not cancel._wakers


def test_a_wait_that_begins_after_the_cancellation_ends_at_once(reading: Client) -> None:
    cancel = Cancellation()
    cancel.cancel()
    assert Thread(lambda: reading._engine.waiters.wait(["id"], AN_HOUR, [cancel])).result()


def test_a_task_is_woken_at_once(url: str) -> None:
    async def wait(cancel: Cancellation) -> None:
        async with AsyncClient(url) as client:
            await client.try_acquire("first")
            terms = client._terms.terms(30.0, {"cancel": cancel})
            claim = make_claim(client._engine, "job", terms, None)
            with pytest.raises(Cancelled):
                await client._sleep((claim,), client._engine.clock.now() + HOUR, (terms,))
            client._engine.waiters.leave(claim.op.lease_id)

    cancel = Cancellation()
    waiting = Thread(lambda: asyncio.run(wait(cancel)))
    until(lambda: bool(cancel._wakers), "the wait")
    cancel.cancel()
    waiting.result()
    assert not cancel._wakers


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], object]]:
    """Return what has something called in a signal handler, on SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda work: signal.signal(signal.SIGUSR1, lambda *_: work())
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_may_cancel_the_wait_that_it_interrupts(
    reading: Client, on_signal: Callable[[Callable[[], object]], object]
) -> None:
    cancel = Cancellation()
    on_signal(cancel.cancel)

    def interrupt() -> None:
        until(lambda: is_waiting(reading), "the wait")
        os.kill(os.getpid(), signal.SIGUSR1)

    interrupting = Thread(interrupt)
    assert reading._engine.waiters.wait(["id"], AN_HOUR, [cancel])
    interrupting.result()


def test_without_a_thread_to_be_had_the_waits_are_woken_all_the_same(
    reading: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    cancel = Cancellation()
    waiting = Thread(lambda: reading._engine.waiters.wait(["id"], AN_HOUR, [cancel]))
    until(lambda: bool(cancel._wakers), "the wait")
    monkeypatch.setattr("_thread.start_new_thread", refuse)
    cancel.cancel()
    monkeypatch.undo()
    assert waiting.result()


@pytest.mark.parametrize("wrong", [threading.Event(), True, "now", lambda: None])
def test_nothing_else_cancels(client: Client, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"a lessor.Cancellation"):
        client.acquire("job", cancel=wrong)
