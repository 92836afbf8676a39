"""Watching: nothing is missed over a lost connection, and nothing is written down for nobody."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from lessor import Client
from lessor.stores.zookeeper import events, subscription
from lessor.testing.conformance.base import PATIENCE, Thread, taken, until
from tests.stores.interrupting import interrupted_everywhere

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from lessor.stores.zookeeper import ZooKeeperStore
    from tests.servers.zookeeper import ZooKeeperServer
    from tests.stores.zookeeper.tree import Tree


def test_events_go_on_after_a_lost_connection_none_missed_and_none_twice(url: str) -> None:
    with Client(url) as watcher, Client(url) as other, watcher.watch("jobs/") as stream:
        enough = threading.Event()
        main = watcher._engine.store._desk.main_within(5)  # type: ignore[attr-defined]

        def disturb() -> None:
            while not enough.wait(0.1):
                main.drop()

        disturbing = Thread(disturb)
        heard = Thread(lambda: [next(stream) for _ in range(200)])
        expected = []
        for at in range(100):
            lease = other.acquire(f"jobs/{at % 7}", ttl=30)
            lease.release()
            expected += [("granted", lease.token), ("released", lease.token)]
        events = heard.result(60)
        enough.set()
        disturbing.result()
        assert [(str(event.kind), event.token) for event in events] == expected


def test_events_are_written_down_only_while_somebody_watches(url: str, tree: Tree) -> None:
    with Client(url) as client:
        client.acquire("a", ttl=30).release()
        assert tree.left() == set()
        with client.watch(""):
            client.acquire("a", ttl=30).release()
            assert len([path for path in tree.left() if path.startswith("/events/")]) == 2
        until(lambda: tree.left() == set(), "no events")
        client.acquire("a", ttl=30).release()
        assert tree.left() == set()


def test_a_watcher_that_died_is_found_out(url: str, tree: Tree) -> None:
    with Client(url) as watcher, Client(url) as client:
        watcher.watch("")
        [path] = [path for path in tree.paths() if path.startswith("/watchers/")]
        tree.delete(path)  # as the servers do when its session ends
        client.acquire("a", ttl=30).release()
        client._engine.store._desk._tidy(events.tidy)  # type: ignore[attr-defined] # which it does by itself every half a minute
        until(lambda: tree.left() == set(), "no events")
        client.acquire("a", ttl=30).release()
        assert tree.left() == set()


def test_who_comes_while_another_one_tidies_up_misses_nothing(
    opened: Callable[[], ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last watcher has just gone, and the next one comes before that is written down."""
    leaving, coming = opened(), opened()
    gone = leaving.subscribe("")
    say, came = events._say, []

    def slowly(*args: object, watched: bool) -> bool:
        monkeypatch.setattr(events, "_say", say)
        came.append(coming.subscribe(""))
        return say(*args, watched=watched)  # type: ignore[arg-type]

    monkeypatch.setattr(events, "_say", slowly)
    gone.close()
    token = taken(leaving, "job", 30).token
    heard = came[0].get(5)
    assert heard is not None
    assert [event.token for event in heard] == [token]  # type: ignore[union-attr]
    came[0].close()


def test_who_could_not_look_before_the_first_events_were_too_old_is_told_so(
    opened: Callable[[], ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened(), opened()
    subscription = one.subscribe("")
    monkeypatch.setattr(events, "KEPT", 2)
    for at in range(5):
        taken(other, f"job/{at}", 30)
    events.tidy(other._desk, other._desk.main_within(5))
    until(
        lambda: len(list(other._desk.main_within(5).call(_events(other)).get(timeout=5))) == 2, "the end of the oldest"
    )
    assert subscription.get(5) is None
    subscription.close()


def test_who_was_away_for_so_long_that_its_session_ended_is_told_so(
    store: ZooKeeperStore, zookeeper: ZooKeeperServer
) -> None:
    subscription = store.subscribe("")
    thief = KazooClient(zookeeper.address, client_id=store._desk.main_within(5)._client.client_id)
    thief.start()
    thief.stop()  # which ends the session
    thief.close()
    heard: list[object] = []

    def told() -> bool:
        heard.append(subscription.get(0.5))
        return None in heard

    until(told, "the word", 30)
    subscription.close()


def test_an_interrupt_at_whatever_line_hides_no_event(opened: Callable[[], ZooKeeperStore]) -> None:
    watching, other = opened().subscribe("job/"), opened()
    names: list[str] = []

    def hear() -> list[str] | None:
        news = watching.get(PATIENCE)
        return None if news is None else [event.resource for event in news]

    def happen_and_hear() -> None:
        names.append(f"job/{len(names)}")
        Thread(lambda: taken(other, names[-1], 30)).result()
        assert hear() == [names[-1]]

    for where in interrupted_everywhere(subscription, happen_and_hear):
        assert hear() in (None, [names[-1]]), where
    watching.close()


def _events(store: ZooKeeperStore) -> object:
    from lessor.stores.zookeeper.wire import GetChildren

    return GetChildren(store._desk.layout.events, None)
