"""Several at the file at once: locks are waited out, within the time given, and thrown at nobody."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Release, Released, Unknown
from lessor.errors import LessorError, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.sqlite import file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.stores.sqlite import SqliteStore
    from lessor.testing.clock import FakeClock

TTL = 10 * SECOND
ASK = Acquire("r", "A", "h", TTL)


@pytest.fixture
def real(open_store: Callable[..., SqliteStore]) -> SqliteStore:
    """Return a store on the real clock: these tests do wait."""
    return open_store(with_clock=SYSTEM)


@pytest.fixture
def locked(real: SqliteStore, path: str) -> Iterator[sqlite3.Connection]:
    """Hold SQLite's write lock, as another process would."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield db


def test_a_locked_file_is_unknown_once_the_time_is_over(real: SqliteStore, locked: sqlite3.Connection) -> None:
    started = time.monotonic()
    outcomes = real.apply([ASK, Release("r", "B")], timeout=0.1)
    took = time.monotonic() - started
    assert len(outcomes) == 2
    for outcome in outcomes:
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, StoreUnavailable)
        assert "locked" in str(outcome.error)
    assert 0.1 <= took < 60


def test_a_lock_that_goes_away_in_time_is_not_noticed(real: SqliteStore, locked: sqlite3.Connection) -> None:
    timer = threading.Timer(0.05, lambda: locked.execute("COMMIT"))
    timer.start()
    try:
        assert isinstance(real.apply([ASK], timeout=5)[0], Granted)
    finally:
        timer.join()


def test_reading_does_not_wait_for_a_writer(real: SqliteStore, locked: sqlite3.Connection) -> None:
    assert real.read(["r"], timeout=0) == [None]
    assert list(real.scan("", timeout=0)) == []


def test_a_reader_waits_no_longer_than_it_said_for_a_writer_of_its_own_process(
    real: SqliteStore, locked: sqlite3.Connection
) -> None:
    writer = threading.Thread(target=real.apply, args=([ASK],), kwargs={"timeout": 100})
    writer.start()
    try:
        while real._turn._lock.acquire(blocking=False):
            real._turn._lock.release()
            time.sleep(0.001)
        started = time.monotonic()
        with suppress(StoreUnavailable):
            real.read(["r"], timeout=0.05)
        assert time.monotonic() - started < 60
    finally:
        locked.execute("COMMIT")
        writer.join()


def test_after_a_failure_the_store_goes_on(real: SqliteStore, locked: sqlite3.Connection) -> None:
    real.apply([ASK], timeout=0.01)
    locked.execute("COMMIT")
    assert isinstance(real.apply([ASK], timeout=1)[0], Granted)


def test_threads_on_two_connections_take_turns(open_store: Callable[..., SqliteStore]) -> None:
    stores = [open_store(with_clock=SYSTEM), open_store(with_clock=SYSTEM)]
    inside: list[str] = []
    tokens: list[int] = []
    failures: list[object] = []

    def work(store: SqliteStore, name: str) -> None:
        done = 0
        while done < 25 and not failures:
            lease_id = f"{name}-{done}"
            outcome = store.apply([Acquire("r", lease_id, name, TTL)], timeout=10)[0]
            if isinstance(outcome, Held):
                continue
            if not isinstance(outcome, Granted):
                failures.append(outcome)
                return
            inside.append(name)
            tokens.append(outcome.token)
            if len(inside) != 1:
                failures.append(list(inside))
            inside.remove(name)
            released = store.apply([Release("r", lease_id)], timeout=10)[0]
            if not isinstance(released, Released):
                failures.append(released)
            done += 1

    threads = [threading.Thread(target=work, args=(stores[n % 2], f"t{n}")) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert tokens == sorted(set(tokens)), "tokens out of order"
    assert len(tokens) == 100


def test_reads_and_writes_from_many_threads_of_one_store(real: SqliteStore) -> None:
    failures: list[BaseException | object] = []

    def work(n: int) -> None:
        try:
            for turn in range(30):
                name, lease_id = f"r{n}", f"{n}-{turn}"
                outcome = real.apply([Acquire(name, lease_id, "h", TTL)], timeout=10)[0]
                record = real.read([name], timeout=10)[0]
                if not isinstance(outcome, Granted) or record is None or record.token != outcome.token:
                    failures.append((outcome, record))
                real.apply([Release(name, lease_id)], timeout=10)
        except Exception as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_what_goes_wrong_with_a_further_connection_is_explained_too(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a reader has the idle one, a writer opens another: that may fail as the first one may."""

    def fail(_path: str, _known: object, *, create: bool) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    idle = store._idle.pop()
    monkeypatch.setattr(file, "connect", fail)
    try:
        outcome = store.apply([ASK, ASK], timeout=0.1)[0]
        assert isinstance(outcome, Unknown)
        with pytest.raises(LessorError):
            store.read(["r"], timeout=0.1)
    finally:
        store._idle.append(idle)


def test_a_connection_that_broke_is_not_used_again(store: SqliteStore) -> None:
    store._idle[0].db.close()
    store.apply([ASK], timeout=1)
    assert isinstance(store.apply([ASK], timeout=1)[0], Granted)


def test_many_resources_come_and_go_and_the_file_does_not_grow_for_ever(store: SqliteStore, clock: FakeClock) -> None:
    for n in range(3000):
        store.apply([Acquire(f"r{n}", "A", "h", TTL)], timeout=1)
        store.apply([Release(f"r{n}", "A")], timeout=1)
        clock.advance(1)
    (rows,) = store._idle[0].db.execute("SELECT count(*) FROM leases").fetchone()
    assert rows < 1500


def test_the_same_without_time_to_fall_behind_the_reserved_block(store: SqliteStore, clock: FakeClock) -> None:
    """All shortcuts: no call needs a whole transaction by itself."""
    for n in range(3000):
        store.apply([Acquire(f"r{n}", "A", "h", TTL)], timeout=1)
        store.apply([Release(f"r{n}", "A")], timeout=1)
        if n == 1500:
            wall = clock.wall_us()
            clock.advance(120)
            clock.set_wall(wall + 1)
    (rows,) = store._idle[0].db.execute("SELECT count(*) FROM leases").fetchone()
    assert rows < 2500


def test_a_turn_left_behind_by_an_interrupt_is_taken_back_by_the_same_thread(real: SqliteStore) -> None:
    """As if a KeyboardInterrupt had come between taking the turn and the first line that would give it back."""
    assert real._turn.take(5)
    assert isinstance(real.apply([ASK], timeout=1)[0], Granted)


def test_a_turn_left_behind_by_a_thread_that_is_gone_is_found_to_be_lost(clock: FakeClock, store: SqliteStore) -> None:
    interrupted = threading.Thread(target=store._turn.take, args=(1,))
    interrupted.start()
    interrupted.join()
    assert isinstance(store.apply([ASK, ASK], timeout=0.01)[0], Unknown)
    clock.advance(3)
    assert isinstance(store.apply([ASK, ASK], timeout=0.01)[0], Granted)
