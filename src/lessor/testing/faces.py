"""The two faces behind one set of plain calls, so that a case is written once and runs through both."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Protocol

from lessor.client.aio import AsyncClient
from lessor.client.sync import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from lessor.core.view import Contender, Event, Record
    from lessor.patterns.election import Leader
    from lessor.runtime.tenure import Tenure
    from lessor.stores.base import Store

PATIENCE = 90.0
"""Seconds after which a call that should have ended is taken to hang."""


class Face(Protocol):
    """One client, in plain blocking calls."""

    client: Any
    gaps: int
    """How often the last `watch` may have missed something."""

    def acquire(self, resource: str, **terms: Any) -> Tenure: ...
    def try_acquire(self, resource: str, **terms: Any) -> Tenure | None: ...
    def enqueue(self, resource: str, **terms: Any) -> Any: ...
    def wait(self, place: Any, seconds: float) -> Tenure | None: ...
    def within(self, resource: str, body: Callable[[Tenure], object], **terms: Any) -> None: ...
    def result(self, value: Any) -> Any: ...
    def inside(self, entered: Any, body: Callable[[Any], object]) -> None: ...
    def release(self, lease: Tenure) -> bool: ...
    def hand_over(self, lease: Tenure, to: str, state: bytes = b"", within: float = 5.0) -> bool: ...
    def drain(self, lease: Tenure, timeout: float | None = None, **how: Any) -> bool: ...
    def campaign(self, name: str, body: Callable[[Any], object], *, terms: int, **options: Any) -> None: ...
    def stand(self, campaign: Any, body: Callable[[Any], object]) -> int: ...
    def lead(self, name: str, work: Callable[[Any], Any], **options: Any) -> Any: ...
    def singleton(self, name: str, work: Callable[[], Any], **options: Any) -> Callable[[], Any]: ...
    def resign(self, term: Any) -> bool: ...
    def leader(self, name: str) -> Leader | None: ...
    def observe(self, name: str, count: int, seen: list[Leader | None]) -> None: ...
    def contenders(self, resource: str) -> Sequence[Contender]: ...
    def renew(self, lease: Tenure) -> None: ...
    def get(self, resource: str) -> Record | None: ...
    def list(self, prefix: str = "") -> Sequence[Record]: ...
    def revoke(self, resource: str, *, force: bool = False) -> float | None: ...
    def watch(self, prefix: str, count: int, ready: threading.Event) -> Sequence[Event]: ...
    def wait_lost(self, lease: Tenure, seconds: float) -> bool: ...
    def close(self) -> None: ...


class SyncFace:
    """`Client` as it is."""

    def __init__(self, where: str | Store, **settings: Any) -> None:
        self.client = Client(where, **settings)
        self.get = self.client.get
        self.leader = self.client.leader
        self.list = self.client.list
        self.contenders = self.client.contenders
        self.revoke = self.client.revoke
        self.close = self.client.close

    def acquire(self, resource: str, **terms: Any) -> Any:
        return self.client.acquire(resource, **terms)

    def try_acquire(self, resource: str, **terms: Any) -> Any:
        return self.client.try_acquire(resource, **terms)

    def enqueue(self, resource: str, **terms: Any) -> Any:
        return self.client.enqueue(resource, **terms)

    def wait(self, place: Any, seconds: float) -> Any:
        return place.wait(seconds)

    def within(self, resource: str, body: Callable[[Any], object], **terms: Any) -> None:
        with self.client.acquire(resource, **terms) as lease:
            body(lease)

    def result(self, value: Any) -> Any:
        """Return it: here it is there already."""
        return value

    def inside(self, entered: Any, body: Callable[[Any], object]) -> None:
        """Run the body in a ``with``."""
        with entered as thing:
            body(thing)

    def release(self, lease: Any) -> bool:
        return bool(lease.release())

    def hand_over(self, lease: Any, to: str, state: bytes = b"", within: float = 5.0) -> bool:
        return bool(lease.hand_over(to, state, within))

    def drain(self, lease: Any, timeout: float | None = None, **how: Any) -> bool:
        return bool(lease.drain(timeout, **how))

    def campaign(self, name: str, body: Callable[[Any], object], *, terms: int, **options: Any) -> None:
        for count, term in enumerate(self.client.campaign(name, **options), 1):
            with term:
                body(term)
            if count == terms:
                return

    def stand(self, campaign: Any, body: Callable[[Any], object]) -> int:
        """Run the campaign to its end, and return how many terms it had."""
        terms = 0
        for term in campaign:
            terms += 1
            with term:
                body(term)
        return terms

    def lead(self, name: str, work: Callable[[Any], Any], **options: Any) -> Any:
        return self.client.lead(name, work, **options)

    def singleton(self, name: str, work: Callable[[], Any], **options: Any) -> Callable[[], Any]:
        return self.client.singleton(name, **options)(work)

    def resign(self, term: Any) -> bool:
        return bool(term.resign())

    def observe(self, name: str, count: int, seen: list[Leader | None]) -> None:
        with self.client.observe(name) as leaders:
            for leader in leaders:
                seen.append(leader)
                if len(seen) == count:
                    return

    def renew(self, lease: Any) -> None:
        lease.renew()

    def watch(self, prefix: str, count: int, ready: threading.Event) -> Sequence[Event]:
        with self.client.watch(prefix) as stream:
            ready.set()
            events = [next(stream) for _ in range(count)]
            self.gaps = stream.gaps
        return events

    def wait_lost(self, lease: Any, seconds: float) -> bool:
        return bool(lease.lost.wait(seconds))


class AsyncFace:
    """`AsyncClient` on an event loop in a thread."""

    def __init__(self, where: str | Store) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="conformance-loop", daemon=True)
        self._thread.start()
        self.client = AsyncClient(where)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(PATIENCE)
        except TimeoutError:
            future.cancel()
            raise

    def acquire(self, resource: str, **terms: Any) -> Any:
        async def acquire() -> Any:
            return await self.client.acquire(resource, **terms)

        return self.run(acquire())

    def try_acquire(self, resource: str, **terms: Any) -> Any:
        return self.run(self.client.try_acquire(resource, **terms))

    def enqueue(self, resource: str, **terms: Any) -> Any:
        return self.run(self.client.enqueue(resource, **terms))

    def wait(self, place: Any, seconds: float) -> Any:
        return self.run(place.wait(seconds))

    def within(self, resource: str, body: Callable[[Any], object], **terms: Any) -> None:
        async def within() -> None:
            async with self.client.acquire(resource, **terms) as lease:
                await asyncio.to_thread(body, lease)

        self.run(within())

    def result(self, value: Any) -> Any:
        """Return what is awaited."""

        async def result() -> Any:
            return await value

        return self.run(result())

    def inside(self, entered: Any, body: Callable[[Any], object]) -> None:
        """Run the body in an ``async with``."""

        async def inside() -> None:
            async with entered as thing:
                await asyncio.to_thread(body, thing)

        self.run(inside())

    def release(self, lease: Any) -> bool:
        return bool(self.run(lease.release()))

    def hand_over(self, lease: Any, to: str, state: bytes = b"", within: float = 5.0) -> bool:
        return bool(self.run(lease.hand_over(to, state, within)))

    def drain(self, lease: Any, timeout: float | None = None, **how: Any) -> bool:
        return bool(self.run(lease.drain(timeout, **how)))

    def campaign(self, name: str, body: Callable[[Any], object], *, terms: int, **options: Any) -> None:
        async def campaign() -> None:
            count = 0
            async for term in self.client.campaign(name, **options):
                async with term:
                    await asyncio.to_thread(body, term)
                count += 1
                if count == terms:
                    return

        self.run(campaign())

    def stand(self, campaign: Any, body: Callable[[Any], object]) -> int:
        """Run the campaign to its end, and return how many terms it had."""

        async def stand() -> int:
            terms = 0
            async for term in campaign:
                terms += 1
                async with term:
                    await asyncio.to_thread(body, term)
            return terms

        return int(self.run(stand()))

    def lead(self, name: str, work: Callable[[Any], Any], **options: Any) -> Any:
        return self.run(self.client.lead(name, lambda term: asyncio.to_thread(work, term), **options))

    def singleton(self, name: str, work: Callable[[], Any], **options: Any) -> Callable[[], Any]:
        @self.client.singleton(name, **options)
        async def single() -> Any:
            return await asyncio.to_thread(work)

        return lambda: self.run(single())

    def resign(self, term: Any) -> bool:
        return bool(self.run(term.resign()))

    def leader(self, name: str) -> Leader | None:
        leader: Leader | None = self.run(self.client.leader(name))
        return leader

    def observe(self, name: str, count: int, seen: list[Leader | None]) -> None:
        async def observe() -> None:
            async with self.client.observe(name) as leaders:
                async for leader in leaders:
                    seen.append(leader)
                    if len(seen) == count:
                        return

        self.run(observe())

    def contenders(self, resource: str) -> Sequence[Contender]:
        return [*self.run(self.client.contenders(resource))]

    def renew(self, lease: Any) -> None:
        self.run(lease.renew())

    def get(self, resource: str) -> Record | None:
        found: Record | None = self.run(self.client.get(resource))
        return found

    def list(self, prefix: str = "") -> Sequence[Record]:
        return [*self.run(self.client.list(prefix))]

    def revoke(self, resource: str, *, force: bool = False) -> float | None:
        free_in: float | None = self.run(self.client.revoke(resource, force=force))
        return free_in

    def watch(self, prefix: str, count: int, ready: threading.Event) -> Sequence[Event]:
        async def watch() -> Sequence[Event]:
            events = []
            async with self.client.watch(prefix) as stream:
                ready.set()
                async for event in stream:
                    events.append(event)
                    if len(events) == count:
                        break
                self.gaps = stream.gaps
            return events

        return [*self.run(watch())]

    def wait_lost(self, lease: Any, seconds: float) -> bool:
        async def wait() -> bool:
            try:
                async with asyncio.timeout(seconds):
                    await lease.lost.wait()
            except TimeoutError:
                return False
            return True

        return bool(self.run(wait()))

    def close(self) -> None:
        self.run(self.client.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


FACES: dict[str, Callable[[str | Store], Face]] = {"sync": SyncFace, "async": AsyncFace}
