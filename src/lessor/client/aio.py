"""The client for asyncio, and what it returns besides leases. Nothing here blocks the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from lessor.client.base import BaseClient
from lessor.client.calls import call, call_each
from lessor.client.crowd import all_terms, check_places, dispose, granted, let_go, settle, tell_where
from lessor.client.errand import Errand
from lessor.client.grant import BaseGrant, check_request, transactional
from lessor.client.lease_async import AsyncLease, hold
from lessor.client.options import require
from lessor.client.place import BasePlace, give_up, soonest
from lessor.client.terms import (
    FOR_EVER_NS,
    check_force,
    check_prefix,
    drop_claim,
    go_on,
    make_claim,
    require_ours,
    start_over,
)
from lessor.client.watch_async import AsyncWatch
from lessor.core.claim import GiveUp, Sleep, StartOver, Take, free_in
from lessor.core.lease import check_resource
from lessor.core.ops import Revoke
from lessor.errors import LeaseHeld
from lessor.patterns import campaign_async, singleton
from lessor.patterns.election import Leader
from lessor.patterns.opening import Opening
from lessor.patterns.semaphore import AsyncSemaphore
from lessor.patterns.session import AsyncSession, new_name
from lessor.patterns.several import acquire_all_async
from lessor.runtime.watch import Watch
from lessor.stores.base import Capability
from lessor.stores.scarcity import scarce, shortage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
    from typing import Any, ParamSpec, Self, TypeVar, Unpack

    from lessor.client.options import Terms
    from lessor.core.claim import Claim
    from lessor.core.timing import Duration, Timing
    from lessor.core.view import Contender, Record
    from lessor.patterns.campaign_async import AsyncCampaign, AsyncObservation, AsyncTerm
    from lessor.patterns.options import Options
    from lessor.patterns.several import AsyncBundle
    from lessor.patterns.singleton import Skipped
    from lessor.runtime.cancellation import Cancellation

    P = ParamSpec("P")
    Result = TypeVar("Result")


class Acquisition(Opening[AsyncLease]):
    """What ``acquire()`` returns: await it for the lease, or use it in an ``async with``."""


class AsyncGrant(BaseGrant):
    """What ``acquire_in`` returns: it becomes a lease with ``confirm()``, once the transaction has committed."""

    __slots__ = ()

    async def confirm(self) -> AsyncLease:
        """Return the lease, which is renewed from now on.

        Raises `LeaseLost` if the transaction was rolled back or hasn't committed yet, or the TTL is over, and
        `StoreUnavailable` if there is no answer: then it may be tried again.
        """
        if self._lease is None:
            engine = self._engine
            engine.require_open()
            outcome, sent = await call(engine, self._renewal())
            self._lease = hold(engine, self._op, self._generation, self._terms, self._confirmed(outcome, sent), sent)
        lease: AsyncLease = self._lease
        return lease


class AsyncPlace(BasePlace[AsyncLease]):
    """A place in the queue for a resource: what ``enqueue`` returns. Await the lease, or leave; or use an ``async with``.

    It is kept for six seconds after the last call of ``wait``. Not for several tasks at once.
    """

    __slots__ = ()

    async def wait(self, timeout: Duration | None = None) -> AsyncLease | None:  # noqa: ASYNC109 - it keeps the place
        """Wait for the lease, for at most so many seconds, 0 to look only, None for ever. None: not yet; we keep our place.

        Once it is granted, the same lease is returned each time. An error ends the wait, and the place with it.
        """
        if self._lease is None:
            until = self._until(timeout)
            try:
                await self._client._listen()
                tell_where(self._engine, [self])
                self._settle(await self._client._pursue(self._claim, self._terms, until))
            except BaseException:
                self.leave()
                raise
        return self._lease

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()


class AsyncClient(BaseClient):
    """Leases on one store, for one event loop. May be used from many tasks; close it, or use it in an ``async with``.

    Without a URL it takes ``LESSOR_URL``, else a SQLite file in the user's state folder; an open store works too.
    ``timeout`` bounds how long one answer of the store is waited for.
    """

    _connecting: Errand | None = None

    def acquire(
        self,
        resource: str,
        ttl: Duration | Timing | None = 30.0,
        wait: Duration | None = None,
        **options: Unpack[Options],
    ) -> Acquisition:
        """Wait for the resource and return the lease on it, or raise `LeaseHeld`.

        ``ttl`` is a duration or, to say more, a `Timing`; None, under a parent, to last as long as that. ``wait``: None
        waits for ever, a number for at most so many seconds, 0 not at all. `Options` says what else can be asked for.
        The lease is renewed until it is released, as long as the options say and the program has a reference to it.
        """
        self._engine.require_open()
        terms = self._terms.terms(ttl, options)
        check_resource(resource)
        return Acquisition("AsyncClient.acquire", self._acquire(resource, terms, wait))

    async def enqueue(
        self,
        resource: str,
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> AsyncPlace:
        """Queue up for the resource, without waiting, and return the place in the queue.

        For programs with a loop of their own: they await ``place.wait(0)`` now and then, at least every five seconds.
        """
        self._engine.require_open()
        terms = self._terms.terms(ttl, options)
        await self._listen()
        place = AsyncPlace(self, make_claim(self._engine, check_resource(resource), terms, None), terms)
        await place.wait(0)
        return place

    async def try_acquire(
        self,
        resource: str,
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> AsyncLease | None:
        """Return the lease if the resource is free now, else None."""
        try:
            return await self.acquire(resource, ttl, 0, **options)
        except LeaseHeld:
            return None

    def acquire_all(
        self,
        resources: Iterable[str],
        ttl: Duration | Timing | None = 30.0,
        wait: Duration | None = None,
        **options: Unpack[Options],
    ) -> Opening[AsyncBundle[AsyncLease]]:
        """Acquire several resources, all or none, and return the leases as an `AsyncBundle`, or raise `LeaseHeld`.

        Those that are free are taken in one batch; for the others it waits in the order of their names, so that those
        who acquire several in this way never wait for each other in a circle.
        """
        return acquire_all_async(self, resources, ttl, wait, options)

    async def try_each(
        self,
        resources: Iterable[str],
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> dict[str, AsyncLease]:
        """Ask for several in one batch, and return the leases on those that are free now, by name."""
        self._engine.require_open()
        await self._listen()
        places = self._places(resources, ttl, 0, options)
        try:
            while asking := [place for place in places if place._open]:
                again_ns = await self._ask(asking)
                if again_ns != FOR_EVER_NS:
                    await self._pause([place for place in asking if place._open], again_ns)
            return {place.resource: place.lease for place in places if place.lease is not None}
        except BaseException:
            give_up(places)
            raise

    async def release_each(self, leases: Iterable[AsyncLease]) -> None:
        """Give several back, in one batch. What gets no answer is given back in the background."""
        given = let_go(self._engine, leases)
        try:
            answers = await call_each(self._engine, [release for _, release in given])
            settle(given, [outcome for outcome, _ in answers])
        finally:
            dispose(self._engine, given)

    def places(
        self,
        resources: Iterable[str],
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> Sequence[AsyncPlace]:
        """Return a place for each of several resources, for ``wait_any``, which queues up at all of them at once."""
        return self._places(resources, ttl, None, options)

    async def wait_any(
        self,
        places: Sequence[AsyncPlace],
        timeout: Duration | None = None,  # noqa: ASYNC109 - it keeps the places
    ) -> AsyncLease | None:
        """Wait until one of the places has its lease, and return that. None: not within the time; we keep our places.

        Of the others, some may have theirs by then too: see ``place.lease``, and leave those that you don't want.
        """
        check_places(places)
        lease: AsyncLease | None = granted(places)
        if lease is not None:
            return lease
        until_ns = places[0]._until(timeout)
        try:
            await self._listen()
            tell_where(self._engine, places)
            while True:
                again_ns = await self._ask(places)
                if (lease := granted(places)) is not None or self._engine.clock.now() >= until_ns:
                    return lease
                await self._pause(places, min(again_ns, until_ns))
        except BaseException:
            give_up(places)
            raise

    def session(
        self, ttl: Duration | Timing = 15.0, name: str | None = None, **options: Unpack[Options]
    ) -> Opening[AsyncSession[AsyncLease]]:
        """Begin a session: one renewal keeps all leases that are acquired through it, and they end with it.

        It is a lease itself, on a resource of its own, whose name starts with ``session/`` unless one is given.
        """
        require(self._engine.store.guarantees, Capability.SESSIONS, "carry leases along with a session")
        self._engine.require_open()
        terms, resource = self._terms.terms(ttl, options), check_resource(name or new_name(self._host))

        async def start() -> AsyncSession[AsyncLease]:
            return AsyncSession(self, await self._acquire(resource, terms, 0))

        return Opening("AsyncClient.session", start())

    def semaphore(self, name: str, slots: int) -> AsyncSemaphore[AsyncLease]:
        """Return a semaphore of that many slots: resources of their own, ``name/0`` and so on. Nothing is asked yet."""
        return AsyncSemaphore(self, name, slots)

    async def acquire_in(
        self,
        connection: Any,
        resource: str,
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> AsyncGrant:
        """Grant the resource as part of the transaction that is open on your connection, or raise `LeaseHeld`.

        It is yours if and when that transaction commits: await ``confirm()`` on the grant then. Never waits. Only for
        stores inside your own database: ``postgresql://``.
        """
        store = transactional(self._engine)
        terms = self._terms.terms(ttl, options)
        check_resource(resource)
        await self._listen()
        check_request(options)
        claim = make_claim(self._engine, resource, terms, 0)
        return AsyncGrant(self._engine, claim, terms, (await store.apply_in_async(connection, [claim.op]))[0])

    async def get(self, resource: str) -> Record | None:
        """Return the record of the lease on the resource; None: it is free.

        Of a resource that nobody holds and that is still closed, it is the record of the last lease, with ``closed`` set.
        """
        return (await self.get_each([resource]))[0]

    async def get_each(self, resources: Iterable[str]) -> Sequence[Record | None]:
        """Return what `get` returns for each of the resources, all as of one time."""
        self._engine.require_open()
        engine, names = self._engine, [check_resource(resource) for resource in resources]
        records = await asyncio.to_thread(engine.store.read, names, timeout=engine.timeout)
        return [None if record is None else record.as_view() for record in records]

    async def list(self, prefix: str = "") -> list[Record]:
        """Return the records of all resources that start with the prefix and are held or closed, by name."""
        self._engine.require_open()
        engine, prefix = self._engine, check_prefix(prefix)
        records = await asyncio.to_thread(lambda: [*engine.store.scan(prefix, timeout=engine.timeout)])
        return [record.as_view() for record in records]

    async def contenders(self, resource: str) -> Sequence[Contender]:
        """Return the waiters for the resource, in the order of their turns."""
        self._engine.require_open()
        engine = self._engine
        waiters = await asyncio.to_thread(engine.store.waiters, check_resource(resource), timeout=engine.timeout)
        return [waiter.as_view() for waiter in waiters]

    async def revoke(self, resource: str, *, force: bool = False) -> float | None:
        """End a lease, and tell its holder. Return in how many seconds the resource is free; None: it is free already.

        It ends at the expiry already promised. With ``force`` it ends now, although the holder may not have heard of it
        yet: until it has, only the fencing token keeps its writes out.

        A resource that is closed after an early release (``hold_at_least``) is opened at once. One that is closed after
        an expiry (``lock_delay``) raises `LeaseHeld`; with ``force`` it is opened, and writes of the last holder that
        are still under way arrive while the next one works.
        """
        self._engine.require_open()
        outcome, _ = await call(self._engine, Revoke(check_resource(resource), check_force(force)))
        return free_in(resource, outcome)

    def watch(self, prefix: str = "") -> AsyncWatch:
        """Return the stream of what happens to resources that start with the prefix.

        From when it is entered (``async with``), awaited or first asked for an event: nothing is asked of the store yet.
        It can't promise every event: while the connection is lost, what comes and goes is not told of, and what was
        released is told of as expired. Its ``gaps`` says how often that may have been so.
        """
        self._engine.require_open()
        return AsyncWatch(Watch(self._engine, check_prefix(prefix)))

    def campaign(
        self,
        name: str,
        ttl: Duration | Timing = 10.0,
        *,
        ready: Callable[[], Any] | None = None,
        **options: Unpack[Options],
    ) -> AsyncCampaign:
        """Stand for election, again and again: ``async for term in client.campaign("scheduler"): async with term: ...``.

        ``ready`` is called before each wait, so that nothing but the acquisition is between two leaders; what it
        returns, awaited if need be, is ``term.prepared``. After a loss, and while the store doesn't answer, we rest for
        a random time. Candidates with a higher ``priority`` lead first; `Options` says what else can be asked for.
        ``stop()`` ends the campaign.
        """
        self._engine.require_open()
        check_resource(name)
        terms = self._terms.terms(ttl, options)  # refused here, rather than in the loop

        def stand(stop: Cancellation) -> Awaitable[AsyncLease]:
            return self._acquire(name, terms._replace(cancels=(*terms.cancels, stop)), None)

        return campaign_async.AsyncCampaign(name, stand, self._host.random, ready, options.get("cancel"))

    async def lead(
        self,
        name: str,
        work: Callable[[AsyncTerm], Awaitable[Result]],
        ttl: Duration | Timing = 10.0,
        *,
        ready: Callable[[], Any] | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Await ``work(term)`` while we lead, and again after each loss, until it returns while leading or has resigned.

        When the term is lost the work is cancelled, and nothing goes on before it has ended. With ``cancel``, a
        `Cancellation` stops it: `Cancelled` is raised while we wait, or after a term that was lost.
        """
        return await campaign_async.lead(self.campaign(name, ttl, ready=ready, **options), work)

    async def leader(self, name: str) -> Leader | None:
        """Return the leader of the election; None: there is none."""
        return Leader.of(await self.get(name))

    def singleton(
        self,
        name: str,
        ttl: Duration | Timing = 30.0,
        wait: Duration | None = 0.0,
        **options: Unpack[Options],
    ) -> Callable[[Callable[P, Awaitable[Result]]], Callable[P, Coroutine[Any, Any, Result | Skipped]]]:
        """Decorate a coroutine function of which one call may run at a time, anywhere: each under the lease of this name.

        Where somebody else runs it, nothing is run and `SKIPPED` returned; with ``wait``, when it is not our turn within
        so many seconds, and with None never. If the lease is lost meanwhile, the call is cancelled and raises
        `LeaseLost`. ``current_lease()`` is the lease, inside. For what is not to be run twice in a row, see
        ``hold_at_least``.
        """
        self._engine.require_open()
        self._terms.terms(ttl, options)
        check_resource(name)
        return singleton.for_tasks(lambda: self.acquire(name, ttl, wait, **options))

    def observe(self, name: str) -> AsyncObservation:
        """Return the stream of leaders: first who leads now, then every change, None for nobody."""
        return campaign_async.AsyncObservation(self, check_resource(name))

    async def close(self) -> None:
        """Release what is held and leave the queues, within a second, and end."""
        try:
            await asyncio.to_thread(self._engine.close)
        except (OSError, RuntimeError, ImportError) as error:
            if shortage(error) is None:
                raise
            self._engine.close()  # on the loop, rather than not at all: there is no thread to be had

    async def __aenter__(self) -> Self:
        self._engine.require_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _acquire(self, resource: str, terms: Terms, wait: Duration | None) -> AsyncLease:
        engine = self._engine
        engine.require_open()
        if not engine.waiters.started:
            await self._listen()
        claim = make_claim(engine, resource, terms, wait)
        try:
            engine.waiters.expect(claim.op.lease_id)
            lease = await self._pursue(claim, terms, FOR_EVER_NS)
            assert lease is not None
            engine.waiters.leave(claim.op.lease_id)
            return lease  # noqa: TRY300 - an interrupt may come at any instruction, and must find us in here
        except BaseException:
            # Cancelled, timed out or failed: whatever is still on its way must not be granted to nobody.
            drop_claim(engine, claim)
            raise

    async def _pursue(self, claim: Claim, terms: Terms, pause_ns: int) -> AsyncLease | None:
        """Ask until it is settled, but at least once; None: it is not by ``pause_ns``, and we keep our place."""
        engine = self._engine
        clock = engine.clock
        while True:
            outcome, sent = await call(engine, claim.sending())
            require_ours(engine, claim)
            decision = claim.after(outcome, sent, clock.now())
            if isinstance(decision, Take):
                return hold(engine, claim.op, claim.generation, terms, decision, sent)
            if isinstance(decision, GiveUp):
                engine.require_open()
                raise decision.error
            if isinstance(decision, Sleep):
                if pause_ns == FOR_EVER_NS and claim.wait_until_ns is None and not terms.cancels:
                    self._refuse_deadlock(asyncio.current_task(), claim.op.resource, outcome)
                called = await self._sleep((claim,), min(decision.until_ns, pause_ns), (terms,))
                if not called and clock.now() >= pause_ns:
                    return None
            if isinstance(decision, StartOver):
                start_over(engine, claim)

    def _places(
        self, resources: Iterable[str], ttl: Duration | Timing | None, wait: Duration | None, options: Options
    ) -> Sequence[AsyncPlace]:
        self._engine.require_open()
        terms = self._terms.terms(ttl, options)
        return [
            AsyncPlace(self, make_claim(self._engine, check_resource(resource), terms, wait), terms)
            for resource in resources
        ]

    async def _listen(self) -> None:
        """Have the store know where to call us: at the first use that means to connect, which the loop must not wait for."""
        if not self._engine.waiters.started:
            if self._connecting is None:
                self._connecting = Errand(self._connect)
            with scarce(self._engine.store.guarantees.store):
                await self._connecting.run()
            self._engine.require_open()

    def _connect(self) -> None:
        self._engine.listen()

    async def _ask(self, places: Sequence[AsyncPlace]) -> int:
        """Ask for all of these together, and return when to ask again."""
        answers = await call_each(self._engine, [place._claim.sending() for place in places])
        return soonest(places, answers, hold)

    async def _pause(self, places: Sequence[AsyncPlace], until_ns: int) -> None:
        """Wait until then, or until one of them is called."""
        await self._sleep([place._claim for place in places], until_ns, all_terms(places))

    async def _sleep(self, claims: Sequence[Claim], until_ns: int, terms: Sequence[Terms]) -> bool:
        """Wait until then, or until one of them is called; return whether it was. Raise if the wait is to end."""
        waiters = self._engine.waiters
        loop = asyncio.get_running_loop()
        called = asyncio.Event()

        def bell() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(called.set)

        for claim in claims:
            waiters.ring(claim.op.lease_id, bell)
        cancels = [cancel for one in terms for cancel in one.cancels]
        try:
            for cancel in cancels:
                cancel._watch(called, bell)
            async with asyncio.timeout(max(0, until_ns - self._engine.clock.now()) / 1e9):
                await called.wait()
        except TimeoutError:
            pass
        finally:
            for cancel in cancels:
                cancel._forget(called)
        for claim in claims:
            require_ours(self._engine, claim)
            waiters.mute(claim.op.lease_id)  # a call that comes while we ask is for the next time
        for one in terms:
            go_on(self._engine, one)
        return called.is_set()
