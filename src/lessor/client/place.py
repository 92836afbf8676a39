"""A place in the queue for a resource, for programs that don't want to wait inside ``acquire``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from lessor.client.terms import FOR_EVER_NS, check_wait, drop_claim, go_on, require_ours, start_over
from lessor.core.claim import GiveUp, Sleep, StartOver, Take
from lessor.core.ops import Loss
from lessor.errors import ConfigError, LeaseHeld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from lessor.client.options import Terms
    from lessor.core.claim import Claim
    from lessor.core.ops import Outcome
    from lessor.core.timing import Duration
    from lessor.runtime.engine import Engine


L = TypeVar("L")


class BasePlace(Generic[L]):
    """What both kinds of places have in common: see `Place` and `AsyncPlace`."""

    __slots__ = ("__weakref__", "_claim", "_client", "_engine", "_generation", "_lease", "_open", "_terms")

    def __init__(self, client: Any, claim: Claim, terms: Terms) -> None:
        self._client = client
        self._engine: Engine = client._engine
        self._generation = claim.generation
        self._claim = claim
        self._terms = terms
        self._lease: L | None = None
        self._open = True
        self._engine.waiters.expect(claim.op.lease_id)
        self._engine.places[id(self)] = self

    @property
    def resource(self) -> str:
        """The name of what is waited for."""
        return self._claim.op.resource

    @property
    def lease(self) -> L | None:
        """The lease, once it has been granted, else None."""
        return self._lease

    @property
    def position(self) -> int:
        """How many were before us when we last asked."""
        return self._claim.position

    def leave(self) -> None:
        """Give the place up. A lease that has been granted stays as it is."""
        if self._open:
            self._open = False
            if self._is_ours():
                self._engine.places.pop(id(self), None)
                drop_claim(self._engine, self._claim)

    def __repr__(self) -> str:
        state = "granted" if self._lease is not None else f"{self.position} before" if self._open else "given up"
        return f"<{type(self).__name__} in the queue for {self.resource!r}: {state}>"

    def _until(self, timeout: Duration | None) -> int:
        """Return until when to wait, if there is something to wait for."""
        self._require_open()
        go_on(self._engine, self._terms)
        return FOR_EVER_NS if timeout is None else self._engine.clock.now() + check_wait(timeout)

    def _require_open(self) -> None:
        self._engine.require_open()
        if not self._open:
            raise ConfigError(f"the place in the queue for {self.resource!r} was given up")
        if not self._is_ours():
            raise ConfigError(
                f"the place in the queue for {self.resource!r} is that of the process we were forked from"
            )

    def _is_ours(self) -> bool:
        """Whether this process made it; after a fork, it is the parent's."""
        return bool(self._generation == self._engine.generation)

    def _hear(self, outcome: Outcome, sent_ns: int, hold: Callable[..., L]) -> int:
        """Take the answer to our request, and return when to ask again."""
        require_ours(self._engine, self._claim)
        now = self._engine.clock.now()
        decision = self._claim.after(outcome, sent_ns, now)
        if isinstance(decision, Sleep):
            return decision.until_ns
        if isinstance(decision, StartOver):
            start_over(self._engine, self._claim)
            return now
        if isinstance(decision, Take):
            self._settle(hold(self._engine, self._claim.op, self._generation, self._terms, decision, sent_ns))
        elif isinstance(decision, GiveUp):
            if not isinstance(decision.error, LeaseHeld) or self._claim.op.queue:
                raise decision.error
            self.leave()
        return FOR_EVER_NS

    def _settle(self, lease: L | None) -> None:
        """Take the lease, if it has been granted."""
        if lease is not None:
            self._lease = lease
            self._open = False
            self._engine.places.pop(id(self), None)
            self._engine.waiters.leave(self._claim.op.lease_id)


def give_up(places: Iterable[BasePlace[Any]]) -> None:
    """Leave nothing behind of places that were asked for together."""
    for place in places:
        place.leave()
        if place.lease is not None and place._is_ours():
            place._engine.abandon(place.lease, Loss.RELEASED)


def soonest(places: Iterable[BasePlace[L]], answers: Iterable[tuple[Outcome, int]], hold: Callable[..., L]) -> int:
    """Hand each its answer, and return when the first of them is to ask again."""
    return min([place._hear(outcome, sent_ns, hold) for place, (outcome, sent_ns) in zip(places, answers, strict=True)])
