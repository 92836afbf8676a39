# ruff: noqa: PT012 - what a guard does with the body that raises is what is tested
from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from lessor import Client, ConfigError, Fenced, LeaseLost, LessorError
from lessor.fencing import create_table, fence
from tests.fencing.bearers import LostLease, bad_bearers

if TYPE_CHECKING:
    from pathlib import Path

Connect = Callable[..., sqlite3.Connection]

MODES: list[dict[str, Any]] = [
    {"isolation_level": ""},
    {"isolation_level": "DEFERRED"},
    {"isolation_level": "IMMEDIATE"},
    {"isolation_level": None},
]
if sys.version_info >= (3, 12):
    MODES.append({"autocommit": True})


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    opened: list[sqlite3.Connection] = []

    def connect(**options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(
            tmp_path / "data.db", timeout=0, check_same_thread=False, **options
        )
        opened.append(connection)
        return connection

    setup = connect(isolation_level=None)
    setup.execute("CREATE TABLE doc (body TEXT)")
    setup.execute("INSERT INTO doc VALUES ('nothing')")
    yield connect
    for connection in opened:
        connection.close()


def write(connection: sqlite3.Connection, body: str) -> None:
    connection.execute("UPDATE doc SET body = ?", (body,))


def body(connect: Connect) -> str:
    return str(connect().execute("SELECT body FROM doc").fetchone()[0])


def newest(connect: Connect, table: str = "lessor_fence") -> list[tuple[str, int]]:
    return connect().execute(f"SELECT resource, token FROM {table} ORDER BY resource").fetchall()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_without_a_transaction_the_guard_is_one(connect: Connect, mode: dict[str, Any]) -> None:
    connection = connect(**mode)
    with fence(connection, ("job", 5)) as stamp:
        assert stamp == ("job", 5)
        write(connection, "five")
    assert not connection.in_transaction
    with fence(connection, ("job", 5)):
        write(connection, "five again")
    with pytest.raises(Fenced) as refused, fence(connection, ("job", 4)):
        pytest.fail("the body was entered")
    assert (refused.value.resource, refused.value.token, refused.value.newest) == ("job", 4, 5)
    assert not connection.in_transaction
    with pytest.raises(ZeroDivisionError), fence(connection, ("job", 6)):
        write(connection, "six")
        _ = 1 / 0
    assert not connection.in_transaction
    assert (body(connect), newest(connect)) == ("five again", [("job", 5)])


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_open_transaction_stays_the_users_own(connect: Connect, mode: dict[str, Any]) -> None:
    connection = connect(**mode)
    connection.execute("BEGIN")
    with fence(connection, ("job", 5)):
        write(connection, "five")
    assert connection.in_transaction
    assert body(connect) == "nothing"
    connection.execute("COMMIT")
    assert body(connect) == "five"

    connection.execute("BEGIN")
    with fence(connection, ("job", 6)):
        write(connection, "six")
    connection.execute("ROLLBACK")  # the token goes the way of the write
    assert (body(connect), newest(connect)) == ("five", [("job", 5)])


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_refused_in_an_open_transaction_rolls_all_of_it_back(connect: Connect, mode: dict[str, Any]) -> None:
    connection = connect(**mode)
    with fence(connection, ("job", 5)):
        write(connection, "five")
    connection.execute("BEGIN")
    write(connection, "written before the guard")
    with pytest.raises(Fenced), fence(connection, ("job", 4)):
        pytest.fail("the body was entered")
    assert not connection.in_transaction
    assert body(connect) == "five"


def test_in_the_with_of_the_connection(connect: Connect) -> None:
    connection = connect()
    with connection, fence(connection, ("job", 5)):
        write(connection, "five")
    assert body(connect) == "five"
    with pytest.raises(Fenced), connection, fence(connection, ("job", 4)):
        pytest.fail("the body was entered")
    with pytest.raises(ZeroDivisionError), connection:
        write(connection, "before")
        with fence(connection, ("job", 6)):
            _ = 1 / 0
    assert (body(connect), newest(connect)) == ("five", [("job", 5)])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit=False came with Python 3.12")
def test_a_connection_that_always_has_a_transaction(connect: Connect) -> None:
    connection = connect(autocommit=False)
    with fence(connection, ("job", 5)):
        write(connection, "five")
    connection.commit()
    with pytest.raises(Fenced), fence(connection, ("job", 4)):
        pytest.fail("the body was entered")
    assert connection.in_transaction
    assert body(connect) == "five"


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("begun", [False, True])
def test_nobody_newer_slips_in_until_the_commit(connect: Connect, journal: str, begun: bool) -> None:  # noqa: FBT001
    connect(isolation_level=None).execute(f"PRAGMA journal_mode = {journal}")
    older, newer = connect(isolation_level=None), connect(isolation_level=None)
    create_table(older)
    if begun:
        older.execute("BEGIN")
    with fence(older, ("job", 1)):
        with pytest.raises(sqlite3.OperationalError, match="locked"), fence(newer, ("job", 2)):
            pytest.fail("the body was entered")
        write(older, "one")
    if begun:
        with pytest.raises(sqlite3.OperationalError, match="locked"), fence(newer, ("job", 2)):
            pytest.fail("the body was entered")
        older.execute("COMMIT")
    with fence(newer, ("job", 2)):
        write(newer, "two")
    assert (body(connect), newest(connect)) == ("two", [("job", 2)])


def test_a_snapshot_from_before_the_newer_holder_can_not_write(connect: Connect) -> None:
    connect(isolation_level=None).execute("PRAGMA journal_mode = wal")
    older, newer = connect(isolation_level=None), connect(isolation_level=None)
    older.execute("BEGIN")
    older.execute("SELECT * FROM doc").fetchall()  # from here on it sees the past
    with fence(newer, ("job", 2)):
        write(newer, "two")
    with pytest.raises(sqlite3.OperationalError, match="locked"), fence(older, ("job", 1)):
        pytest.fail("the body was entered")
    assert older.in_transaction  # it is the user's own, and nothing was decided
    older.execute("ROLLBACK")
    with pytest.raises(Fenced), fence(older, ("job", 1)):
        pytest.fail("the body was entered")
    assert body(connect) == "two"


def test_a_newer_holder_in_another_thread_waits_for_the_commit(connect: Connect) -> None:
    older, newer = connect(isolation_level=None), connect(isolation_level=None)
    newer.execute("PRAGMA busy_timeout = 10000")
    comes = threading.Event()

    def take_over() -> None:
        comes.set()
        with fence(newer, ("job", 2)):
            assert newer.execute("SELECT body FROM doc").fetchone() == ("one",)
            write(newer, "two")

    with ThreadPoolExecutor(1) as pool:
        with fence(older, ("job", 1)):
            taking_over = pool.submit(take_over)
            assert comes.wait(60)
            write(older, "one")
        taking_over.result(60)
    assert body(connect) == "two"


def test_a_body_that_commits_is_told_and_what_comes_after_is_rolled_back(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(ConfigError, match="ended inside the guard"), fence(connection, ("job", 1)):
        write(connection, "guarded")
        connection.commit()
        write(connection, "not guarded")
    assert not connection.in_transaction
    assert body(connect) == "guarded"


def test_two_leases_in_one_transaction(connect: Connect) -> None:
    connection = connect()
    with fence(connection, ("a", 1)), fence(connection, ("b", 9)):
        write(connection, "both")
    assert (body(connect), newest(connect)) == ("both", [("a", 1), ("b", 9)])
    with pytest.raises(Fenced), fence(connection, ("a", 2)):
        write(connection, "half")
        with fence(connection, ("b", 8)):
            pytest.fail("the body was entered")
    assert (body(connect), newest(connect)) == ("both", [("a", 1), ("b", 9)])


def test_another_table_and_an_attached_database(connect: Connect, tmp_path: Path) -> None:
    connection = connect()
    with fence(connection, ("job", 2), table="my_fence"):
        pass
    with fence(connection, ("job", 1)):
        pass
    assert (newest(connect, "my_fence"), newest(connect)) == ([("job", 2)], [("job", 1)])
    connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    with fence(connection, ("job", 3), table="other.lessor_fence"):
        pass
    assert connection.execute("SELECT token FROM other.lessor_fence").fetchall() == [(3,)]


@pytest.mark.parametrize(
    "table", ["", "a b", "a;b", 'a"', "1a", "a.b.c", ".a", "a.", "sqlite_x", "main.SQLITE_x", "ä", "x" * 64, None, 3]
)
def test_what_can_not_name_a_table(connect: Connect, table: Any) -> None:
    with pytest.raises(ConfigError, match="can't name the table"):
        fence(connect(), ("job", 1), table=table)
    with pytest.raises(ConfigError, match="can't name the table"):
        create_table(connect(), table)


def test_the_table_can_be_made_beforehand_and_twice(connect: Connect) -> None:
    connection = connect()
    create_table(connection)
    create_table(connection)
    (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'lessor_fence'").fetchone()
    assert "resource TEXT PRIMARY KEY, token INTEGER NOT NULL" in sql
    connection.execute("BEGIN")
    create_table(connection, "rolled_back")
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT * FROM sqlite_master WHERE name = 'rolled_back'").fetchall() == []


def test_a_connection_with_its_own_rows_and_text(connect: Connect) -> None:
    connection = connect()
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes
    for token in (5, 5, 6):
        with fence(connection, ("job", token)):
            write(connection, str(token))
    connection.row_factory = lambda _cursor, row: {"row": row}
    with pytest.raises(Fenced), fence(connection, ("job", 5)):
        pytest.fail("the body was entered")


def test_a_subclass_of_the_connection(tmp_path: Path) -> None:
    class Mine(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(tmp_path / "mine.db", factory=Mine)) as connection, fence(connection, ("job", 1)):
        pass


@bad_bearers
def test_what_can_not_be_a_stamp_changes_nothing(
    connect: Connect, bearer: Any, error: type[LessorError], text: str
) -> None:
    connection = connect()
    with fence(connection, ("job", 5)):
        pass
    write(connection, "not committed yet")
    with pytest.raises(error, match=text), fence(connection, bearer):
        pytest.fail("the body was entered")
    assert connection.in_transaction  # the user's own, untouched
    connection.commit()
    assert (body(connect), newest(connect)) == ("not committed yet", [("job", 5)])


def test_a_lost_lease_does_not_touch_the_database(connect: Connect) -> None:
    connection = connect()
    connection.set_trace_callback(pytest.fail)
    with pytest.raises(LeaseLost), fence(connection, LostLease()):
        pytest.fail("the body was entered")


def test_a_real_lease(connect: Connect) -> None:
    connection = connect()
    with Client("memory://sqlite-fence") as leases:
        with leases.acquire("job", ttl=30) as lease, fence(connection, lease):
            write(connection, "mine")
        with pytest.raises(LeaseLost), fence(connection, lease):
            pytest.fail("the body was entered")
    assert (body(connect), newest(connect)) == ("mine", [("job", lease.token)])


def test_a_closed_connection(connect: Connect) -> None:
    connection = connect()
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"), fence(connection, ("job", 1)):
        pytest.fail("the body was entered")


def test_a_connection_that_the_body_closes(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"), fence(connection, ("job", 1)):
        write(connection, "lost")
        connection.close()
    assert body(connect) == "nothing"
    connection = connect()
    with pytest.raises(ZeroDivisionError), fence(connection, ("job", 1)):
        connection.close()
        _ = 1 / 0


def test_a_read_only_database(connect: Connect, tmp_path: Path) -> None:
    with fence(connect(), ("job", 1)):
        pass
    with closing(sqlite3.connect(f"file:{tmp_path}/data.db?mode=ro", uri=True)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="readonly"), fence(connection, ("job", 2)):
            pytest.fail("the body was entered")
        assert not connection.in_transaction
        assert connection.execute("SELECT body FROM doc").fetchone() == ("nothing",)
    assert newest(connect) == [("job", 1)]


def test_a_commit_that_fails_is_rolled_back_and_told(connect: Connect) -> None:
    reader, writer = connect(isolation_level=None), connect()
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM doc").fetchall()  # without WAL, nobody can commit while it reads
    with pytest.raises(sqlite3.OperationalError, match="locked"), fence(writer, ("job", 1)):
        write(writer, "one")
    assert not writer.in_transaction
    reader.execute("COMMIT")
    assert body(connect) == "nothing"


def test_a_token_in_the_table_that_is_none(connect: Connect) -> None:
    connection = connect()
    create_table(connection)
    connection.execute("INSERT INTO lessor_fence VALUES ('job', 'not a number')")
    connection.commit()
    with pytest.raises(ConfigError, match="tampered"), fence(connection, ("job", 1)):
        pytest.fail("the body was entered")
    assert not connection.in_transaction


@pytest.mark.parametrize("connection", [None, 3, "data.db", ("job", 1)])
def test_what_is_no_connection(connection: Any) -> None:
    with pytest.raises(ConfigError, match="no guard for"):
        fence(connection, ("job", 1))
    with pytest.raises(ConfigError, match="no guard for"):
        create_table(connection)
