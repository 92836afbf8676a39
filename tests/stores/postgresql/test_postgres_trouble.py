"""Servers that go, hang, refuse and come back; and what is said about it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Release, Renew, Renewed, Unknown
from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.postgresql import PostgresStore
from lessor.stores.postgresql.trouble import Refused, explain
from lessor.stores.registry import open_store as open_any
from lessor.testing.conformance.base import Thread, taken, until
from tests.needs import not_here
from tests.servers import free_port
from tests.servers.postgres import PostgresServer, postgres_server
from tests.stores.crowding import turns_of_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ASK = Acquire("x", "A", "h", 600 * SECOND)
SECRET = "s3cr3t%2Fword"
PASSWORD = "s3cr3t/word"


@pytest.fixture(scope="module")
def durable() -> Iterator[PostgresServer]:
    """A server that means what it says about commits, and which these tests may stop."""
    with postgres_server() as server:
        yield server


def error_of(outcome: object) -> LessorError:
    assert isinstance(outcome, Unknown), outcome
    return outcome.error


def works(store: PostgresStore, lease_id: str = "A") -> bool:
    outcome = store.apply([ASK._replace(lease_id=lease_id)], timeout=5)[0]
    return isinstance(outcome, Granted | Held)


def test_grants_and_tokens_survive_a_crash(durable: PostgresServer, open_store: Callable[[str], PostgresStore]) -> None:
    """Whatever the session's default: grants, renewals and handovers are on disk when they are answered."""
    url = f"{durable.url}?namespace=crash"
    store = open_store(url)
    store.read(["x"], timeout=20)
    with durable.connect() as connection:
        connection.execute("ALTER DATABASE postgres SET synchronous_commit = off")
    durable.stop()
    durable.start()
    store = open_store(url)
    [one] = store.apply([ASK], timeout=20)
    many = store.apply([ASK._replace(resource=f"r{n}") for n in range(20)], timeout=20)
    [short] = store.apply([Acquire("short", "A", "h", SECOND)], timeout=20)
    assert isinstance(short, Granted)
    assert isinstance(store.apply([Renew("short", "A", short.token, 600 * SECOND)], timeout=20)[0], Renewed)
    store.apply([Acquire("handed", "A", "h", 600 * SECOND)], timeout=20)
    store.apply([Release("handed", "A", "next", state="left", reserve_ns=60 * SECOND)], timeout=20)
    durable.crash()
    assert isinstance(error_of(store.apply([ASK], timeout=2)[0]), StoreUnavailable)
    durable.start()
    until(lambda: works(store), "its return")
    [handed] = store.apply([Acquire("handed", "B", "next", SECOND)], timeout=20)
    assert isinstance(handed, Granted)
    assert handed.state == "left"
    records = store.read(["x", "short", *(f"r{n}" for n in range(20))], timeout=20)
    assert [r and r.token for r in records] == [o.token for o in (one, short, *many) if isinstance(o, Granted)]
    [later] = store.apply([Release("x", "A"), ASK._replace(lease_id="B")], timeout=20)[1:]
    assert isinstance(later, Granted)
    assert isinstance(one, Granted)
    assert later.token > one.token
    with durable.connect() as connection:
        connection.execute("ALTER DATABASE postgres RESET synchronous_commit")


def test_a_restart_behind_idle_connections_goes_unnoticed(
    durable: PostgresServer, open_store: Callable[[str], PostgresStore]
) -> None:
    store = open_store(f"{durable.url}?namespace=restart")
    assert works(store)
    durable.stop()
    durable.start()
    threading.Event().wait(0.15)  # so long idle that it is looked at
    assert isinstance(store.apply([ASK], timeout=20)[0], Granted)


def test_a_subscription_finds_its_way_back(durable: PostgresServer, open_store: Callable[[str], PostgresStore]) -> None:
    store = open_store(f"{durable.url}?namespace=subscription")
    assert works(store)
    subscription = store.subscribe()
    assert subscription is not None
    listener = Thread(lambda: subscription.get(60))
    durable.stop()
    until(lambda: subscription.address == "", "the loss")
    durable.start()
    assert listener.result(60) is None
    store.apply([ASK._replace(lease_id="B", queue=True, notify=subscription.address)], timeout=20)
    store.apply([Release("x", "A")], timeout=20)
    news = subscription.get(20)
    assert news
    assert news[0].lease_id == "B"  # type: ignore[union-attr]
    subscription.close()
    subscription.get(0)


