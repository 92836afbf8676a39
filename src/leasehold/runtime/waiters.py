"""Wakes blocked acquirers, and tells holders, when the store calls them: one thread a client that listens.

Where the store can't push, or the call goes astray, nothing is lost: a waiter knows when to come by itself.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from leasehold.core.ops import Notice, Summons
from leasehold.errors import LeaseholdError
from leasehold.runtime.agenda import start_thread
from leasehold.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.stores.base import Store, Subscription

LISTEN = 60.0
"""Seconds a listener waits for news before it looks whether it is still wanted."""


class Waiters:
    """Who waits for a call."""

    def __init__(self, store: Store, on_revoked: Callable[[str], None]) -> None:
        self._store = store
        self._on_revoked = on_revoked
        self._lock = threading.Lock()
        self._gone = threading.Condition()
        self._bells: dict[str, Callable[[], object] | bool] = {}
        self._subscription: Subscription | None = None
        self._started = self._closed = False

    @property
    def address(self) -> str:
        """Where the store reaches this client; opens the subscription at the first use."""
        if not self._started:
            self._start()
        return "" if self._subscription is None else self._subscription.address

    def expect(self, lease_id: str) -> None:
        """From now on remember a call for this id: before the request that may cause one is sent."""
        self._bells[lease_id] = False

    def ring(self, lease_id: str, bell: Callable[[], object]) -> None:
        """Ring the bell at the next call for this id, or at once if one came since ``expect``."""
        with self._lock:
            called = self._closed or self._bells.get(lease_id) is True
            self._bells[lease_id] = False if called else bell
        if called:
            bell()

    def leave(self, lease_id: str) -> None:
        """Expect no more calls for this id."""
        self._bells.pop(lease_id, None)
        if self._closed:
            with self._gone:
                self._gone.notify_all()

    def dismiss(self, seconds: float) -> None:
        """Wake everybody up, and wait, but not for longer, until they have gone. The client is closing."""
        with self._lock:
            self._closed = True
            bells = [bell for bell in list(self._bells.values()) if callable(bell)]
        for bell in bells:
            bell()
        with self._gone:
            self._gone.wait_for(lambda: not self._bells, seconds)

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        if self._subscription is not None:
            self._subscription.close()

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            subscription = None
            try:
                subscription = self._store.subscribe()
                if subscription is not None:
                    start_thread(partial(self._listen, subscription), "leasehold-listener")
            except LeaseholdError as error:
                log().warning("waiters will not be called, and come at the known times instead: %s", error)
            except BaseException:
                if subscription is not None:
                    subscription.close()
                raise
            self._subscription = subscription
            self._started = True

    def _listen(self, subscription: Subscription) -> None:
        while not self._closed:
            try:
                news = subscription.get(LISTEN)
            except Exception:  # noqa: BLE001 - whatever it was, the waiters come by themselves
                log().exception("lost the store's calls; waiters come at the known times instead")
                return
            for item in news or ():
                if isinstance(item, Notice):
                    self._called(item)

    def _called(self, notice: Notice) -> None:
        if notice.summons is Summons.REVOKED:
            self._on_revoked(notice.lease_id)
            return
        with self._lock:
            bell = self._bells.get(notice.lease_id)
            if bell is not None:
                self._bells[notice.lease_id] = not callable(bell)
        if callable(bell):
            bell()
