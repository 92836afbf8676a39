"""Other people's transactions, and batches that meet: who waits, who doesn't, and nobody for ever."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Lost, Release, Released, Renew, Renewed, Revoke, Unknown
from lessor.errors import StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import Thread, taken, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from lessor.core.ops import Op
    from lessor.stores.postgresql import PostgresStore


@pytest.fixture
def lock(store: PostgresStore, raw: psycopg.Connection) -> Iterator[Callable[[str], None]]:
    """Return what locks a row, as a long transaction would, until the test ends."""
    raw.execute("BEGIN")

    def lock(resource: str) -> None:
        row = "SELECT FROM lessor.entries WHERE namespace = %s AND resource = %s FOR UPDATE"
        assert raw.execute(row, (store._address.namespace, resource)).rowcount == 1

    yield lock
    raw.execute("ROLLBACK")


def seconds_since(start: int) -> float:
    return (SYSTEM.now() - start) / SECOND


def test_a_locked_row_stalls_no_other_renewal(store: PostgresStore, lock: Callable[[str], None]) -> None:
    names = [f"job-{n}" for n in range(20)]
    held = [taken(store, name, 60, "A") for name in names]
    lock("job-7")
    outcomes = store.apply([Renew(n, "A", g.token, 60 * SECOND) for n, g in zip(names, held, strict=True)], timeout=20)
    for name, outcome in zip(names, outcomes, strict=True):
        if name == "job-7":
            assert isinstance(outcome, Unknown)
            assert "'job-7' is locked by somebody's transaction" in str(outcome.error)
        else:
            assert isinstance(outcome, Renewed)


def test_a_renewal_waits_out_a_short_lock(store: PostgresStore, raw: psycopg.Connection) -> None:
    granted = taken(store, "x", 60, "A")
    raw.execute("BEGIN")
    raw.execute("SELECT FROM lessor.entries WHERE resource = 'x' FOR UPDATE")
    started = threading.Event()

    def renew() -> object:
        started.set()
        for _ in range(200):  # the lock may outlast the pauses of one call on a busy machine
            outcome = store.apply([Renew("x", "A", granted.token, 60 * SECOND)], timeout=20)[0]
            if isinstance(outcome, Renewed):
                return outcome
        return None

    thread = Thread(renew)
    started.wait()
    raw.execute("ROLLBACK")
    assert isinstance(thread.result(), Renewed)


@pytest.mark.parametrize("op", [Acquire("x", "B", "h", SECOND), Release("x", "A"), Release("x", "A", abandon=True)])
def test_an_operation_waits_for_a_locked_row_within_its_timeout(
    store: PostgresStore, lock: Callable[[str], None], op: Op
) -> None:
    store.apply([Acquire("x", "A", "h", 60 * SECOND)], timeout=20)
    lock("x")
    start = SYSTEM.now()
    [outcome] = store.apply([op], timeout=0.5)
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, StoreUnavailable)
    assert 0.4 < seconds_since(start) < 60


def test_a_locked_row_fails_only_its_own_operations_in_a_batch(
    store: PostgresStore, lock: Callable[[str], None]
) -> None:
    store.apply([Acquire("x", "A", "h", 60 * SECOND)], timeout=20)
    lock("x")
    ops: list[Op] = [
        Acquire("a", "A", "h", SECOND),
        Release("x", "A"),
        Acquire("z", "A", "h", SECOND),
        Renew("x", "A", 0, SECOND),
    ]
    outcomes = store.apply(ops, timeout=20)
    assert [type(o) for o in outcomes] == [Granted, Unknown, Granted, Unknown]


def test_a_locked_child_fails_the_end_of_its_parent_only(store: PostgresStore, lock: Callable[[str], None]) -> None:
    parent = taken(store, "p", 60, "A")
    store.apply([Acquire("c", "B", "h", 0, parent=("p", parent.token))], timeout=20)
    lock("c")
    outcomes = store.apply([Release("p", "A"), Acquire("z", "A", "h", SECOND)], timeout=20)
    assert [type(o) for o in outcomes] == [Unknown, Granted]


def test_a_locked_parent_fails_the_revocation_of_its_child_only(
    store: PostgresStore, lock: Callable[[str], None]
) -> None:
    parent = taken(store, "p", 60, "A")
    taken(store, "c", 0, "B", parent=("p", parent.token), soft_ns=1000)
    lock("p")
    ops: list[Op] = [Revoke("c"), Acquire("c", "D", "h", SECOND, recover=True), Acquire("z", "A", "h", SECOND)]
    assert [type(o) for o in store.apply(ops, timeout=20)] == [Unknown, Unknown, Granted]
    assert isinstance(store.apply([Acquire("c", "D", "h", SECOND)], timeout=20)[0], Held)


def test_a_waiting_acquire_gets_the_row_when_it_is_let_go(store: PostgresStore, raw: psycopg.Connection) -> None:
    store.apply([Acquire("x", "A", "h", 60 * SECOND)], timeout=20)
    raw.execute("BEGIN")
    raw.execute("SELECT FROM lessor.entries WHERE resource = 'x' FOR UPDATE")
    thread = Thread(lambda: store.apply([Acquire("x", "B", "h", SECOND)], timeout=20)[0])
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%acquire%%'"
    until(lambda: raw.execute(waiting).fetchone() != (0,), "the wait for the lock")
    raw.execute("ROLLBACK")
    assert isinstance(thread.result(), Held)


def test_batches_in_different_orders_never_deadlock(
    store: PostgresStore,
    raw: psycopg.Connection,
    open_store: Callable[[], PostgresStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """New names, old names, many threads: two may wait for each other's rows only if the order of locks is wrong."""
    monkeypatch.setattr("lessor.stores.postgresql.store.SHORT_WAIT", 20)  # a busy machine may take its time
    names = [f"r{n}" for n in range(12)]
    before = raw.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()

    def work(seed: int) -> int:
        chance = random.Random(seed)
        mine = open_store()
        got = 0
        for turn in range(40):
            chosen = chance.sample(names, 6) + [f"new-{turn}-{n}" for n in chance.sample(range(6), 3)]
            lease_id = f"{seed}-{turn}"
            ops = [Acquire(name, lease_id, f"h{seed}", 60 * SECOND) for name in chosen]
            outcomes = mine.apply(ops, timeout=20)
            assert not [o for o in outcomes if isinstance(o, Unknown)], outcomes
            got += sum(isinstance(o, Granted) for o in outcomes)
            chance.shuffle(chosen)
            outcomes = mine.apply([Release(name, lease_id) for name in chosen], timeout=20)
            assert not [o for o in outcomes if isinstance(o, Unknown)], outcomes
        return got

    threads = [Thread(lambda seed=seed: work(seed)) for seed in range(8)]  # type: ignore[misc]
    assert sum(thread.result(100) for thread in threads) > 0
    raw.execute("SELECT pg_stat_clear_snapshot()")
    after = raw.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert after == before


