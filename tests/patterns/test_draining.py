from __future__ import annotations

import asyncio
import threading

import pytest

from lessor import AsyncClient, Client, ConfigError, StillWorking
from lessor.patterns.drain import Intake
from lessor.testing.conformance.base import Thread

URL = "memory://draining"


def test_work_that_outlives_the_event_loop_of_its_drain_ends_in_peace() -> None:
    begun, may_end = threading.Event(), threading.Event()

    async def main() -> Thread:
        async with AsyncClient(URL) as client:
            lease = await client.acquire("outlived", 30)

            def work() -> None:
                with lease.work():
                    begun.set()
                    assert may_end.wait(60)

            thread = Thread(work)
            assert begun.wait(60)
            with pytest.raises(StillWorking):
                await lease.drain(0.01)
            return thread

    thread = asyncio.run(main())
    may_end.set()
    thread.result()


def test_the_function_that_names_the_heir_may_have_to_be_awaited() -> None:
    async def main() -> None:
        async with AsyncClient(URL, holder="one") as one, AsyncClient(URL, holder="two") as two:
            lease = await one.acquire("named", 30)
            place = await two.enqueue("named", 30)

            async def heir() -> str:
                return (await one.contenders("named"))[0].holder

            assert await lease.drain(10, to=heir, state=lambda: b"here")
            successor = await place.wait(60)
            assert successor is not None
            assert successor.inherited == b"here"

    asyncio.run(main())


def test_nobody_waits_for_less_than_no_time() -> None:
    async def main() -> None:
        async with AsyncClient(URL) as client, client.acquire("negative", 30) as lease:
            with pytest.raises(ConfigError, match="negative"):
                await lease.drain(-1)
            with lease.work():
                pass

    asyncio.run(main())


@pytest.mark.parametrize("step", ["enter", "leave"])
def test_work_that_is_interrupted_while_it_is_counted_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    count = getattr(Intake, step)
    interrupted: list[object] = []

    def count_and_interrupt(*how: object) -> object:
        counted = count(*how)
        if not interrupted:
            interrupted.append(how)
            raise KeyboardInterrupt
        return counted

    with Client(URL) as client, client.acquire("above", 30) as above:
        lease = client.acquire("below", 30, parent=above)
        monkeypatch.setattr(Intake, step, count_and_interrupt)
        with pytest.raises(KeyboardInterrupt), lease.work():
            pass
        assert interrupted
        assert lease.drain(10)
        assert above.drain(10)
