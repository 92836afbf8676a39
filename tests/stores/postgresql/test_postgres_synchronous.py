"""A commit that waits for a synchronous standby, and whose wait is cancelled, as operators do when the standby is gone.

The server then answers with success, and only warns that the commit may not be replicated.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psycopg
import pytest

from lessor.client.sync import Client
from lessor.core.ops import Acquire, Granted, Release, Released, Renew, Renewed, Unknown
from lessor.errors import StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, Thread, new_id, ns, taken, until
from tests.servers.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.core.ops import Op, Outcome
    from lessor.stores.base import Store


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with postgres_server("fsync=off", "full_page_writes=off") as server:
        yield server


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[Callable[[str], None]]:
    """Return what sets which standby the primary waits for; none of them is there."""

    def wait_for(names: str) -> None:
        with primary.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            connection.execute("SELECT pg_reload_conf()")
        if names:
            until(lambda: _waits(primary), "a commit that waits for it")

    yield wait_for
    wait_for("")


def _waits(primary: PostgresServer) -> bool:
    """Whether a commit waits for the standby: some process of the server reads its new settings before that."""
    with primary.connect() as writer, primary.connect() as looker:
        writing = Thread(lambda: writer.execute("CREATE TABLE IF NOT EXISTS probe (); DROP TABLE probe"))
        asked = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = %s"
        while writing.is_alive():
            if looker.execute(asked, (writer.info.backend_pid,)).fetchone():
                writing.result()
                return True
            writing.join(0.005)
    return False


@pytest.fixture
def store(primary: PostgresServer) -> Iterator[Store]:
    store = open_store(primary.database(), SYSTEM)
    taken(store, "first", 30)  # the schema is there
    yield store
    store.close()


def _end_wait(primary: PostgresServer, how: str = "pg_cancel_backend") -> None:
    """Wait for a backend that waits for the standby, and end its wait."""
    with primary.connect() as connection:

        def waiting() -> list[int]:
            found = connection.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchall()
            return [pid for (pid,) in found]

        until(lambda: bool(waiting()), "a commit that waits")
        for pid in waiting():
            connection.execute(f"SELECT {how}(%s)", (pid,))


def _cancelled(primary: PostgresServer, store: Store, op: Op, how: str = "pg_cancel_backend") -> Outcome:
    asking = Thread(lambda: store.apply([op], timeout=PATIENCE))
    _end_wait(primary, how)
    [outcome] = asking.result()
    return outcome  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_grant_that_may_not_be_replicated_is_unknown(
    primary: PostgresServer, store: Store, standby: Callable[[str], None], how: str
) -> None:
    op = Acquire("job", new_id(), "somebody", ns(30))
    standby("gone")
    assert isinstance(_cancelled(primary, store, op, how), Unknown)
    again = _cancelled(primary, store, op)  # its own grant is there, and has to be replicated as well
    assert isinstance(again, Unknown)
    assert "standby" in str(again.error)
    standby("")
    assert isinstance(store.apply([op], timeout=PATIENCE)[0], Granted)


def test_the_warning_comes_whatever_the_session_wants_to_hear(
    primary: PostgresServer, store: Store, standby: Callable[[str], None]
) -> None:
    name = store.url.rpartition("/")[2].partition("?")[0]
    with primary.connect() as connection:
        connection.execute(f'ALTER DATABASE "{name}" SET client_min_messages = error')
    with contextlib.closing(open_store(store.url, SYSTEM)) as quiet:
        lease_id = new_id()
        token = taken(quiet, "job", 30, lease_id).token
        standby("gone")
        assert isinstance(_cancelled(primary, quiet, Acquire("other", new_id(), "somebody", ns(30))), Unknown)
        [outcome] = _asked_while_cancelled(primary, quiet, Renew("job", lease_id, token, ns(30)))
        assert isinstance(outcome, Unknown)
        standby("")


def test_a_renewal_that_may_not_be_replicated_is_unknown(
    primary: PostgresServer, store: Store, standby: Callable[[str], None]
) -> None:
    lease_id = new_id()
    token = taken(store, "job", 30, lease_id).token
    renewal = Renew("job", lease_id, token, ns(30))
    standby("gone")
    [outcome] = Thread(lambda: _asked_while_cancelled(primary, store, renewal)).result()
    assert isinstance(outcome, Unknown)
    standby("")
    assert isinstance(store.apply([renewal], timeout=PATIENCE)[0], Renewed)


def _asked_while_cancelled(primary: PostgresServer, store: Store, renewal: Renew) -> list[Outcome]:
    """Ask for a renewal, which the store repeats for a while, and cancel each wait."""
    asking = Thread(lambda: store.apply([renewal], timeout=2.0))
    with primary.connect() as connection:
        while asking.is_alive():
            connection.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            ).fetchall()
            asking.join(0.01)
    return asking.result()  # type: ignore[no-any-return]


def test_a_release_waits_for_no_standby(primary: PostgresServer, store: Store, standby: Callable[[str], None]) -> None:
    """One that a failover takes back only makes others wait."""
    lease_id = new_id()
    taken(store, "job", 30, lease_id)
    standby("gone")
    assert isinstance(store.apply([Release("job", lease_id)], timeout=PATIENCE)[0], Released)


def test_a_grant_in_ones_own_transaction_is_confirmed_only_when_replicated(
    primary: PostgresServer, store: Store, standby: Callable[[str], None]
) -> None:
    """The driver shows the warning to nobody, but confirming writes, and waits for the standby itself."""
    url = store.url.partition("?")[0]
    with Client(url, timeout=1) as client, psycopg.connect(url) as connection:
        grant = client.acquire_in(connection, "job", ttl=60)
        standby("gone")
        committing = Thread(connection.commit)
        _end_wait(primary)
        committing.result()
        with pytest.raises(StoreUnavailable):
            grant.confirm()
        standby("")

        def confirmed() -> bool:
            with contextlib.suppress(StoreUnavailable):
                return bool(grant.confirm().remaining)
            return False

        until(confirmed, "the confirmation")


def test_warnings_of_others_do_not_matter(primary: PostgresServer, store: Store) -> None:
    """A trigger that says something to everybody."""
    with primary.connect(store.url.rpartition("/")[2].partition("?")[0]) as connection:
        connection.execute(
            "CREATE FUNCTION chatter() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE WARNING 'hello'; RETURN NEW; END $$"
        )
        connection.execute(
            "CREATE TRIGGER chatter BEFORE UPDATE OR INSERT ON lessor.entries FOR EACH ROW EXECUTE FUNCTION chatter()"
        )
    taken(store, "job", 30)