def test_families_that_meet_never_deadlock(store: PostgresStore, open_store: Callable[[], PostgresStore]) -> None:
    """Parents and children are locked in the order of names, wherever they stand."""
    pairs = [("a", "b"), ("b", "a"), ("c", "a"), ("a", "c")]

    def work(seed: int) -> None:
        chance = random.Random(seed)
        mine = open_store()
        for turn in range(30):
            lease_id = f"{seed}-{turn}"
            above, below = chance.choice(pairs)
            [got] = mine.apply([Acquire(above, lease_id, "h", 60 * SECOND)], timeout=20)
            token = got.token if isinstance(got, Granted) else 0
            child = Acquire(below, lease_id, "h", 0, parent=(above, token), soft_ns=1000)
            outcomes = [got, *mine.apply([child], timeout=20)]
            challenge = Acquire(below, "challenger", "h", 60 * SECOND, recover=True)
            outcomes += [*mine.apply([challenge], timeout=20), *mine.apply([Release(below, "challenger")], timeout=20)]
            outcomes += mine.apply([Revoke(below, force=chance.random() < 0.5)], timeout=20)
            outcomes += mine.apply([Release(above, lease_id)], timeout=20)
            outcomes += mine.apply([Release(below, lease_id)], timeout=20)
            wrong = [o for o in outcomes if isinstance(o, Unknown) and isinstance(o.error, StoreUnavailable)]
            assert not wrong, outcomes

    threads = [Thread(lambda seed=seed: work(seed)) for seed in range(6)]  # type: ignore[misc]
    for thread in threads:
        thread.result(100)
    assert list(store.scan("", timeout=20)) == []


def test_one_of_many_gets_it(open_store: Callable[[], PostgresStore]) -> None:
    """At the very first acquire of a name, when nobody has a row to lock yet."""
    stores = [open_store() for _ in range(6)]
    for turn in range(20):
        go = threading.Barrier(len(stores))

        def ask(n: int, turn: int = turn, go: threading.Barrier = go) -> object:
            go.wait()
            return stores[n].apply([Acquire(f"new-{turn}", f"id{n}", "h", 60 * SECOND)], timeout=20)[0]

        threads = [Thread(lambda n=n: ask(n)) for n in range(len(stores))]  # type: ignore[misc]
        outcomes = [thread.result() for thread in threads]
        assert sorted(type(o).__name__ for o in outcomes) == ["Granted", *["Held"] * 5]


def test_tokens_rise_whoever_holds_and_however_it_ends(
    open_store: Callable[[], PostgresStore], raw: psycopg.Connection
) -> None:
    stores = [open_store() for _ in range(4)]
    tokens: list[int] = []
    guard = threading.Lock()

    def work(n: int) -> None:
        for turn in range(60):
            [got] = stores[n].apply([Acquire("x", f"{n}-{turn}", "h", 60 * SECOND)], timeout=20)
            if isinstance(got, Granted):
                with guard:
                    tokens.append(got.token)
                [end] = stores[n].apply([Release("x", f"{n}-{turn}")], timeout=20)
                assert isinstance(end, Released)
                stores[n].collect()

    threads = [Thread(lambda n=n: work(n)) for n in range(len(stores))]  # type: ignore[misc]
    for thread in threads:
        thread.result(100)
    assert len(tokens) > 20
    assert tokens == sorted(set(tokens)), "tokens out of order"
    [lost] = stores[0].apply([Renew("x", "somebody", tokens[-1] + 1, SECOND)], timeout=20)
    assert isinstance(lost, Lost)
