"""Sessions that are retired, or closed, just as somebody gets a lease in them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from lessor.core.ops import Held, Renew, Renewed, Unknown
from lessor.runtime.clock import SYSTEM
from lessor.stores.zookeeper import acquiring
from lessor.stores.zookeeper.desk import IDLE_NS
from lessor.stores.zookeeper.session import Session
from lessor.testing.conformance.base import PATIENCE, new_id, ns, take, taken, until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from lessor.stores.zookeeper import ZooKeeperStore

TTL = 30.0
A_MOMENT = 0.5
"""Seconds that another thread has to get ahead of us, if nothing holds it up."""


def test_a_session_that_somebody_has_just_fetched_is_not_retired(
    opened: Callable[[], ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was idle for long; and it is retired before whoever fetched it has noted down that it is in use."""
    store, other = opened(), opened()
    desk = store._desk
    session = desk.session_for(ns(TTL), SYSTEM.now() + ns(PATIENCE))
    [key] = [key for key, one in desk._sessions.items() if one is session]
    granted, closed = threading.Event(), threading.Event()
    retiring: list[threading.Thread] = []
    close = Session.close

    def close_once_granted(self: Session, **how: Any) -> None:
        assert granted.wait(PATIENCE)
        close(self, **how)
        closed.set()

    class Noting(dict[int, int]):
        def __setitem__(self, noted: int, when: int) -> None:
            if noted == key and not retiring:
                retiring.append(threading.Thread(target=desk._retire, args=(key,)))
                retiring[0].start()
                retiring[0].join(A_MOMENT)
            super().__setitem__(noted, when)

    monkeypatch.setattr(Session, "close", close_once_granted)
    monkeypatch.setattr(desk, "_used_ns", Noting({key: desk.clock.now() - 2 * IDLE_NS}))
    lease_id = new_id()
    token = taken(store, "job", TTL, lease_id).token
    granted.set()
    retiring[0].join()
    until(lambda: desk._sessions.get(key) is session or closed.is_set(), "its end, if it was retired")
    assert isinstance(take(other, "job", TTL), Held), "two hold it"
    assert isinstance(store.apply([Renew("job", lease_id, token, ns(TTL))], timeout=PATIENCE)[0], Renewed)


def test_a_session_that_nobody_uses_is_retired(store: ZooKeeperStore) -> None:
    desk = store._desk
    session = desk.session_for(ns(TTL), SYSTEM.now() + ns(PATIENCE))
    [key] = [key for key, one in desk._sessions.items() if one is session]
    desk._retire(key)
    assert desk.session_for(ns(TTL), SYSTEM.now() + ns(PATIENCE)) is session, "it was used just now"
    desk._used_ns[key] = desk.clock.now() - IDLE_NS
    desk._retire(key)
    assert desk.session_for(ns(TTL), SYSTEM.now() + ns(PATIENCE)) is not session
    taken(store, "job", TTL)


def test_a_grant_in_a_session_that_is_closed_meanwhile_is_not_believed_in(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the thread that got it was stopped before it could enter the lease."""
    entered = acquiring.Acquisition._holding

    def stopped_for_long(self: acquiring.Acquisition, session_id: int, token: int) -> Any:
        store._desk._close(self.session)
        return entered(self, session_id, token)

    monkeypatch.setattr(acquiring.Acquisition, "_holding", stopped_for_long)
    assert isinstance(take(store, "job", TTL), Unknown)
    assert store._desk.ledger.all() == []
