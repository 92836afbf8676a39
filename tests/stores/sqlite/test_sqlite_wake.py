"""Calls between processes, and the log of events for those who watch."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Event, EventKind, Granted, Held, Notice, Release, Released, Revoke, Summons
from lessor.stores.sqlite import table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lessor.stores.sqlite import SqliteStore
    from lessor.stores.sqlite.subscription import SqliteSubscription
    from lessor.testing.clock import FakeClock

TTL = 10 * SECOND


def die(subscription: SqliteSubscription) -> None:
    """End as kill -9 does: the socket is gone, and its name stays."""
    mailbox = subscription._mailbox
    path, mailbox._path = mailbox._path, "/nowhere/at/all"
    subscription.close()
    assert os.path.exists(path)


def hold(store: SqliteStore, *waiting: tuple[str, str]) -> None:
    """Let H hold it, and let these wait, each with the address where it is called."""
    assert isinstance(store.apply([Acquire("r", "H", "h", TTL)], timeout=1)[0], Granted)
    for lease_id, address in waiting:
        op = Acquire("r", lease_id, "h-" + lease_id, TTL, queue=True, notify=address)
        assert isinstance(store.apply([op], timeout=1)[0], Held)


def test_a_release_calls_the_first_waiter_and_nobody_else(open_store: Callable[..., SqliteStore]) -> None:
    store, other = open_store(), open_store()
    first, second = other.subscribe(), other.subscribe()
    try:
        hold(store, ("A", first.address), ("B", second.address))
        store.apply([Release("r", "H")], timeout=1)
        assert first.get(5) == [Notice(first.address, Summons.RESERVED, "r", "A")]
        assert second.get(0) == []
    finally:
        first.close()
        second.close()


def test_a_revocation_calls_the_holder(store: SqliteStore) -> None:
    mine = store.subscribe()
    try:
        store.apply([Acquire("r", "A", "h", TTL, notify=mine.address)], timeout=1)
        store.apply([Revoke("r")], timeout=1)
        assert mine.get(5) == [Notice(mine.address, Summons.REVOKED, "r", "A")]
    finally:
        mine.close()


def test_a_dead_waiter_is_skipped_at_once(open_store: Callable[..., SqliteStore]) -> None:
    store = open_store()
    dead, alive = store.subscribe(), store.subscribe()
    try:
        hold(store, ("A", dead.address), ("B", "0" * 16), ("C", alive.address))
        die(dead)
        store.apply([Release("r", "H")], timeout=1)
        assert alive.get(0) == [Notice(alive.address, Summons.RESERVED, "r", "C")]
        taken = store.apply([Acquire("r", "C", "h-C", TTL, queue=True, notify=alive.address)], timeout=1)[0]
        assert isinstance(taken, Granted)
    finally:
        alive.close()


def test_a_process_that_died_with_hundreds_of_waiters_is_skipped_at_once(store: SqliteStore) -> None:
    dead, alive = store.subscribe(), store.subscribe()
    try:
        hold(store, *((f"A{n}", dead.address) for n in range(700)), ("B", alive.address))
        die(dead)
        assert store.apply([Release("r", "H")], timeout=5) == [Released(0)]
        assert alive.get(0) == [Notice(alive.address, Summons.RESERVED, "r", "B")]
    finally:
        alive.close()


def test_the_mailboxes_of_the_dead_are_swept_and_those_of_the_living_kept(store: SqliteStore, path: str) -> None:
    dead, alive = store.subscribe(), store.subscribe()
    die(dead)
    fresh = store.subscribe()
    try:
        assert sorted(os.listdir(path + "-wake")) == sorted([alive.address, fresh.address])
    finally:
        alive.close()
        fresh.close()
    assert os.listdir(path + "-wake") == []


def test_what_else_lies_in_the_folder_stops_nobody(store: SqliteStore, path: str) -> None:
    os.makedirs(path + "-wake/lost+found")
    store.subscribe().close()
    assert os.path.isdir(path + "-wake/lost+found")


def test_a_folder_made_anew_loses_no_live_waiter(open_store: Callable[..., SqliteStore], path: str) -> None:
    store = open_store()
    store.subscribe().close()
    os.rename(path + "-wake", path + "-wake.old")
    alive = open_store().subscribe()
    try:
        hold(store, ("A", alive.address))
        store.apply([Release("r", "H")], timeout=1)
        record = store.apply([Acquire("r", "passer-by", "p", TTL)], timeout=1)[0]
        assert isinstance(record, Held), "it was taken for dead, and lost its turn"
    finally:
        alive.close()


def test_a_full_mailbox_is_alive(store: SqliteStore) -> None:
    full = store.subscribe()
    try:
        with pytest.raises(BlockingIOError):  # noqa: PT012 - until it is full
            while store._post.send(full.address, b""):
                assert store._post._socket is not None
                store._post._socket.sendto(b"x", store._post._path(full.address))
        assert store._post.send(full.address, b"")
    finally:
        full.close()


def test_noise_in_a_mailbox_is_ignored(store: SqliteStore) -> None:
    mine = store.subscribe()
    try:
        for noise in (b"", b"hello", b"[]", b'["reserved"]', b'["nonsense","r","A"]', b"\xff" * 50, b"5"):
            store._post.send(mine.address, noise)
        assert mine.get(0) == []
    finally:
        mine.close()


def test_a_path_longer_than_a_sockets_name_may_be(open_store: Callable[..., SqliteStore], tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    store, other = open_store(str(folder / "leases.db")), open_store(str(folder / "leases.db"))
    mine = other.subscribe()
    try:
        hold(store, ("A", mine.address))
        store.apply([Release("r", "H")], timeout=1)
        assert mine.get(5) == [Notice(mine.address, Summons.RESERVED, "r", "A")]
    finally:
        mine.close()


def test_the_longest_names_fit_in_a_call(store: SqliteStore) -> None:
    mine = store.subscribe()
    name = "\U0001f512" * 128
    try:
        store.apply([Acquire(name, "f" * 32, "h", TTL, notify=mine.address)], timeout=1)
        store.apply([Revoke(name)], timeout=1)
        assert mine.get(0) == [Notice(mine.address, Summons.REVOKED, name, "f" * 32)]
    finally:
        mine.close()


def test_closing_wakes_the_one_who_listens(store: SqliteStore) -> None:
    mine = store.subscribe()
    came: list[object] = []
    listener = threading.Thread(target=lambda: came.append(mine.get(60)))
    listener.start()
    while not mine._mailbox._doorbell._waiting:
        listener.join(0.001)
    mine.close()
    mine.close()
    listener.join(10)
    assert came == [[]]
    assert mine.get(0) == []


# --- watching -----------------------------------------------------------------------------------------------------


def grant_and_release(store: SqliteStore, name: str, turn: int) -> None:
    store.apply([Acquire(name, f"id{turn}", "h", TTL), Release(name, f"id{turn}")], timeout=1)


def kinds(news: list[Event | Notice] | None) -> list[tuple[str, EventKind]]:
    assert news is not None
    return [(n.resource, n.kind) for n in news if isinstance(n, Event)]


def test_a_watcher_hears_what_happens_under_its_prefix_in_order(open_store: Callable[..., SqliteStore]) -> None:
    store, other = open_store(), open_store()
    grant_and_release(store, "a/before", 0)
    watch = other.subscribe("a/")
    try:
        store.apply([Acquire("a/x", "A", "h", TTL)], timeout=1)
        store.apply([Acquire("b/x", "A", "h", TTL)], timeout=1)
        store.apply([Release("a/x", "A")], timeout=1)
        assert kinds(watch.get(5)) == [("a/x", EventKind.GRANTED), ("a/x", EventKind.RELEASED)]
        assert watch.get(0) == []
    finally:
        watch.close()


def test_a_watcher_that_was_away_too_long_is_told_so_and_then_hears_on(store: SqliteStore, clock: FakeClock) -> None:
    watch = store.subscribe("")
    try:
        clock.advance(16)
        grant_and_release(store, "r", 0)
        assert watch.get(0) is None
        grant_and_release(store, "r", 1)
        assert kinds(watch.get(0)) == [("r", EventKind.GRANTED), ("r", EventKind.RELEASED)]
    finally:
        watch.close()


def test_a_watcher_that_asks_now_and_then_misses_nothing(store: SqliteStore, clock: FakeClock) -> None:
    watch = store.subscribe("")
    try:
        for turn in range(10):
            clock.advance(7)
            grant_and_release(store, "r", turn)
            assert len(kinds(watch.get(0))) == 2
    finally:
        watch.close()


def test_without_a_watcher_nothing_is_written_down(store: SqliteStore, clock: FakeClock) -> None:
    store.subscribe("").close()
    clock.advance(16)
    grant_and_release(store, "r", 0)
    assert logged(store) == 0


def logged(store: SqliteStore) -> int:
    (count,) = store._idle[0].db.execute("SELECT count(*) FROM events").fetchone()
    return int(count)


@pytest.mark.parametrize("size", [1, 2, 3, 300])
def test_the_log_is_trimmed_however_large_the_calls_are(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(table, "EVENTS_KEPT", 500)
    watch = store.subscribe("")
    try:
        store.apply([Acquire("first", "A", "h", TTL)], timeout=1)  # so that the numbers are odd from here on
        for turn in range(3000 // size):
            store.apply([Acquire(f"r{turn}-{n}", "A", "h", TTL) for n in range(size)], timeout=1)
        assert logged(store) <= 500 + 256 + size
        assert watch.get(0) is None, "it has fallen behind"
        assert watch.get(0) == []
    finally:
        watch.close()


def test_what_happens_in_another_namespace_is_no_gap(
    open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "EVENTS_KEPT", 300)
    mine, other = open_store(), open_store(namespace="other")
    watch, busy = mine.subscribe(""), other.subscribe("")
    try:
        for turn in range(4):
            other.apply([Acquire(f"r{turn}-{n}", "A", "h", TTL) for n in range(300)], timeout=1)
        watch.get(0)  # it can't know yet whether what was trimmed was its own
        assert watch.get(0) == []
        grant_and_release(mine, "r", 0)
        assert len(kinds(watch.get(0))) == 2
    finally:
        watch.close()
        busy.close()


def test_names_at_the_end_of_the_alphabet_are_found(store: SqliteStore) -> None:
    names = ["a/\U0010ffff", "a/\U0010ffff\U0010ffff", "a/z", "b"]
    store.apply([Acquire(name, "A", "h", TTL) for name in names], timeout=1)
    assert [r.resource for r in store.scan("a/", timeout=1)] == sorted(names[:3])
    assert len(list(store.scan("", timeout=1))) == 4
