from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lessor import AsyncClient, Cancellation, Cancelled, Client, ConfigError, LeaseLost, StoreUnavailable
from lessor.core.ops import Acquire
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import Thread, until
from lessor.testing.faults import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lessor import AsyncTerm, Term

URL = "memory://campaigns"


def test_a_loop_that_forgets_the_with_ends_its_term_all_the_same() -> None:
    tokens = []
    with Client(URL) as client:
        for term in client.campaign("forgetful", 30):
            tokens.append(term.token)
            assert term.is_leader
            if len(tokens) == 3:
                term.resign()
                break
        assert client.leader("forgetful") is None
    assert tokens == sorted(set(tokens)), "tokens out of order"


def test_a_candidate_can_be_stopped_from_another_thread() -> None:
    with Client(URL) as client, Client(URL) as other, other.acquire("stopped", 30):
        campaign = client.campaign("stopped", 30)
        terms = Thread(lambda: list(campaign))
        until(lambda: len(other.contenders("stopped")) == 1, "the candidate")
        assert not campaign.is_leader
        campaign.stop()
        assert terms.result() == []
        until(lambda: not other.contenders("stopped"), "the way out of the queue")


@pytest.fixture
def endless_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lessor.patterns.election.FIRST_REST", 3600.0)
    monkeypatch.setattr("lessor.patterns.election.LONGEST_REST", 3600.0)


@pytest.mark.usefixtures("endless_rest")
def test_a_candidate_that_rests_can_be_stopped_and_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    faulty, cancel = FaultyStore(open_store(URL, SYSTEM)), Cancellation()
    faulty.matching = lambda op: isinstance(op, Acquire)
    faulty.lost_requests = 1 << 30
    with Client(faulty, timeout=0.02) as client:
        campaign = client.campaign("resting", 30)
        stopped = Thread(lambda: list(campaign))
        cancelled = Thread(lambda: client.lead("resting too", lambda term: term.token, 30, cancel=cancel))
        until(lambda: caplog.text.count("until the store answers") == 2, "the rests")
        campaign.stop()
        cancel.cancel()
        assert stopped.result() == []
        with pytest.raises(Cancelled):
            cancelled.result()


@pytest.mark.usefixtures("endless_rest")
def test_a_task_that_rests_can_be_stopped_and_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        faulty, cancel = FaultyStore(open_store(URL, SYSTEM)), Cancellation()
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_requests = 1 << 30
        async with AsyncClient(faulty, timeout=0.02) as client:
            campaign = client.campaign("resting", 30)

            async def work(_: AsyncTerm) -> None: ...

            stopped = asyncio.create_task(anext(campaign, None))
            cancelled = asyncio.create_task(client.lead("resting too", work, 30, cancel=cancel))
            await asyncio.to_thread(until, lambda: caplog.text.count("until the store answers") == 2, "the rests")
            campaign.stop()
            cancel.cancel()
            assert await asyncio.wait_for(stopped, 20) is None
            with pytest.raises(Cancelled):
                await asyncio.wait_for(cancelled, 20)

    asyncio.run(main())


def test_a_campaign_can_be_stopped_while_its_candidate_gets_ready() -> None:
    with Client(URL) as client:

        def get_ready() -> None:
            campaign.stop()

        campaign = client.campaign("getting ready", 30, ready=get_ready)
        assert list(campaign) == []
        assert client.leader("getting ready") is None


def test_others_can_ask_the_campaign_whether_it_leads() -> None:
    with Client(URL) as client:
        campaign = client.campaign("asked", 30)
        assert not campaign.is_leader
        for term in campaign:
            with term:
                assert campaign.is_leader
            assert not campaign.is_leader
            break


def test_the_loss_of_another_lease_is_not_swallowed() -> None:
    with Client(URL) as client, Client(URL) as other:
        inner = client.acquire("inner", 30)

        def work(_: Term) -> None:
            other.revoke("inner", force=True)
            until(lambda: not inner.held, "the loss")
            inner.check()

        with pytest.raises(LeaseLost) as caught:
            client.lead("outer", work, 30)
        assert caught.value.resource == "inner"
        assert other.leader("outer") is None


def test_what_cannot_work_is_refused_before_the_loop() -> None:
    with Client(URL) as client:
        with pytest.raises(ConfigError):
            client.campaign("x", 0)
        with pytest.raises(ConfigError):
            client.campaign("", 30)
        with pytest.raises(ConfigError):
            client.campaign("x", 30, priority="high")  # type: ignore[arg-type]


