"""Nothing is left behind by whoever gave up, was cancelled, or never heard the answer."""

from __future__ import annotations

import asyncio
import ctypes
import queue
import threading
from typing import TYPE_CHECKING, TypeAlias

import pytest

from lessor.client.aio import AsyncClient
from lessor.client.sync import Client
from lessor.core.holder import State
from lessor.core.ops import Acquire, Lost, Release, Renew
from lessor.errors import LeaseLost, StoreUnavailable
from lessor.testing.conformance.base import PATIENCE, Case, Thread, busily, new_id, take, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lessor.runtime.tenure import Tenure
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness


class BodyError(Exception):
    """What a body raises itself."""


FirstUse: TypeAlias = "Callable[[AsyncClient], Awaitable[object]]"
FIRST_USES: dict[str, FirstUse] = {
    "acquire": lambda client: client.acquire("job", ttl=30),
    "enqueue": lambda client: client.enqueue("job", ttl=30),
    "try_each": lambda client: client.try_each(["job"], ttl=30),
    "wait_any": lambda client: client.wait_any(client.places(["job"], ttl=30)),
    "semaphore": lambda client: client.semaphore("jobs", slots=2).acquire(ttl=30),
    "watch": lambda client: client.watch("job"),
    "observe": lambda client: anext(client.observe("job")),
}


