"""Wakes blocked acquirers, and tells holders, when the store calls them.

Where the store can't push, or the call goes astray, nothing is lost: a waiter knows when to come by itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lessor.core.ops import Notice, Summons
from lessor.errors import LessorError
from lessor.runtime.listener import Bell, Listener
from lessor.runtime.log import log
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lessor.core.ops import Event
    from lessor.runtime.cancellation import Cancellation
    from lessor.runtime.host import Host
    from lessor.stores.base import Store, Subscription


class Waiters:
    """Who waits for a call."""

    def __init__(self, store: Store, host: Host, on_revoked: Callable[[str], None]) -> None:
        self._store = store
        self._host = host
        self._on_revoked = on_revoked
        self._lock = new_lock()
        self._starting = new_lock()
        self._gone = host.condition()
        self._bells: dict[str, Callable[[], object] | bool] = {}
        self._waiting: dict[str, Bell] = {}
        self._subscription: Subscription | None = None
        self._listener: Listener | None = None
        self.started = self._closed = False

    def start(self) -> None:
        """Have the store reach this client: opens the subscription, which may take as long as to connect does."""
        with self._starting:
            if self.started:
                return
            try:
                self._subscription = self._store.subscribe()
                if self._subscription is not None:
                    self._listener = Listener(self._subscription, self._host, self._take)
                    self._listener.start()
            except LessorError as error:
                log().warning("waiters will not be called, and come at the known times instead: %s", error)
            except BaseException:
                self._stop_listening()
                self._subscription = self._listener = None
                raise
            self.started = True
        if self._closed:
            self.close()

    @property
    def address(self) -> str:
        """Where the store reaches this client, once it does."""
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

    def mute(self, lease_id: str) -> None:
        """Ring no bell for this id until the next ``ring``, which will know whether it would have rung."""
        with self._lock:
            if callable(self._bells.get(lease_id)):
                self._bells[lease_id] = False

    def wait(self, lease_ids: Sequence[str], seconds: float, cancels: Sequence[Cancellation] = ()) -> bool:
        """Wait in this thread for a call for one of these ids, and return whether it came, or the wait was cancelled."""
        # The same bell each time, until it leaves: the listener knows the thread that reads by its bell.
        bell = self._waiting.get(lease_ids[0]) or Bell()
        for lease_id in lease_ids:
            self._waiting[lease_id] = bell
            self.ring(lease_id, bell.ring)
        try:
            for cancel in cancels:
                cancel._watch(bell, partial(self._rouse, bell))
            if self._listener is None:
                bell.wait(seconds)
            else:
                self._listener.wait(bell, seconds)
        finally:
            for cancel in cancels:
                cancel._forget(bell)
        called = bell.answer()
        if not called and self._listener is not None:
            self._listener.leave(bell)  # who knows when it comes back; and others want to be called
        return called

    def _rouse(self, bell: Bell) -> None:
        """Wake the thread with this bell, which may be the one that reads."""
        bell.ring()
        if self._listener is not None:
            self._listener.disturb()

    def leave(self, lease_id: str) -> None:
        """Expect no more calls for this id."""
        self._bells.pop(lease_id, None)
        if self._waiting and (bell := self._waiting.pop(lease_id, None)) is not None and self._listener is not None:
            self._listener.leave(bell)
        if self._closed:
            with self._gone:
                self._gone.notify_all()

    def dismiss(self) -> None:
        """Wake everybody up, from now on at once. The client is closing."""
        with self._lock:
            self._closed = True
            bells = [bell for bell in list(self._bells.values()) if callable(bell)]
        for bell in bells:
            bell()
        if self._listener is not None:
            self._listener.disturb()

    def abandon(self) -> list[Callable[[], object]]:
        """In a forked child: let threads go on that waited in the parent, and return what wakes its tasks."""
        if self._listener is not None:
            self._listener.abandon()
        for bell in list(self._waiting.values()):
            bell.ring()
        return [bell for bell in list(self._bells.values()) if callable(bell)]

    def see_off(self, seconds: float) -> None:
        """Wait, but not for longer, until all have gone."""
        with self._gone:
            self._gone.wait_for(lambda: not self._bells, seconds)

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
        elif self._subscription is not None:
            self._subscription.close()

    def _take(self, news: list[Event | Notice]) -> None:
        for item in news:
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
