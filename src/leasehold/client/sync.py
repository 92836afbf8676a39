"""Leases for threads.

A thread can't be stopped from outside: when a lease is lost, ``check()`` raises and callbacks are called, and the
work has to look. Guard its writes with the token.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from leasehold.client.base import BaseClient
from leasehold.client.grant import BaseGrant, request, transactional
from leasehold.client.place import BasePlace
from leasehold.client.terms import (
    FOR_EVER_NS,
    Terms,
    check_force,
    check_prefix,
    drop_claim,
    make_claim,
    start_over,
)
from leasehold.core.claim import GiveUp, Sleep, StartOver, Take
from leasehold.core.holder import Over, State
from leasehold.core.lease import check_resource
from leasehold.core.ops import Loss, Lost, Release, Released, Revoke, Unknown
from leasehold.errors import LeaseHeld, LeaseLost
from leasehold.runtime.tenure import Tenure
from leasehold.runtime.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Any, Self

    from leasehold.core.claim import Claim
    from leasehold.core.lease import Record
    from leasehold.core.ops import Acquire
    from leasehold.core.timing import Duration, Renewal, Timing
    from leasehold.runtime.engine import Engine

DISPOSABLE = (None, Loss.RELEASED, Loss.EXPIRED, Loss.REVOKED, Loss.STALLED)
"""Losses after which the store may still have the lease under our id, so that giving it back makes sense."""


RELEASED = Over(Loss.RELEASED)


class Lease(Tenure):
    """A lease held by this process. Use it in a ``with``, or call ``release()``."""

    __slots__ = ()

    @property
    def lost(self) -> threading.Event:
        """An event to wait on: set when the lease is lost or released."""
        self._tick()
        with self._lock:
            event: threading.Event = self._lost or threading.Event()
            self._lost = event
        if self._belief.state is State.LOST:  # after it can be found there: whoever ends the lease sets it, or we do
            event.set()
        return event

    def renew(self) -> None:
        """Renew now, besides the renewals that happen by themselves. Raises `LeaseLost` if it is lost or will be."""
        engine = self._engine
        now = self._now()
        op = self._renewal(now)
        if op is None:
            raise LeaseLost(self.resource, token=self.token, reason=str(self.loss or self._belief.ending))
        sent = engine.clock.mark()
        outcome = engine.store.apply([op], timeout=engine.timeout)[0]
        self._answer(outcome, sent, self._now(), 0.0)
        self.check()
        if isinstance(outcome, Lost):
            raise LeaseLost(self.resource, token=self.token, reason=str(outcome.reason))
        if isinstance(outcome, Unknown):
            raise outcome.error

    def release(self) -> bool:
        """Give it back. True if that ended it, False if it was over already.

        When the store doesn't answer, `StoreUnavailable` is raised, and the release is tried again in the background;
        either way this lease is not ours any more.
        """
        return self._give_back(self._now(), raising=True)

    def _give_back(self, now: int, *, raising: bool) -> bool:
        engine = self._engine
        try:
            # Stop believing and renewing first: a late renewal must not follow the release.
            self._advance(RELEASED, now)
            if self._released or self._belief.loss not in DISPOSABLE or self._generation != engine.generation:
                return False
            outcome = engine.store.apply([Release(self._op.resource, self._op.lease_id)], timeout=engine.timeout)[0]
        except BaseException:
            engine.abandon(self, Loss.RELEASED)
            raise
        if isinstance(outcome, Unknown):
            engine.keeper.dispose(self.resource, self.id, self._timing.ttl_ns)
            if raising:
                raise outcome.error
            return False
        self._released = True
        return isinstance(outcome, Released)

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        now = self._now()
        self._tick(now)
        loss = self._belief.loss
        self._give_back(now, raising=False)
        if exc_type is None and loss is not None and loss is not Loss.RELEASED:
            raise LeaseLost(self.resource, token=self.token, reason=str(loss))

    def _wake(self) -> None:
        if self._lost is not None:
            self._lost.set()

    def _call(self, callback: Callable[[Any], object]) -> None:
        self._engine.callbacks.run(lambda: callback(self))


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
            self._lease = _hold(engine, self._op, self._terms, self.token, sent, self._deadline(outcome, sent))
        lease: Lease = self._lease
        return lease


class Place(BasePlace):
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
                self._settle(self._client._pursue(self._claim, self._terms, until))
            except BaseException:
                self.leave()
                raise
        lease: Lease | None = self._lease
        return lease

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Client(BaseClient):
    """Leases on one store. May be used from many threads; close it, or use it in a ``with``.

    Without a URL it takes ``LEASEHOLD_URL``, else a SQLite file in the user's state folder; an open store works too.
    ``timeout`` bounds how long one answer of the store is waited for.
    """

    def acquire(
        self,
        resource: str,
        ttl: Duration | Timing = 30.0,
        wait: Duration | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        renewal: Renewal | str | None = None,
        max_hold: Duration | None = None,
        stall_after: Duration | None = None,
    ) -> Lease:
        """Wait for the resource and return the lease on it, or raise `LeaseHeld`.

        ``ttl`` is a duration or, to say more, a `Timing`. ``wait``: None waits for ever, a number for at most so many
        seconds, 0 not at all. The lease is renewed until it is released, but not beyond ``max_hold`` and, with
        ``stall_after``, only while ``lease.progress()`` is called.
        """
        self._engine.require_open()
        terms = self._terms.terms(ttl, renewal=renewal, max_hold=max_hold, stall_after=stall_after)
        claim = make_claim(self._engine, resource, terms, wait=wait, metadata=metadata)
        try:
            self._engine.waiters.expect(claim.op.lease_id)
            lease = self._pursue(claim, terms, FOR_EVER_NS)
            assert lease is not None
            self._engine.waiters.leave(claim.op.lease_id)
            return lease  # noqa: TRY300 - an interrupt may come at any instruction, and must find us in here
        except BaseException:
            drop_claim(self._engine, claim)
            raise

    def enqueue(
        self,
        resource: str,
        ttl: Duration | Timing = 30.0,
        *,
        metadata: Mapping[str, str] | None = None,
        renewal: Renewal | str | None = None,
        max_hold: Duration | None = None,
        stall_after: Duration | None = None,
    ) -> Place:
        """Queue up for the resource, without waiting, and return the place in the queue.

        For programs with a loop of their own: they call ``place.wait(0)`` now and then, at least every five seconds.
        """
        self._engine.require_open()
        terms = self._terms.terms(ttl, renewal=renewal, max_hold=max_hold, stall_after=stall_after)
        place = Place(self, make_claim(self._engine, resource, terms, wait=None, metadata=metadata), terms)
        place.wait(0)
        return place

    def try_acquire(
        self,
        resource: str,
        ttl: Duration | Timing = 30.0,
        *,
        metadata: Mapping[str, str] | None = None,
        renewal: Renewal | str | None = None,
        max_hold: Duration | None = None,
        stall_after: Duration | None = None,
    ) -> Lease | None:
        """Return the lease if the resource is free now, else None."""
        try:
            return self.acquire(
                resource,
                ttl,
                0,
                metadata=metadata,
                renewal=renewal,
                max_hold=max_hold,
                stall_after=stall_after,
            )
        except LeaseHeld:
            return None

    def acquire_in(
        self,
        connection: Any,
        resource: str,
        ttl: Duration | Timing = 30.0,
        *,
        metadata: Mapping[str, str] | None = None,
        renewal: Renewal | str | None = None,
        max_hold: Duration | None = None,
        stall_after: Duration | None = None,
    ) -> Grant:
        """Grant the resource as part of the transaction that is open on your connection, or raise `LeaseHeld`.

        It is yours if and when that transaction commits: call ``confirm()`` on the grant then. Never waits. Only for
        stores inside your own database: ``postgresql://``.
        """
        store = transactional(self._engine)
        terms = self._terms.terms(ttl, renewal=renewal, max_hold=max_hold, stall_after=stall_after)
        op = request(self._engine, resource, terms, metadata)
        return Grant(self._engine, op, terms, store.apply_in(connection, [op])[0])

    def get(self, resource: str) -> Record | None:
        """Return who holds the resource, or None."""
        self._engine.require_open()
        return self._engine.store.read([check_resource(resource)], timeout=self._engine.timeout)[0]

    def list(self, prefix: str = "") -> list[Record]:
        """Return all leases whose resource starts with the prefix, by name."""
        self._engine.require_open()
        return [*self._engine.store.scan(check_prefix(prefix), timeout=self._engine.timeout)]

    def revoke(self, resource: str, *, force: bool = False) -> float | None:
        """End somebody's lease, and tell the holder. Return in how many seconds the resource is free; None: nobody has it.

        It ends at the expiry already promised. With ``force`` it ends now, although the holder may not have heard of it
        yet: until it has, only the fencing token keeps its writes out.
        """
        self._engine.require_open()
        outcome = self._engine.store.apply(
            [Revoke(check_resource(resource), check_force(force))], timeout=self._engine.timeout
        )[0]
        if isinstance(outcome, Unknown):
            raise outcome.error
        return outcome.free_in_ns / 1e9 if isinstance(outcome, Released) else None

    def watch(self, prefix: str = "") -> Watch:
        """Return the stream of what happens from now on to resources that start with the prefix."""
        self._engine.require_open()
        return Watch(self._engine, check_prefix(prefix))

    def close(self) -> None:
        """Release what is held, within a second, and end."""
        self._engine.close()

    def __enter__(self) -> Self:
        self._engine.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pursue(self, claim: Claim, terms: Terms, pause_ns: int) -> Lease | None:
        """Ask until it is settled, but at least once; None: it is not by ``pause_ns``, and we keep our place."""
        engine = self._engine
        clock = engine.clock
        while True:
            sent = clock.mark()
            outcome = engine.store.apply([claim.sending()], timeout=engine.timeout)[0]
            decision = claim.after(outcome, sent, clock.now())
            if isinstance(decision, Take):
                return _hold(engine, claim.op, terms, decision.token, sent, decision.deadline_ns)
            if isinstance(decision, GiveUp):
                raise decision.error
            if isinstance(decision, Sleep):
                if pause_ns == FOR_EVER_NS:
                    self._refuse_deadlock(threading.current_thread(), outcome)
                pause = max(0, min(decision.until_ns, pause_ns) - clock.now()) / 1e9
                called = engine.waiters.wait(claim.op.lease_id, pause)
                engine.require_open()
                if not called and clock.now() >= pause_ns:
                    return None
            if isinstance(decision, StartOver):
                start_over(engine, claim)


def _hold(engine: Engine, op: Acquire, terms: Terms, token: int, sent_ns: int, deadline_ns: int) -> Lease:  # noqa: PLR0917
    lease = Lease(
        engine,
        op,
        terms.timing,
        token=token,
        sent_ns=sent_ns,
        deadline_ns=deadline_ns,
        owner=threading.current_thread(),
        max_hold_ns=terms.max_hold_ns,
        stall_after_ns=terms.stall_after_ns,
    )
    engine.hold(lease)
    return lease
