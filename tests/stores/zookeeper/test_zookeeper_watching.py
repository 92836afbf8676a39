"""Watching: nothing is missed over a lost connection, and nothing is written down for nobody."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from leasehold import Client
from leasehold.testing.conformance.base import Thread, until

if TYPE_CHECKING:
    from tests.stores.zookeeper.tree import Tree


def test_events_go_on_after_a_lost_connection_none_missed_and_none_twice(url: str) -> None:
    with Client(url) as watcher, Client(url) as other, watcher.watch("jobs/") as stream:
        enough = threading.Event()
        main = watcher._engine.store._desk.main(5)  # type: ignore[attr-defined]

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
        client._engine.store._desk._tidy()  # type: ignore[attr-defined] # which it does by itself every half a minute
        until(lambda: tree.left() == set(), "no events")
        client.acquire("a", ttl=30).release()
        assert tree.left() == set()
