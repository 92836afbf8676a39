"""Behind PgBouncer in transaction mode, where nothing of a connection lasts from one statement to the next."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Release, Renew, Renewed
from lessor.stores.base import Capability
from lessor.testing.conformance.base import Thread, until
from tests.servers import free_port
from tests.servers.postgres import pgbouncer
from tests.servers.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.stores.postgresql import PostgresStore
    from tests.servers.postgres import PgBouncer, PostgresServer

ASK = Acquire("x", "A", "h", 60 * SECOND)


@pytest.fixture(scope="module")
def pooler(postgres: PostgresServer) -> Iterator[PgBouncer]:
    with pgbouncer(postgres, default_pool_size="2") as pooler:
        yield pooler


@pytest.fixture
def pooled(pooler: PgBouncer, url: str) -> str:
    return f"{pooler.address}/{url.rpartition('/')[2]}"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test finds out for itself."""
    monkeypatch.setattr("lessor.stores.postgresql.store._deaf", set())


def test_more_clients_than_connections(pooled: str, open_store: Callable[[str], PostgresStore]) -> None:
    """The server's connections go from hand to hand, so a prepared statement would be missing at the next."""

    def work(n: int) -> list[object]:
        store = open_store(pooled)
        kinds: list[object] = []
        for turn in range(20):
            name, lease_id = f"r{n}", f"{turn}"
            [granted] = store.apply([Acquire(name, lease_id, "h", SECOND)], timeout=20)
            assert isinstance(granted, Granted), granted
            kinds += store.apply([Renew(name, lease_id, granted.token, SECOND)], timeout=20)
            store.apply([Release(name, lease_id)], timeout=20)
        return kinds

    threads = [Thread(lambda n=n: work(n)) for n in range(6)]  # type: ignore[misc]
    assert {type(kind) for thread in threads for kind in thread.result(60)} == {Renewed}


def test_a_pooler_that_was_not_noticed(pooled: str, open_store: Callable[[str], PostgresStore]) -> None:
    """One that passes the server's own number on: then a statement is missing, and is sent whole from there on."""
    stores = [open_store(pooled) for _ in range(4)]
    for store in stores:
        store.read(["x"], timeout=20)
        assert store._connections._idle[0].pooled
        store._connections._idle[0].pooled = False
    for turn in range(10):
        for store in stores:
            outcome = store.apply([ASK._replace(lease_id=f"{turn}")], timeout=20)[0]
            assert isinstance(outcome, Granted), outcome
            store.apply([Release("x", f"{turn}")], timeout=20)


def test_without_calls_and_said_once(
    pooled: str, open_store: Callable[[str], PostgresStore], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lessor"):
        store, other = open_store(pooled), open_store(pooled)
        assert Capability.PUSH in store.guarantees.capabilities
        assert store.subscribe() is None
        assert store.subscribe("") is None
        assert other.subscribe() is None
    assert Capability.PUSH not in store.guarantees.capabilities
    assert store.guarantees.waiting_order == "best effort"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "LISTEN doesn't work through the pooler" in said[0]
    assert Capability.PUSH not in open_store(pooled).guarantees.capabilities


@pytest.mark.parametrize("prefix", [None, ""], ids=["waiter", "watcher"])
def test_a_pooler_that_came_later_than_its_client_is_found_out_too(
    pooled: str,
    pooler: PgBouncer,
    prefix: str | None,
    open_store: Callable[[str], PostgresStore],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Tunnel(free_port()) as way, caplog.at_level(logging.WARNING, "lessor"):
        store = open_store(pooled.replace(str(pooler.port), str(way.port)))
        subscription = store.subscribe(prefix)
        assert subscription is not None
        way.lead(pooler.port)

        def found_out() -> bool:
            subscription.get(1)
            return Capability.PUSH not in store.guarantees.capabilities

        until(found_out, "what the pooler is")
        assert store.guarantees.waiting_order == "best effort"
        assert ["LISTEN doesn't work through the pooler" in record.getMessage() for record in caplog.records] == [True]
        before = way.passed
        assert [subscription.get(1) for _ in range(4)] == [[] if prefix is None else None] * 4
        assert way.passed == before
        assert store.subscribe(prefix) is None
        subscription.close()
        assert subscription.get(60) == []


def test_a_waiter_that_is_not_called_comes_by_itself(pooled: str) -> None:
    with Client(pooled) as one, Client(pooled) as other:
        lease = one.acquire("job", ttl=10)
        waiter = Thread(lambda: other.acquire("job", ttl=10, wait=60).release())
        lease.release()
        waiter.result(60)


def test_a_direct_address_to_listen_at(pooled: str, shared: str, open_store: Callable[[str], PostgresStore]) -> None:
    store = open_store(f"{pooled}&listen={shared.replace('postgres@', 'postgres:s3cr3t@')}")
    assert "s3cr3t" not in store.url
    assert "listen=postgresql%3A%2F%2Fpostgres%40" in store.url
    subscription = store.subscribe()
    assert subscription is not None
    store.apply([ASK], timeout=20)
    store.apply([ASK._replace(lease_id="B", queue=True, notify=subscription.address)], timeout=20)
    store.apply([Release("x", "A")], timeout=20)
    assert subscription.get(20)
    subscription.close()
    subscription.get(0)


def test_a_pooler_in_session_mode_lets_calls_through(
    postgres: PostgresServer, url: str, open_store: Callable[[str], PostgresStore]
) -> None:
    with pgbouncer(postgres, pool_mode="session") as pooler:
        store = open_store(f"{pooler.address}/{url.rpartition('/')[2]}")
        subscription = store.subscribe()
        assert subscription is not None
        store.apply([ASK], timeout=20)
        store.apply([ASK._replace(lease_id="B", queue=True, notify=subscription.address)], timeout=20)
        store.apply([Release("x", "A")], timeout=20)
        assert subscription.get(20)
        subscription.close()
        subscription.get(0)
        store.close()
