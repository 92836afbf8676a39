"""Databases and connections for `two_holders`: SQLite and PostgreSQL, plain and through SQLAlchemy."""

from __future__ import annotations

import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from lessor.fencing import create_table, fence

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

LEVELS = ["READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
A_MOMENT = 0.0005


class Session(Protocol):
    """A connection, of whichever library."""

    def choose(self, level: int) -> None:
        """Choose how the next transactions are isolated, where there is a choice."""

    def begin(self) -> None: ...
    def read(self) -> None: ...
    def guard(self, token: int) -> AbstractContextManager[Any]: ...
    def write(self, token: int) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def in_transaction(self) -> bool: ...
    def close(self) -> None: ...

    def start(self, call: Callable[[], object]) -> Future[object]:
        """Begin with what may have to wait for the other holder."""

    def waits(self, started: Future[object]) -> bool:
        """Whether it waits for the other holder. If not, it is done."""


class Place(Protocol):
    """A database with one row to write."""

    def session(self) -> Session: ...
    def reset(self) -> None: ...
    def tokens(self) -> tuple[int, int | None]:
        """Return the token in the row, and the one that the guard remembers."""

    def is_conflict(self, error: Exception) -> bool:
        """Whether the database says so that somebody else was quicker, and the transaction may be tried again."""

    def close(self) -> None: ...


# --- SQLite: nobody waits, whoever finds the file locked gets an error ---------------------------------------------


class SqliteSession:
    """Python's sqlite3."""

    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")

    def choose(self, level: int) -> None:
        pass

    def begin(self) -> None:
        self.connection.execute("BEGIN")

    def read(self) -> None:
        self.connection.execute("SELECT token FROM doc").fetchall()

    def guard(self, token: int) -> AbstractContextManager[Any]:
        return fence(self.connection, ("job", token))

    def write(self, token: int) -> None:
        self.connection.execute("UPDATE doc SET token = ?", (token,))

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def close(self) -> None:
        self.connection.close()

    def start(self, call: Callable[[], object]) -> Future[object]:
        return _at_once(call)

    def waits(self, started: Future[object]) -> bool:
        return not started.done()


class AlchemySession:
    """SQLAlchemy's connection."""

    READ, WRITE = sa.text("SELECT token FROM doc"), sa.text("UPDATE doc SET token = :token")

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection

    def choose(self, level: int) -> None:
        pass

    def begin(self) -> None:
        self.connection.begin()

    def read(self) -> None:
        self.connection.execute(self.READ).all()

    def guard(self, token: int) -> AbstractContextManager[Any]:
        return fence(self.connection, ("job", token))

    def write(self, token: int) -> None:
        self.connection.execute(self.WRITE, {"token": token})

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def in_transaction(self) -> bool:
        return self.connection.in_transaction()

    def close(self) -> None:
        self.connection.close()

    def start(self, call: Callable[[], object]) -> Future[object]:
        return _at_once(call)

    def waits(self, started: Future[object]) -> bool:
        return not started.done()


def _at_once(call: Callable[[], object]) -> Future[object]:
    done: Future[object] = Future()
    try:
        done.set_result(call())
    except Exception as error:  # noqa: BLE001 - it is raised again by result()
        done.set_exception(error)
    return done


class SqlitePlace:
    def __init__(self, path: str, *, alchemy: bool) -> None:
        self.path = path
        self.alchemy = alchemy
        self.judge = sqlite3.connect(path, isolation_level=None)
        self.judge.execute("PRAGMA journal_mode = WAL")
        self.judge.execute("PRAGMA synchronous = OFF")
        self.judge.execute("CREATE TABLE doc (token INTEGER NOT NULL)")
        self.judge.execute("INSERT INTO doc VALUES (0)")
        create_table(self.judge)

    def session(self) -> Session:
        if not self.alchemy:
            return SqliteSession(self.path)
        engine = sa.create_engine(f"sqlite:///{self.path}", poolclass=NullPool, connect_args={"timeout": 0})
        connection = engine.connect()
        connection.exec_driver_sql("PRAGMA synchronous = OFF")
        connection.rollback()
        return AlchemySession(connection)

    def reset(self) -> None:
        self.judge.executescript("BEGIN; DELETE FROM lessor_fence; UPDATE doc SET token = 0; COMMIT")

    def tokens(self) -> tuple[int, int | None]:
        row: tuple[int, int | None] = self.judge.execute(
            "SELECT token, (SELECT token FROM lessor_fence) FROM doc"
        ).fetchone()
        return row

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, (sqlite3.OperationalError, OperationalError)) and "locked" in str(error)

    def close(self) -> None:
        self.judge.close()


