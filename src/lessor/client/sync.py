"""The client for threads, and what it returns besides leases: places in queues, and grants in transactions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lessor.client.base import BaseClient
from lessor.client.crowd import all_terms, batches, check_places, dispose, granted, let_go, settle
from lessor.client.grant import BaseGrant, check_request, transactional
from lessor.client.lease import Lease, hold
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
from lessor.core.claim import GiveUp, Sleep, StartOver, Take, free_in
from lessor.core.lease import check_resource
from lessor.core.ops import Revoke
from lessor.errors import LeaseHeld
from lessor.patterns.semaphore import Semaphore
from lessor.patterns.session import Session, new_name
from lessor.patterns.several import acquire_all
from lessor.runtime.watch import Watch
from lessor.stores.base import Capability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, ParamSpec, Self, TypeVar, Unpack

    from lessor.client.options import Terms
    from lessor.core.claim import Claim
    from lessor.core.timing import Duration, Timing
    from lessor.core.view import Contender, Record
    from lessor.patterns.campaign import Campaign, Observation, Term
    from lessor.patterns.election import Leader
    from lessor.patterns.options import Options
    from lessor.patterns.several import Bundle
    from lessor.patterns.singleton import Skipped
    from lessor.runtime.cancellation import Cancellation

    P = ParamSpec("P")
    Result = TypeVar("Result")


class Grant(BaseGrant):
    """What ``acquire_in`` returns: it becomes a lease with ``confirm()``, once the transaction has committed."""

    __slots__ = ()

    def confirm(self) -> Lease:
        """Return the lease, which is renewed from now on.

        Raises `LeaseLost` if the transaction was rolled back or hasn't committed yet, or the TTL is over, and
        `StoreUnavailable` if there is no answer: then it may be tried again.
        """
        if self._lease is None:
            engine = self._engine
            engine.require_open()
            sent = engine.clock.mark()
            outcome = engine.store.apply([self._renewal()], timeout=engine.timeout)[0]
            self._lease = hold(engine, self._op, self._generation, self._terms, self._confirmed(outcome, sent), sent)
        lease: Lease = self._lease
        return lease


class Place(BasePlace[Lease]):
    """A place in the queue for a resource: what ``enqueue`` returns. Wait for the lease, or leave; or use a ``with``.

    It is kept for six seconds after the last call of ``wait``. Not for several threads at once.
    """

    __slots__ = ()

    def wait(self, timeout: Duration | None = None) -> Lease | None:
        """Wait for the lease, for at most so many seconds, 0 to look only, None for ever. None: not yet; we keep our place.

        Once it is granted, the same lease is returned each time. An error ends the wait, and the place with it.
        """
        if self._lease is None:
            until = self._until(timeout)
            try:
                self._settle(self._client._pursue(self._claim, self._terms, until, self._engine.clock.mark()))
            except BaseException:
                self.leave()
                raise
        return self._lease

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Client(BaseClient):
    """Leases on one store. May be used from many threads; close it, or use it in a ``with``.

    Without a URL it takes ``LESSOR_URL``, else a SQLite file in the user's state folder; an open store works too.
    ``timeout`` bounds how long one answer of the store is waited for.
    """

    def acquire(
        self,
        resource: str,
        ttl: Duration | Timing | None = 30.0,
        wait: Duration | None = None,
        **options: Unpack[Options],
    ) -> Lease:
        """Wait for the resource and return the lease on it, or raise `LeaseHeld`.

        ``ttl`` is a duration or, to say more, a `Timing`; None, under a parent, to last as long as that. ``wait``: None
        waits for ever, a number for at most so many seconds, 0 not at all. `Options` says what else can be asked for.
        The lease is renewed until it is released, as long as the options say and the program has a reference to it.
        """
        engine = self._engine
        engine.require_open()
        terms = self._terms.terms(ttl, options)
        claim = self._claim(resource, terms, wait)
        try:
            engine.waiters.expect(claim.op.lease_id)
            lease = self._pursue(claim, terms, FOR_EVER_NS, claim.made_ns)
            assert lease is not None
            engine.waiters.leave(claim.op.lease_id)
            return lease  # noqa: TRY300 - an interrupt may come at any instruction, and must find us in here
        except BaseException:
            drop_claim(engine, claim)
            raise

    def enqueue(
        self,
        resource: str,
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> Place:
        """Queue up for the resource, without waiting, and return the place in the queue.

        For programs with a loop of their own: they call ``place.wait(0)`` now and then, at least every five seconds.
        """
        self._engine.require_open()
        terms = self._terms.terms(ttl, options)
        place = Place(self, self._claim(resource, terms, None), terms)
        place.wait(0)
        return place

    def try_acquire(
        self,
        resource: str,
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> Lease | None:
        """Return the lease if the resource is free now, else None."""
        try:
            return self.acquire(resource, ttl, 0, **options)
        except LeaseHeld:
            return None

    def acquire_all(
        self,
        resources: Iterable[str],
        ttl: Duration | Timing | None = 30.0,
        wait: Duration | None = None,
        **options: Unpack[Options],
    ) -> Bundle[Lease]:
        """Acquire several resources, all or none, and return the leases as a `Bundle`, or raise `LeaseHeld`.

        Those that are free are taken in one batch; for the others it waits in the order of their names, so that those
        who acquire several in this way never wait for each other in a circle.
        """
        return acquire_all(self, resources, ttl, wait, options)

    def try_each(
        self,
        resources: Iterable[str],
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> dict[str, Lease]:
        """Ask for several in one batch, and return the leases on those that are free now, by name."""
        places = self._places(resources, ttl, 0, options)
        try:
            while asking := [place for place in places if place._open]:
                again_ns = self._ask(asking)
                if again_ns != FOR_EVER_NS:
                    self._pause([place for place in asking if place._open], again_ns)
            return {place.resource: place.lease for place in places if place.lease is not None}
        except BaseException:
            give_up(places)
            raise

    def release_each(self, leases: Iterable[Lease]) -> None:
        """Give several back, in one batch. What gets no answer is given back in the background."""
        engine = self._engine
        given = let_go(engine, leases)
        try:
            for batch in batches(engine, given):
                outcomes = engine.store.apply([release for _, release in batch], timeout=engine.timeout)
                settle(batch, outcomes)
        finally:
            dispose(engine, given)

    def places(
        self,
        resources: Iterable[str],
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> Sequence[Place]:
        """Return a place for each of several resources, for ``wait_any``, which queues up at all of them at once."""
        return self._places(resources, ttl, None, options)

    def wait_any(self, places: Sequence[Place], timeout: Duration | None = None) -> Lease | None:
        """Wait until one of the places has its lease, and return that. None: not within the time; we keep our places.

        Of the others, some may have theirs by then too: see ``place.lease``, and leave those that you don't want.
        """
        check_places(places)
        lease: Lease | None = granted(places)
        if lease is not None:
            return lease
        until_ns = places[0]._until(timeout)
        try:
            while True:
                again_ns = self._ask(places)
                if (lease := granted(places)) is not None or self._engine.clock.now() >= until_ns:
                    return lease
                self._pause(places, min(again_ns, until_ns))
        except BaseException:
            give_up(places)
            raise

    def session(
        self, ttl: Duration | Timing = 15.0, name: str | None = None, **options: Unpack[Options]
    ) -> Session[Lease]:
        """Begin a session: one renewal keeps all leases that are acquired through it, and they end with it.

        It is a lease itself, on a resource of its own, whose name starts with ``session/`` unless one is given.
        """
        require(self._engine.store.guarantees, Capability.SESSIONS, "carry leases along with a session")
        return Session(self, self.acquire(name or new_name(self._host), ttl, 0, **options))

    def semaphore(self, name: str, slots: int) -> Semaphore[Lease]:
        """Return a semaphore of that many slots: resources of their own, ``name/0`` and so on. Nothing is asked yet."""
        return Semaphore(self, name, slots)

    def acquire_in(
        self,
        connection: Any,
        resource: str,
        ttl: Duration | Timing | None = 30.0,
        **options: Unpack[Options],
    ) -> Grant:
        """Grant the resource as part of the transaction that is open on your connection, or raise `LeaseHeld`.

        It is yours if and when that transaction commits: call ``confirm()`` on the grant then. Never waits. Only for
        stores inside your own database: ``postgresql://``.
        """
        store = transactional(self._engine)
        terms = self._terms.terms(ttl, options)
        check_request(options)
        claim = self._claim(resource, terms, 0)
        return Grant(self._engine, claim, terms, store.apply_in(connection, [claim.op])[0])

    def get(self, resource: str) -> Record | None:
        """Return the record of the lease on the resource; None: it is free.

        Of a resource that nobody holds and that is still closed, it is the record of the last lease, with ``closed`` set.
        """
        return self.get_each([resource])[0]

    def get_each(self, resources: Iterable[str]) -> Sequence[Record | None]:
        """Return what `get` returns for each of the resources, all as of one time."""
        self._engine.require_open()
        records = self._engine.store.read([check_resource(r) for r in resources], timeout=self._engine.timeout)
        return [None if record is None else record.as_view() for record in records]

    def list(self, prefix: str = "") -> list[Record]:
        """Return the records of all resources that start with the prefix and are held or closed, by name."""
        self._engine.require_open()
        records = self._engine.store.scan(check_prefix(prefix), timeout=self._engine.timeout)
        return [record.as_view() for record in records]

    def contenders(self, resource: str) -> Sequence[Contender]:
        """Return the waiters for the resource, in the order of their turns."""
        self._engine.require_open()
        waiters = self._engine.store.waiters(check_resource(resource), timeout=self._engine.timeout)
        return [waiter.as_view() for waiter in waiters]

    def revoke(self, resource: str, *, force: bool = False) -> float | None:
        """End a lease, and tell its holder. Return in how many seconds the resource is free; None: it is free already.

        It ends at the expiry already promised. With ``force`` it ends now, although the holder may not have heard of it
        yet: until it has, only the fencing token keeps its writes out.

        A resource that is closed after an early release (``hold_at_least``) is opened at once. One that is closed after
        an expiry (``lock_delay``) raises `LeaseHeld`; with ``force`` it is opened, and writes of the last holder that
        are still under way arrive while the next one works.
        """
        self._engine.require_open()
        outcome = self._engine.store.apply(
            [Revoke(check_resource(resource), check_force(force))], timeout=self._engine.timeout
        )[0]
        return free_in(resource, outcome)

    def watch(self, prefix: str = "") -> Watch:
        """Return the stream of what happens from now on to resources that start with the prefix.

        It can't promise every event: while the connection is lost, what comes and goes is not told of, and what was
        released is told of as expired. Its ``gaps`` says how often that may have been so.
        """
        self._engine.require_open()
        return Watch(self._engine, check_prefix(prefix)).open()

    def campaign(
        self,
        name: str,
        ttl: Duration | Timing = 10.0,
        *,
        ready: Callable[[], Any] | None = None,
        **options: Unpack[Options],
    ) -> Campaign:
        """Stand for election, again and again: ``for term in client.campaign("scheduler"): with term: ...``.

        ``ready`` is called before each wait, so that nothing but the acquisition is between two leaders; what it returns
        is ``term.prepared``. After a loss, and while the store doesn't answer, we rest for a random time. Candidates
        with a higher ``priority`` lead first; `Options` says what else can be asked for. ``stop()`` ends the campaign.
        """
        self._engine.need("lessor.patterns.campaign")
        from lessor.patterns.campaign import Campaign  # noqa: PLC0415 - here and below: most programs elect nobody

        self._engine.require_open()
        check_resource(name)
        terms = self._terms.terms(ttl, options)  # refused here, rather than in the loop

        def stand(stop: Cancellation) -> Lease | None:
            with_stop = terms._replace(cancels=(*terms.cancels, stop))
            return Place(self, self._claim(name, with_stop, None), with_stop).wait()

        return Campaign(name, stand, self._host.random, ready, options.get("cancel"))

    def lead(
        self,
        name: str,
        work: Callable[[Term], Result],
        ttl: Duration | Timing = 10.0,
        *,
        ready: Callable[[], Any] | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Call ``work(term)`` while we lead, and again after each loss, until it returns while leading or has resigned.

        The work has to look: ``term.check()`` raises when the term is lost. Nothing goes on before it has returned.
        With ``cancel``, a `Cancellation` stops it: `Cancelled` is raised while we wait, or after a term that was lost.
        """
        self._engine.need("lessor.patterns.campaign")
        from lessor.patterns import campaign  # noqa: PLC0415

        return campaign.lead(self.campaign(name, ttl, ready=ready, **options), work)

    def leader(self, name: str) -> Leader | None:
        """Return the leader of the election; None: there is none."""
        self._engine.need("lessor.patterns.election")
        from lessor.patterns.election import Leader  # noqa: PLC0415

        return Leader.of(self.get(name))

    def singleton(
        self,
        name: str,
        ttl: Duration | Timing = 30.0,
        wait: Duration | None = 0.0,
        **options: Unpack[Options],
    ) -> Callable[[Callable[P, Result]], Callable[P, Result | Skipped]]:
        """Decorate a function of which one call may run at a time, anywhere: each runs under the lease of this name.

        Where somebody else runs it, nothing is run and `SKIPPED` returned; with ``wait``, when it is not our turn within
        so many seconds, and with None never. If the lease is lost meanwhile, the call raises `LeaseLost` at its end.
        ``current_lease()`` is the lease, inside. For what is not to be run twice in a row, see ``hold_at_least``.
        """
        self._engine.need("lessor.patterns.singleton")
        from lessor.patterns import singleton  # noqa: PLC0415

        self._engine.require_open()
        self._terms.terms(ttl, options)
        check_resource(name)
        return singleton.for_threads(lambda: self.acquire(name, ttl, wait, **options))

    def observe(self, name: str) -> Observation:
        """Return the stream of leaders: first who leads now, then every change, None for nobody."""
        self._engine.need("lessor.patterns.campaign")
        from lessor.patterns.campaign import Observation  # noqa: PLC0415

        return Observation(self, check_resource(name))

    def close(self) -> None:
        """Release what is held and leave the queues, within a second, and end."""
        self._engine.close()

    def __enter__(self) -> Self:
        self._engine.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _places(
        self, resources: Iterable[str], ttl: Duration | Timing | None, wait: Duration | None, options: Options
    ) -> Sequence[Place]:
        self._engine.require_open()
        terms = self._terms.terms(ttl, options)
        return [Place(self, self._claim(resource, terms, wait), terms) for resource in resources]

    def _claim(self, resource: str, terms: Terms, wait: Duration | None) -> Claim:
        """Return a fresh attempt, by a client that the store can call."""
        if not self._engine.waiters.started:
            self._engine.listen()
        return make_claim(self._engine, check_resource(resource), terms, wait)

    def _ask(self, places: Sequence[Place]) -> int:
        """Ask for all of these together, and return when to ask again."""
        engine = self._engine
        again_ns = FOR_EVER_NS
        for some in batches(engine, places):
            sent = engine.clock.mark()
            outcomes = engine.store.apply([place._claim.sending() for place in some], timeout=engine.timeout)
            again_ns = min(again_ns, soonest(some, [(outcome, sent) for outcome in outcomes], hold))
        return again_ns

    def _pause(self, places: Sequence[Place], until_ns: int) -> None:
        """Wait until then, or until one of them is called."""
        engine = self._engine
        seconds = max(0, until_ns - engine.clock.now()) / 1e9
        terms = all_terms(places)
        cancels = [cancel for one in terms for cancel in one.cancels]
        engine.waiters.wait([place._claim.op.lease_id for place in places], seconds, cancels)
        require_ours(engine, places[0]._claim)
        for one in terms:
            go_on(engine, one)

    def _pursue(self, claim: Claim, terms: Terms, pause_ns: int, sent: int) -> Lease | None:
        """Ask until it is settled, but at least once; None: it is not by ``pause_ns``, and we keep our place.

        ``sent`` is a time that was marked before, as short as may be.
        """
        engine = self._engine
        clock = engine.clock
        while True:
            outcome = engine.store.apply([claim.sending()], timeout=engine.timeout)[0]
            require_ours(engine, claim)
            decision = claim.after(outcome, sent, clock.now())
            if isinstance(decision, Take):
                return hold(engine, claim.op, claim.generation, terms, decision, sent)
            if isinstance(decision, GiveUp):
                engine.require_open()
                raise decision.error
            if isinstance(decision, Sleep):
                if pause_ns == FOR_EVER_NS and claim.wait_until_ns is None and not terms.cancels:
                    self._refuse_deadlock(threading.current_thread(), claim.op.resource, outcome)
                pause = max(0, min(decision.until_ns, pause_ns) - clock.now()) / 1e9
                called = engine.waiters.wait((claim.op.lease_id,), pause, terms.cancels)
                require_ours(engine, claim)
                go_on(engine, terms)
                if not called and clock.now() >= pause_ns:
                    return None
            if isinstance(decision, StartOver):
                start_over(engine, claim)
            sent = clock.mark()
