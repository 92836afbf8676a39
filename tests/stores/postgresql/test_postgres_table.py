"""What is in the tables, what goes by itself, and what is said to whom."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Event, Granted, Notice, Release, Renew, Renewed
from lessor.stores.postgresql import codec
from lessor.testing.conformance.base import taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from lessor.core.ops import Op
    from lessor.stores.postgresql import PostgresStore
    from tests.servers.postgres import PostgresServer

ASK = Acquire("x", "A", "h", 60 * SECOND)


@pytest.fixture
def ear(postgres: PostgresServer, shared: str) -> Iterator[psycopg.Connection]:
    """A connection that listens to all that is said in this namespace or to a waiter called 'ear'."""
    with postgres.connect(shared.rpartition("/")[2]) as connection:
        yield connection


def heard(ear: psycopg.Connection, raw: psycopg.Connection) -> list[str]:
    """Return what came before a last word, which is said now."""
    raw.execute("NOTIFY lessor_test, 'last word'")
    payloads: list[str] = []
    for notify in ear.notifies(timeout=20):
        if notify.payload == "last word":
            return payloads
        payloads.append(notify.payload)
    raise AssertionError("silence")


def test_nobody_is_told_unless_somebody_waits_or_watches(
    store: PostgresStore, raw: psycopg.Connection, ear: psycopg.Connection
) -> None:
    events = raw.execute("SELECT md5('lessor.' || %s)", (store._address.namespace,)).fetchone()
    assert events is not None
    for channel in ("lessor_test", "lessor:ear", f"lessor:{events[0]}"):
        ear.execute(f'LISTEN "{channel}"')
    many = [ASK._replace(resource=f"r{n}", notify="ear") for n in range(10)]
    granted = taken(store, "x", 60, "A", notify="ear")
    store.apply(many, timeout=20)
    store.apply([Renew("x", "A", granted.token, 60 * SECOND)], timeout=20)
    store.apply([Release(op.resource, op.lease_id) for op in many], timeout=20)
    assert heard(ear, raw) == []

    store.apply([Acquire("x", "B", "b", SECOND, queue=True, notify="ear")], timeout=20)
    store.apply([Release("x", "A")], timeout=20)
    assert heard(ear, raw) == ['[["reserved", "x", "B"]]']

    watch = store.subscribe("")
    store.apply([Acquire("y", "A", "h", SECOND)], timeout=20)
    assert len(heard(ear, raw)) == 1
    watch.close()  # type: ignore[union-attr]
    watch.get(0)  # type: ignore[union-attr]


def test_a_batch_with_more_events_than_a_notification_takes(store: PostgresStore) -> None:
    watch = store.subscribe("")
    assert watch is not None
    names = ["ü" * 200 + f"-{n:03}" for n in range(100)]
    granted = store.apply([Acquire(n, "A", "h" * 256, 60 * SECOND) for n in names], timeout=20)
    assert {type(o) for o in granted} == {Granted}
    events: list[Event | Notice] = []
    while len(events) < 100:
        events += watch.get(20) or ()
    assert [e.resource for e in events] == names
    watch.close()
    watch.get(0)


def test_a_watcher_is_told_only_while_it_says_so(
    store: PostgresStore, raw: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lessor.stores.postgresql.subscription.REFRESH", 0.05)
    watched = "SELECT watched_until FROM lessor.spaces WHERE namespace = %s"
    watch = store.subscribe("")
    assert watch is not None
    first = raw.execute(watched, (store._address.namespace,)).fetchone()
    watch.get(0.3)
    later = raw.execute(watched, (store._address.namespace,)).fetchone()
    assert first is not None
    assert later is not None
    assert later[0] > first[0]
    watch.close()
    watch.get(0)


def test_a_watcher_looks_again_after_those_who_did_not_know_of_it(
    store: PostgresStore, postgres: PostgresServer, shared: str
) -> None:
    """A transaction that began before the watch says nothing: the watcher is told that it may have missed something."""
    import psycopg

    with psycopg.connect(shared) as old:
        store.apply_in(old, [ASK])
        watch = store.subscribe("")
        assert watch is not None
        assert watch.get(0.5) == []
        old.commit()
        news: object = []
        while news == []:
            news = watch.get(20)
        assert news is None
    watch.close()
    watch.get(0)


def test_ten_thousand_that_come_and_go(store: PostgresStore, raw: psycopg.Connection) -> None:
    highest = 0
    for start in range(0, 10_000, 1000):
        ops = [Acquire(f"job-{n}", "A", "h", SECOND) for n in range(start, start + 1000)]
        highest = max(highest, *(o.token for o in store.apply(ops, timeout=60) if isinstance(o, Granted)))
        store.apply([Release(op.resource, "A") for op in ops], timeout=60)
    count = "SELECT count(*) FROM lessor.entries WHERE namespace = %s"
    namespace = store._address.namespace
    for _ in range(45):  # twice around
        store.collect()
    assert raw.execute(count, (namespace,)).fetchone() == (0,)
    assert raw.execute("SELECT floor FROM lessor.spaces WHERE namespace = %s", (namespace,)).fetchone() == (highest,)


def test_collection_happens_by_itself_and_spares_the_living(
    store: PostgresStore, raw: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lessor.stores.postgresql.store.COLLECT_EVERY", 20)
    monkeypatch.setattr("lessor.stores.postgresql.store.KEEP", 0)
    random.seed(1)
    held = [Acquire(f"held-{n}", "A", "h", 600 * SECOND) for n in range(10)]
    granted = [taken(store, op.resource, 600, "A") for op in held]
    store.apply([Acquire("held-0", "B", "b", SECOND, queue=True)], timeout=20)
    for n in range(300):
        store.apply([Acquire(f"job-{n}", "A", "h", SECOND)], timeout=20)
        store.apply([Release(f"job-{n}", "A")], timeout=20)
    left = raw.execute("SELECT count(*) FROM lessor.entries WHERE namespace = %s", (store._address.namespace,))
    assert left.fetchone()[0] < 200  # type: ignore[index]
    renewals = [Renew(op.resource, "A", g.token, 600 * SECOND) for op, g in zip(held, granted, strict=True)]
    assert {type(o) for o in store.apply(renewals, timeout=20)} == {Renewed}


def test_an_abandoned_id_is_not_collected_with_its_entry(store: PostgresStore, raw: psycopg.Connection) -> None:
    store.apply([Release("x", "A", abandon=True)], timeout=20)
    store.collect()
    assert not isinstance(store.apply([ASK], timeout=20)[0], Granted)


def test_collection_waits_for_nobody(store: PostgresStore, raw: psycopg.Connection) -> None:
    store.apply([ASK, ASK._replace(resource="y")], timeout=20)
    store.apply([Release("x", "A"), Release("y", "A")], timeout=20)
    raw.execute("BEGIN")
    raw.execute("SELECT FROM lessor.entries WHERE resource = 'x' FOR UPDATE")
    store.collect()
    raw.execute("ROLLBACK")
    left = raw.execute("SELECT resource FROM lessor.entries WHERE namespace = %s", (store._address.namespace,))
    assert left.fetchall() == [("x",)]


def test_a_scan_in_many_pages(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lessor.stores.postgresql.store.PAGE", 7)
    names = sorted([f"job/{n}" for n in range(30)] + ["job", "jobs", "é", "\U0001f512", "job/\U0010ffff"])
    store.apply([Acquire(name, "A", "h", 60 * SECOND) for name in names], timeout=20)
    store.apply([Release(name, "A") for name in names[3:12]], timeout=20)
    left = names[:3] + names[12:]
    assert [r.resource for r in store.scan("", timeout=20)] == left
    assert [r.resource for r in store.scan("job/", timeout=20)] == [n for n in left if n.startswith("job/")]


def test_the_view_for_people(store: PostgresStore, raw: psycopg.Connection) -> None:
    store.apply([ASK._replace(metadata='{"a":"b"}'), ASK._replace(resource="y")], timeout=20)
    store.apply([Acquire("x", "B", "b", SECOND, queue=True), Release("y", "A")], timeout=20)
    seen = raw.execute(
        "SELECT resource, holder, metadata, waiting, expires > now() FROM lessor.leases WHERE namespace = %s",
        (store._address.namespace,),
    ).fetchall()
    assert seen == [("x", "h", '{"a":"b"}', 1, True)]


def test_updates_stay_in_their_pages(store: PostgresStore, raw: psycopg.Connection) -> None:
    """Or the index grows with every renewal."""
    store.apply([ASK], timeout=20)
    raw.execute("SELECT pg_stat_reset()")
    for turn in range(50):
        store.apply([Release("x", f"A{turn - 1}" if turn else "A")], timeout=20)
        store.apply([ASK._replace(lease_id=f"A{turn}")], timeout=20)
    before = raw.execute("SELECT pg_relation_size('lessor.entries_pkey')").fetchone()
    for turn in range(50, 100):
        store.apply([Release("x", f"A{turn - 1}")], timeout=20)
        store.apply([ASK._replace(lease_id=f"A{turn}")], timeout=20)
    assert raw.execute("SELECT pg_relation_size('lessor.entries_pkey')").fetchone() == before


def test_a_plan_made_for_an_empty_table_is_good_for_a_full_one(
    postgres: PostgresServer, open_store: Callable[[str], PostgresStore]
) -> None:
    """Connections keep their plans: one that reads the whole table would be slower with every lease."""
    url = postgres.database()
    store = open_store(url)
    store.read(["x"], timeout=20)
    with postgres.connect(url.rpartition("/")[2]) as raw:

        def call(*ops: Op) -> None:
            raw.execute("SELECT lessor.apply('default', %s, 1000)", (codec.batch(ops).decode(),))

        def a_day(turn: int) -> None:
            for names in (["x"], ["x", "y"]):
                asks = [Acquire(name, f"{turn}", "h", SECOND) for name in names]
                raw.execute(f"SELECT lessor.acquire('default', 'z', '{turn}', 'h', 9, false, '', 0, '', 9)")
                call(*asks)
                call(*(Renew(name, f"{turn}", 0, SECOND) for name in names))
                call(Acquire("x", "W", "w", SECOND, queue=True))
                call(*(Release(name, f"{turn}") for name in names))
                call(Acquire("x", "W", "w", SECOND), Release("x", "W"))
                raw.execute(f"SELECT lessor.release('default', 'z', '{turn}', 9)")
            raw.execute("SELECT lessor.read('default', '[\"x\", \"y\"]'), lessor.scan('default', 'x', '', 10)")

        for turn in range(10):
            a_day(turn)
        for start in range(0, 2000, 1000):
            store.apply([Acquire(f"job-{n}", "A", "h", 600 * SECOND) for n in range(start, start + 1000)], timeout=60)
        raw.execute("BEGIN")
        a_day(10)
        read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'entries'"
        [rows] = raw.execute(read).fetchone() or (0,)
        raw.execute("COMMIT")
        assert 20 < rows < 2000  # not even once all of them