class Cancellation(Case):
    """No orphans."""

    def test_an_acquire_whose_reply_got_lost_gets_its_own_grant(
        self, faulty: FaultyStore, faulty_face: Face, store: Store
    ) -> None:
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_replies = 1
        lease = faulty_face.acquire("job", ttl=30, wait=0)
        record = store.read(["job"], timeout=PATIENCE)[0]
        assert record is not None
        assert record.token == lease.token
        asked = [op.lease_id for ops in faulty.calls for op in ops if isinstance(op, Acquire)]
        assert len(asked) == 2
        assert asked[0] == asked[1]

    def test_an_abandoned_id_is_never_granted(self, store: Store) -> None:
        """The release overtook the request that it is to undo."""
        lease_id = new_id()
        store.apply([Release("job", lease_id, abandon=True)], timeout=PATIENCE)
        assert isinstance(take(store, "job", 30, lease_id), Lost)
        assert store.read(["job"], timeout=PATIENCE) == [None]
        take(store, "job", 30)

    def test_a_store_that_stays_silent_is_an_error_and_leaves_nothing(self, faulty: FaultyStore, store: Store) -> None:
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_replies = 10**6
        client = Client(faulty, timeout=0.3)
        with pytest.raises(StoreUnavailable):
            client.acquire("job", ttl=30)
        until(lambda: store.read(["job"], timeout=PATIENCE) == [None], "the release of what nobody got")
        client._engine.keeper.drain(PATIENCE)
        faulty.lost_replies = 0

    def test_a_thread_that_times_out_while_the_store_hangs(self, lab: Harness, store: Store) -> None:
        _require_hanging(lab)
        client = Client(lab.url(), timeout=0.3)
        with lab.hanging(), pytest.raises(StoreUnavailable):
            client.acquire("job", ttl=30)
        until(lambda: store.read(["job"], timeout=PATIENCE) == [None], "an answer")
        client._engine.keeper.drain(PATIENCE)
        assert store.read(["job"], timeout=PATIENCE) == [None]
        client.close()

    def test_a_task_that_is_cancelled_while_the_store_hangs(self, lab: Harness, store: Store) -> None:
        _require_hanging(lab)

        async def scenario() -> None:
            async with AsyncClient(lab.url(), timeout=PATIENCE) as client:
                with lab.hanging():
                    acquiring = asyncio.ensure_future(_await(client.acquire("job", ttl=30)))
                    await asyncio.sleep(0.1)
                    acquiring.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await acquiring
                # The cancelled request may only now reach the store.
                await asyncio.to_thread(client._engine.keeper.drain, PATIENCE)
                fence = await client.acquire("other", ttl=30)
                assert store.read(["job"], timeout=PATIENCE) == [None]
                await fence.release()

        asyncio.run(scenario())
        assert store.read(["job"], timeout=PATIENCE) == [None]

    @pytest.mark.parametrize("use", FIRST_USES)
    def test_the_event_loop_goes_on_while_the_store_is_connected_to(self, faulty: FaultyStore, use: str) -> None:
        went_on: list[bool] = []

        async def scenario() -> None:
            loop, turned = asyncio.get_running_loop(), threading.Event()

            def connect() -> None:
                loop.call_soon_threadsafe(turned.set)
                went_on.append(turned.wait(PATIENCE / 4))

            faulty.connecting = connect
            async with AsyncClient(faulty) as client:
                await FIRST_USES[use](client)

        asyncio.run(scenario())
        assert went_on
        assert all(went_on)

    def test_a_cancelled_waiter_leaves_the_queue(self, lab: Harness, store: Store) -> None:
        async def scenario() -> None:
            async with AsyncClient(lab.url()) as client:
                held = await client.acquire("job", ttl=30)
                waiting = asyncio.ensure_future(_await(client.acquire("job", ttl=30)))
                while not (record := await client.get("job")) or not record.queue:
                    await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await asyncio.to_thread(client._engine.keeper.drain, PATIENCE)
                record = await client.get("job")
                assert record is not None
                assert record.queue == ()
                await held.release()
                assert await client.get("job") is None

        asyncio.run(scenario())

    def test_an_async_body_is_cancelled_when_the_lease_is_lost(self, lab: Harness) -> None:
        ended: list[str] = []

        async def scenario() -> None:
            async with AsyncClient(lab.url()) as client:
                try:
                    async with client.acquire("job", ttl=30) as lease:
                        await client.revoke("job", force=True)
                        await asyncio.sleep(PATIENCE)
                        ended.append("never cancelled")
                except LeaseLost as lost:
                    ended.append(lost.reason)
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0
                assert lease.state is State.LOST
                await asyncio.sleep(0)  # no cancellation is left over

        asyncio.run(scenario())
        assert ended == ["revoked"]

    def test_an_async_body_that_blocks_its_loop_keeps_its_lease(self, faulty: FaultyStore) -> None:
        """A thread renews: a busy event loop can't starve it."""

        async def scenario() -> None:
            async with AsyncClient(faulty) as client, client.acquire("job", ttl=busily(faulty)) as lease:
                until(lambda: sum(isinstance(op, Renew) for ops in list(faulty.calls) for op in ops) > 2, "renewals")
                lease.check()

        asyncio.run(scenario())

    def test_a_body_that_holds_the_interpreter_finds_its_lease_lost(self, face: Face, lab: Harness) -> None:
        """No thread of ours can run while a C call keeps the GIL; what counts is the look afterwards."""
        found: queue.SimpleQueue[object] = queue.SimpleQueue()

        def body(lease: Tenure) -> None:
            ctypes.PyDLL(None).usleep(int(2 * lab.ttl * 1e6))
            try:
                lease.check()
            except LeaseLost as lost:
                found.put(lost.reason)
            raise BodyError

        with pytest.raises((BodyError, LeaseLost)):
            face.within("job", body, ttl=lab.ttl)
        # The async face leaves the block at the loss, while the body, in a thread of its own, may still be looking.
        assert found.get(timeout=PATIENCE) == "expired"

    def test_a_cancellation_from_outside_stays_one(self, lab: Harness, store: Store) -> None:
        async def scenario() -> None:
            async with AsyncClient(lab.url()) as client:
                inside = asyncio.Event()

                async def body() -> None:
                    async with client.acquire("job", ttl=30):
                        inside.set()
                        await asyncio.sleep(PATIENCE)

                task = asyncio.ensure_future(body())
                await inside.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await client.get("job") is None

        asyncio.run(scenario())

    def test_a_timeout_around_the_body_stays_one(self, lab: Harness) -> None:
        async def scenario() -> None:
            async with AsyncClient(lab.url()) as client:

                async def stay() -> None:
                    async with asyncio.timeout(None) as limit, client.acquire("job", ttl=30):
                        limit.reschedule(asyncio.get_running_loop().time() + 0.05)
                        await asyncio.sleep(PATIENCE)

                with pytest.raises(TimeoutError):
                    await stay()
                assert await client.get("job") is None

        asyncio.run(scenario())

    def test_tasks_of_one_client_release_only_their_own(self, lab: Harness) -> None:
        async def scenario() -> None:
            async with AsyncClient(lab.url()) as client:
                mine = await client.acquire("job", ttl=30)

                async def other() -> None:
                    assert await client.try_acquire("job", ttl=30) is None
                    lease = await client.acquire("else", ttl=30)
                    await lease.release()

                await asyncio.gather(*(other() for _ in range(5)), return_exceptions=False)
                mine.check()
                record = await client.get("job")
                assert record is not None
                assert record.token == mine.token

        asyncio.run(scenario())

    def test_both_faces_in_one_process(self, lab: Harness) -> None:
        with Client(lab.url()) as threads:

            async def scenario() -> None:
                async with AsyncClient(lab.url()) as tasks:
                    async with tasks.acquire("job", ttl=30):
                        waiting = Thread(lambda: threads.acquire("job", ttl=30, wait=PATIENCE))
                        while not (record := await tasks.get("job")) or not record.queue:
                            await asyncio.sleep(0)
                    lease = await asyncio.to_thread(waiting.result)
                    assert await tasks.try_acquire("job") is None
                    assert await asyncio.to_thread(lease.release)

            asyncio.run(scenario())


def _require_hanging(lab: Harness) -> None:
    if not lab.can_hang:
        pytest.skip("a call to this store always returns")


async def _await(acquisition: object) -> object:
    return await acquisition  # type: ignore[misc]