# --- PostgreSQL: whoever comes second waits, in a thread of its own ------------------------------------------------


class _WaitingSession:
    """Knows from the database whether it waits."""

    def __init__(self, judge: psycopg.Connection[Any], pid: int) -> None:
        self.judge = judge
        self.pid = pid
        self.thread = ThreadPoolExecutor(1)

    def start(self, call: Callable[[], object]) -> Future[object]:
        return self.thread.submit(call)

    def waits(self, started: Future[object]) -> bool:
        while wait([started], A_MOMENT).not_done:
            if self.judge.execute("SELECT pg_blocking_pids(%s) <> '{}'", (self.pid,)).fetchone() == (True,):
                return True
        return False


class PsycopgSession(_WaitingSession):
    """psycopg's connection."""

    def __init__(self, judge: psycopg.Connection[Any], connection: psycopg.Connection[Any]) -> None:
        super().__init__(judge, connection.info.backend_pid)
        self.connection = connection

    def choose(self, level: int) -> None:
        self.connection.isolation_level = psycopg.IsolationLevel[LEVELS[level].replace(" ", "_")]

    def begin(self) -> None:
        self.connection.execute("SELECT 1")

    def read(self) -> None:
        self.connection.execute("SELECT token FROM doc").fetchall()

    def guard(self, token: int) -> AbstractContextManager[Any]:
        return fence(self.connection, ("job", token))

    def write(self, token: int) -> None:
        self.connection.execute("UPDATE doc SET token = %s", (token,))

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def in_transaction(self) -> bool:
        return self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def close(self) -> None:
        self.thread.shutdown()
        self.connection.close()


class WaitingAlchemySession(_WaitingSession, AlchemySession):
    """SQLAlchemy's connection to PostgreSQL."""

    def __init__(self, judge: psycopg.Connection[Any], connection: sa.Connection) -> None:
        AlchemySession.__init__(self, connection)
        driver: Any = connection.connection.driver_connection
        _WaitingSession.__init__(self, judge, driver.info.backend_pid)

    def choose(self, level: int) -> None:
        self.connection.execution_options(isolation_level=LEVELS[level])

    def close(self) -> None:
        self.thread.shutdown()
        self.connection.close()


class PostgresPlace:
    def __init__(self, url: str, *, alchemy: bool) -> None:
        self.url = url
        self.alchemy = alchemy
        self.judge = psycopg.connect(url, autocommit=True)
        self.judge.execute("CREATE TABLE doc (token BIGINT NOT NULL)")
        self.judge.execute("INSERT INTO doc VALUES (0)")
        create_table(self.judge)

    def session(self) -> Session:
        if not self.alchemy:
            return PsycopgSession(self.judge, psycopg.connect(self.url))
        url = sa.make_url(self.url).set(drivername="postgresql+psycopg")
        return WaitingAlchemySession(self.judge, sa.create_engine(url, poolclass=NullPool).connect())

    def reset(self) -> None:
        self.judge.execute("DELETE FROM lessor_fence; UPDATE doc SET token = 0")

    def tokens(self) -> tuple[int, int | None]:
        row = self.judge.execute("SELECT token, (SELECT token FROM lessor_fence) FROM doc").fetchone()
        assert row is not None
        return row[0], row[1]

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(getattr(error, "orig", error), psycopg.errors.SerializationFailure)

    def close(self) -> None:
        self.judge.close()