def test_while_the_store_does_not_answer_the_campaign_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    faulty = FaultyStore(open_store(URL, SYSTEM))
    faulty.matching = lambda op: isinstance(op, Acquire)
    faulty.lost_requests = 6
    with Client(faulty, timeout=0.02) as client:
        assert client.lead("patient", lambda term: term.token, 30)
    assert "until the store answers" in caplog.text


def test_the_async_campaign_goes_on_too(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        faulty = FaultyStore(open_store(URL, SYSTEM))
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_requests = 6
        async with AsyncClient(faulty, timeout=0.02) as client:
            async for term in client.campaign("patient", 30):
                await term.resign()
                break

    asyncio.run(main())
    assert "until the store answers" in caplog.text


def test_async_work_that_is_stopped_has_ended_before_anything_goes_on() -> None:
    """Also where ending takes it a while, and needs the event loop."""

    async def main() -> list[str]:
        said = []
        async with AsyncClient(URL) as client, AsyncClient(URL) as other:

            async def work(term: AsyncTerm) -> None:
                said.append("leads")
                if len(said) > 1:
                    return
                try:
                    await other.revoke("slow", force=True)
                    await asyncio.Event().wait()
                finally:
                    for _ in range(20):
                        await asyncio.sleep(0.01)
                    assert not term.is_leader
                    said.append("ended")

            await client.lead("slow", work, 30, ready=lambda: said.append("ready") if said else None)
        return said

    assert asyncio.run(main()) == ["leads", "ended", "ready", "leads"]


def test_a_cancellation_from_outside_ends_the_work_then_the_term_then_the_campaign() -> None:
    async def main() -> None:
        async with AsyncClient(URL) as client:
            begun = asyncio.Event()
            at_the_end = []

            async def work(term: AsyncTerm) -> None:
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.01)
                    at_the_end.append(term.is_leader)

            task = asyncio.create_task(client.lead("cancelled", work, 30))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert at_the_end == [True]
            assert await client.leader("cancelled") is None

    asyncio.run(main())


def test_a_term_that_is_lost_before_its_body_begins_cancels_it_at_its_first_await() -> None:
    async def main() -> list[str]:
        said: list[str] = []
        async with AsyncClient(URL) as client, AsyncClient(URL) as other:
            async for term in client.campaign("early", 30):
                if not said:
                    await other.revoke("early", force=True)
                    await term.lost.wait()
                async with term:
                    said.append("in")
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    said.append("still in")
                if len(said) > 1:
                    break
        return said

    assert asyncio.run(main()) == ["in", "in", "still in"]


def test_a_body_of_a_thread_that_was_lost_before_ends_where_it_looks() -> None:
    said: list[str] = []
    with Client(URL) as client, Client(URL) as other:
        for term in client.campaign("early too", 30):
            if not said:
                other.revoke("early too", force=True)
                assert term.lost.wait(60)
            with term:
                said.append("in")
                term.check()
                said.append("still in")
            if len(said) > 1:
                break
    assert said == ["in", "in", "still in"]


def test_after_a_loss_there_is_a_rest() -> None:
    began: list[float] = []
    with Client(URL) as client, Client(URL) as other:

        def work(term: Term) -> None:
            began.append(time.monotonic())
            if len(began) == 1:
                other.revoke("rest", force=True)
                while True:
                    term.check()
                    threading.Event().wait(0.001)

        client.lead("rest", work, 30)
    assert began[1] - began[0] >= 0.05


def test_an_observer_whose_first_look_got_no_answer_may_look_again() -> None:
    store = FaultyStore(open_store(URL, SYSTEM))
    store.read = Once(store.read)  # type: ignore[method-assign]
    with Client(store) as client, client.acquire("observed", 30) as lease, client.observe("observed") as leaders:
        with pytest.raises(StoreUnavailable):
            next(leaders)
        leader = next(leaders)
        assert leader is not None
        assert leader.token == lease.token


def test_a_task_that_observes_may_look_again_too() -> None:
    async def main() -> None:
        store = FaultyStore(open_store(URL, SYSTEM))
        async with AsyncClient(store) as client, client.acquire("observed", 30) as lease:
            store.read = Once(store.read)  # type: ignore[method-assign]
            async with client.observe("observed") as leaders:
                with pytest.raises(StoreUnavailable):
                    await anext(leaders)
                leader = await anext(leaders)
            assert leader is not None
            assert leader.token == lease.token

    asyncio.run(main())


class Once:
    """Gets no answer at the first call."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self._silent = True

    def __call__(self, *what: Any, **how: Any) -> Any:
        if self._silent:
            self._silent = False
            raise StoreUnavailable("memory", "no answer")
        return self._read(*what, **how)