def test_a_frozen_server_is_unknown_in_time_and_its_late_answer_is_nobodys(
    durable: PostgresServer, open_store: Callable[[str], PostgresStore]
) -> None:
    store = open_store(f"{durable.url}?namespace=frozen")
    [granted] = store.apply([ASK], timeout=20)
    assert isinstance(granted, Granted)
    with durable.standing_still():
        start = SYSTEM.now()
        outcome = store.apply([Acquire("y", "A", "h", SECOND)], timeout=0.3)[0]
        assert SYSTEM.now() - start < 60 * SECOND
        assert "didn't answer within 0.3 s" in str(error_of(outcome))
        assert store._connections._idle == []
        assert isinstance(
            error_of(store.apply([Renew("x", "A", granted.token, SECOND)], timeout=0.3)[0]), StoreUnavailable
        )
    assert isinstance(store.apply([Renew("x", "A", granted.token, SECOND)], timeout=20)[0], Renewed)


def test_a_frozen_subscription_is_given_up(
    durable: PostgresServer, open_store: Callable[[str], PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REFRESH", "ANSWER_WITHIN", "CONNECT_TIMEOUT"):
        monkeypatch.setattr(f"lessor.stores.postgresql.subscription.{name}", 0.2)
    store = open_store(f"{durable.url}?namespace=silent")
    assert works(store)
    subscription = store.subscribe()
    assert subscription is not None
    assert subscription.address
    with durable.standing_still():
        assert subscription.get(1.5) == []
        assert subscription.address == ""
    monkeypatch.setattr("lessor.stores.postgresql.subscription.ANSWER_WITHIN", 20)
    monkeypatch.setattr("lessor.stores.postgresql.subscription.CONNECT_TIMEOUT", 20)
    assert subscription.get(60) is None
    subscription.close()
    subscription.get(0)


def test_a_blackholed_connect(open_store: Callable[[str], PostgresStore]) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        store = open_store(f"postgresql://u:{SECRET}@127.0.0.1:{port}/db")
        start = SYSTEM.now()
        error = error_of(store.apply([ASK], timeout=0.3)[0])
        assert SYSTEM.now() - start < 60 * SECOND
        assert isinstance(error, StoreUnavailable)
        assert "can't be reached within" in str(error)
        assert PASSWORD not in str(error)


def test_nobody_listens_there_and_the_next_host_is_tried(
    store: PostgresStore, shared: str, open_store: Callable[[str], PostgresStore]
) -> None:
    dead = free_port()
    error = error_of(open_store(f"postgresql://u:{SECRET}@127.0.0.1:{dead}/db").apply([ASK], timeout=5)[0])
    assert isinstance(error, StoreUnavailable)
    assert "can't be reached: Connection refused" in str(error)
    assert works(open_store(shared.replace("@", f"@127.0.0.1:{dead},") + "?namespace=second-host"))


def test_a_standby_is_refused_and_the_primary_found(
    store: PostgresStore, shared: str, open_store: Callable[[str], PostgresStore]
) -> None:
    with postgres_server() as server:
        server.stop()
        signal = Path(server.folder, "data", "standby.signal")
        signal.touch()
        if server.user is not None:
            os.chown(signal, *(getattr(os.stat(signal.parent), name) for name in ("st_uid", "st_gid")))
        server.start()
        error = error_of(open_store(server.url).apply([ASK], timeout=20)[0])
        assert isinstance(error, StoreUnavailable)
        assert "is a standby" in str(error)
        both = shared.replace("@", f"@127.0.0.1:{server.port},")
        assert works(open_store(f"{both}?namespace=primary"))


def test_a_server_that_turns_read_only(store: PostgresStore, raw: psycopg.Connection, shared: str) -> None:
    assert works(store)
    raw.execute("ALTER DATABASE {} SET default_transaction_read_only = on".format(shared.rpartition("/")[2]))
    try:
        store._connections._drop_idle()
        error = error_of(store.apply([Acquire("y", "A", "h", SECOND)], timeout=20)[0])
        assert "takes no writes" in str(error)
    finally:
        raw.execute("SET default_transaction_read_only = off")
        raw.execute("ALTER DATABASE {} RESET default_transaction_read_only".format(shared.rpartition("/")[2]))
    assert works(store)


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that asks for passwords, and has room for few."""
    with postgres_server("fsync=off", "max_connections=12", "superuser_reserved_connections=3") as server:
        with server.connect() as connection:
            connection.execute(f"CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'")
            connection.execute("GRANT CREATE ON DATABASE postgres TO app")
        rules = Path(server.folder, "data", "pg_hba.conf")
        rules.write_text("host all postgres all trust\nhost all app all scram-sha-256\n")
        server.stop()
        server.start()
        yield server


@pytest.mark.parametrize(
    ("login", "database", "says"),
    [
        ("app:wr0ng", "postgres", "refuses the user name or password"),
        ("app", "postgres", "refuses the user name or password"),
        ("nobody", "postgres", "doesn't let this user in"),
        (f"app:{SECRET}", "nowhere", "has no such database"),
    ],
)
def test_who_is_not_let_in(
    guarded: PostgresServer, open_store: Callable[[str], PostgresStore], login: str, database: str, says: str
) -> None:
    store = open_store(f"postgresql://{login}@127.0.0.1:{guarded.port}/{database}")
    error = error_of(store.apply([ASK], timeout=20)[0])
    assert isinstance(error, ConfigError)
    assert says in str(error)
    for secret in (PASSWORD, SECRET, "wr0ng"):
        assert secret not in f"{error!r} {store!r} {store.url} {store._address!r}"


@pytest.fixture
def sealed() -> Iterator[PostgresServer]:
    """A server with TLS."""
    with postgres_server("fsync=off") as server:
        key, certificate = (Path(server.folder, "data", f"server.{kind}") for kind in ("key", "crt"))
        try:
            subprocess.run(
                [
                    "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "1", "-keyout", key, "-out", certificate, "-subj", "/CN=localhost",
                ],
                check=True,
                capture_output=True,
            )  # fmt: skip
        except FileNotFoundError:
            not_here("openssl is not installed")
        key.chmod(0o600)
        if server.user is not None:
            shutil.chown(key, server.user)
            shutil.chown(certificate, server.user)
        with server.connect() as connection:
            connection.execute("ALTER SYSTEM SET ssl = on")
        server.stop()
        server.start()
        yield server


def test_a_certificate_that_is_not_there_is_no_missing_database(
    sealed: PostgresServer, open_store: Callable[[str], PostgresStore]
) -> None:
    assert works(open_store(f"{sealed.url}?sslmode=require"))
    store = open_store(f"{sealed.url}?sslmode=verify-full&sslrootcert=/nowhere/root.crt")
    error = error_of(store.apply([ASK], timeout=20)[0])
    assert isinstance(error, ConfigError)
    assert 'root certificate file "/nowhere/root.crt" does not exist' in str(error)
    assert "see sslrootcert" in str(error)


def test_a_right_password_and_too_many_connections(
    guarded: PostgresServer, open_store: Callable[[str], PostgresStore]
) -> None:
    url = f"postgresql://app:{SECRET}@127.0.0.1:{guarded.port}/postgres"
    first = open_store(url)
    assert works(first)
    assert first.url == f"postgresql://app@127.0.0.1:{guarded.port}/postgres?namespace=default"
    used: list[psycopg.Connection] = []
    try:
        with contextlib.suppress(psycopg.OperationalError):
            while len(used) < 20:
                used.append(psycopg.connect(url))
        assert len(used) < 20
        error = error_of(open_store(url).apply([ASK], timeout=20)[0])
        assert isinstance(error, StoreUnavailable)
        assert "as many connections as it takes" in str(error)
        assert works(first)
    finally:
        for connection in used:
            connection.close()


def test_a_statement_timeout_of_the_server(guarded: PostgresServer, open_store: Callable[[str], PostgresStore]) -> None:
    with guarded.connect() as connection:
        connection.execute("ALTER ROLE app SET statement_timeout = '300ms'")
    store = open_store(f"postgresql://app:{SECRET}@127.0.0.1:{guarded.port}/postgres?namespace=slow")
    with guarded.connect() as connection:
        works(store)
        connection.execute("BEGIN")
        connection.execute("SELECT FROM lessor.entries WHERE resource = 'x' FOR UPDATE")
        error = error_of(store.apply([ASK._replace(lease_id="B")], timeout=20)[0])
        assert "see statement_timeout" in str(error)
        connection.execute("ROLLBACK")
        connection.execute("ALTER ROLE app RESET statement_timeout")


def test_a_server_that_is_too_old(
    shared: str, open_store: Callable[[str], PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lessor.stores.postgresql.connection.OLDEST", 990000)
    error = error_of(open_store(shared).apply([ASK], timeout=20)[0])
    assert isinstance(error, ConfigError)
    assert "is the oldest that works" in str(error)


def test_what_else_the_server_may_say(store: PostgresStore) -> None:
    assert "no disk space" in str(explain(Refused("53100", "x"), store._address))
    other = explain(Refused("XX000", "something odd"), store._address)
    assert isinstance(other, StoreUnavailable)
    assert "something odd (XX000)" in str(other)


def test_all_connections_in_use(store: PostgresStore, raw: psycopg.Connection) -> None:
    """Those who wait for a row must not keep a renewal waiting for a connection."""
    granted = taken(store, "y", 600, "A")
    store.apply([ASK], timeout=20)
    raw.execute("BEGIN")
    raw.execute("SELECT FROM lessor.entries WHERE resource = 'x' FOR UPDATE")
    threads = [Thread(lambda n=n: store.apply([ASK._replace(lease_id=f"B{n}")], timeout=60)[0]) for n in range(20)]  # type: ignore[misc]
    until(lambda: len(store._connections._slots) >= 16 and len(store._connections._queue) > 0, "all connections in use")
    assert isinstance(store.apply([Renew("y", "A", granted.token, 600 * SECOND)], timeout=20)[0], Renewed)
    raw.execute("ROLLBACK")
    assert {type(thread.result(60)) for thread in threads} == {Held}


def test_a_closed_store_says_so(store: PostgresStore) -> None:
    store.close()
    assert "is closed" in str(error_of(store.apply([ASK], timeout=5)[0]))


def test_closing_wakes_the_listener(store: PostgresStore) -> None:
    subscription = store.subscribe()
    assert subscription is not None
    listener = Thread(lambda: subscription.get(60))
    subscription.close()
    assert listener.result(20) == []


def test_a_client_that_came_before_the_server(open_store: Callable[[str], PostgresStore]) -> None:
    with postgres_server("fsync=off") as server:
        server.stop()
        store = open_store(server.url)
        subscription = store.subscribe()
        assert subscription is not None
        assert subscription.address == ""
        server.start()
        assert subscription.get(60) is None
        assert subscription.address
        subscription.close()
        subscription.get(0)


def test_a_forked_child_does_not_use_the_sockets_of_its_parent(store: PostgresStore) -> None:
    assert works(store)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if store._connections._idle == [] and works(store) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert works(store)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://localhost/db", "postgresql://localhost/db?namespace=default"),
        ("postgres://u:p@h:5433/db?namespace=n", "postgresql://u@h:5433/db?namespace=n"),
        ("postgresql+psycopg://h1,h2:5433/db", "postgresql://h1,h2:5433/db?namespace=default"),
        ("postgresql://[::1]:5433/db", "postgresql://[::1]:5433/db?namespace=default"),
        (
            "postgresql:///db?host=/run/pg&sslmode=disable",
            "postgresql://%2Frun%2Fpg/db?namespace=default&sslmode=disable",
        ),
        ("postgresql://h/db?password=p&sslpassword=q", "postgresql://h/db?namespace=default"),
    ],
)
def test_urls(url: str, shown: str) -> None:
    store = open_any(url, SYSTEM)
    assert store.url == shown
    assert open_any(store.url, SYSTEM).url == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h:port/db",
        "postgresql://h/db?nonsense=1",
        "postgresql://h/db?namespace=a%20b",
        "postgresql://h/db?schema=pg_mine",
        "postgresql://h/db?schema=",
        "postgresql://h1,h2,h3/db?port=1,2",
        "postgresql://h/db?listen=redis://h",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        PostgresStore(StoreURL.parse(url), SYSTEM)


def test_whoever_waits_for_a_connection_is_not_overtaken(url: str) -> None:
    turns = turns_of_each(url)
    assert turns[0] >= turns[-1] / 20, turns


def test_tls_to_a_server_without_tls_says_so(
    guarded: PostgresServer, open_store: Callable[[str], PostgresStore]
) -> None:
    store = open_store(f"postgresql://postgres@127.0.0.1:{guarded.port}/postgres?sslmode=require")
    error = error_of(store.apply([ASK], timeout=20)[0])
    assert isinstance(error, ConfigError)
    assert "doesn't speak TLS, and sslmode in the URL requires it" in str(error)


def test_a_password_from_a_file(
    guarded: PostgresServer, open_store: Callable[[str], PostgresStore], tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    place = f"127.0.0.1:{guarded.port}/postgres"
    store = open_store(f"postgresql://app@{place}?password_file={tmp_path}/password")
    assert works(store)
    assert works(open_store(store.url))
