"""A store with a bad network before it: replies come late, or not at all, although the work was done."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lessor.core.ops import Unknown
from lessor.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Op, Outcome
    from lessor.stores.base import Store, Subscription


class FaultyStore:
    """Wraps a store; hand it to a ``Client`` instead of a URL."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.guarantees = store.guarantees
        self.url = store.url
        self.calls: list[Sequence[Op]] = []
        """Every batch that was sent."""
        self.reply_delay = 0.0
        """Seconds between the store's answer and its arrival."""
        self.lost_replies = 0
        """How many of the next replies get lost: the work is done, and nobody hears of it."""
        self.lost_requests = 0
        """How many of the next requests get lost: nothing is done, and nobody hears of it."""
        self.deaf = False
        """Whether nothing is pushed to a client that is opened from now on."""
        self.connecting: Callable[[], object] = lambda: None
        """What happens while a subscription is opened."""
        self.answered: Callable[[Sequence[Outcome]], object] = lambda _outcomes: None
        """What happens between the store's answer and its arrival."""
        self.matching: Callable[[Op], bool] = lambda _op: True
        """Which operations the faults are for."""
        self._nap = threading.Event()

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Pass the operations on, and the answer back if it doesn't get lost."""
        self.calls.append(ops)
        concerned = any(self.matching(op) for op in ops)
        silence: list[Outcome] = [Unknown(StoreUnavailable("faulty", "no answer"))] * len(ops)
        if concerned and self.lost_requests > 0:
            self.lost_requests -= 1
            return silence
        outcomes = self._store.apply(ops, timeout=timeout)
        if concerned:
            self.answered(outcomes)
        if concerned and self.reply_delay:
            self._nap.wait(self.reply_delay)
        if concerned and self.lost_replies > 0:
            self.lost_replies -= 1
            return silence
        return outcomes

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Pass it on."""
        return self._store.read(resources, timeout=timeout)

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Pass it on."""
        return self._store.scan(prefix, timeout=timeout)

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:
        """Pass it on."""
        return self._store.waiters(resource, timeout=timeout)

    def subscribe(self, prefix: str | None = None) -> Subscription | None:
        """Pass it on."""
        self.connecting()
        return None if self.deaf else self._store.subscribe(prefix)

    def close(self) -> None:
        """Close the store behind."""
        self._store.close()
