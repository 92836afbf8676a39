"""Two holders of one resource that write the same row, in whatever order a list of numbers says.

A holder doesn't know that it has been followed: it goes on with its old token until it takes the lease again. Its work
is a row of steps (begin or not, read or not, guard, write, commit or give up), and the other's steps come in between
wherever the numbers say so. Whoever finds the file locked tries again at its next step.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from leasehold import Fenced
from leasehold.fencing import create_table, fence

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

LOCKED = (sqlite3.OperationalError, OperationalError)
DONE = object()


class Session(Protocol):
    """A connection, of whichever library."""

    def __init__(self, path: str) -> None: ...

    def begin(self) -> None: ...
    def read(self) -> None: ...
    def guard(self, token: int) -> AbstractContextManager[Any]: ...
    def write(self, token: int) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def in_transaction(self) -> bool: ...
    def close(self) -> None: ...


class PlainSession:
    """Python's sqlite3."""

    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")

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


class AlchemySession:
    """SQLAlchemy's connection."""

    READ, WRITE = sa.text("SELECT token FROM doc"), sa.text("UPDATE doc SET token = :token")

    def __init__(self, path: str) -> None:
        engine = sa.create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": 0})
        self.connection = engine.connect()
        self.connection.exec_driver_sql("PRAGMA synchronous = OFF")
        self.connection.rollback()

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


class Seen(NamedTuple):
    """What came of an interleaving."""

    committed: list[int]
    """The tokens of the writes, in the order in which they were committed."""
    remembered: int | None
    fenced: int
    locked: int


class Arena:
    """A database on which interleavings are played, one after the other."""

    def __init__(self, path: str, kind: type[Session], *, guarded: bool) -> None:
        self.guarded = guarded
        self.judge = sqlite3.connect(path, isolation_level=None)
        self.judge.execute("PRAGMA journal_mode = WAL")
        self.judge.execute("PRAGMA synchronous = OFF")
        self.judge.execute("CREATE TABLE doc (token INTEGER NOT NULL)")
        self.judge.execute("INSERT INTO doc VALUES (0)")
        create_table(self.judge)
        self.sessions = (kind(path), kind(path))

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        self.judge.close()

    def play(self, numbers: list[int]) -> Seen:
        """Play one interleaving. Each number says who is next, and what it is about to do if it begins anew."""
        self.judge.execute("BEGIN")
        self.judge.execute("DELETE FROM leasehold_fence")
        self.judge.execute("UPDATE doc SET token = 0")
        self.judge.execute("COMMIT")
        game = _Game(self)
        players: list[Generator[None, None, None] | None] = [None, None]
        try:
            for number in numbers:
                who, choice = number % 2, number // 2
                player = players[who] or game.turn(who, choice)
                players[who] = player if next(player, DONE) is not DONE else None
        finally:
            for who, left in enumerate(players):
                if left is not None:
                    left.close()
                self.sessions[who].rollback()
        row = self.judge.execute("SELECT token FROM leasehold_fence").fetchone()
        (in_place,) = self.judge.execute("SELECT token FROM doc").fetchone()
        assert in_place == (game.committed[-1] if game.committed else 0)
        return Seen(game.committed, row and row[0], game.fenced, game.locked)


class _Game:
    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.committed: list[int] = []
        self.fenced = 0
        self.locked = 0
        self.last_token = 2
        self.tokens = [1, 2]

    def turn(self, who: int, choice: int) -> Generator[None, None, None]:
        """One transaction of a holder, step by step."""
        session = self.arena.sessions[who]
        if choice & 1 and choice & 2:
            # It takes the lease again, and is the newest from here on.
            self.last_token += 1
            self.tokens[who] = self.last_token
        token = self.tokens[who]
        begins, reads, gives_up = bool(choice & 2), bool(choice & 4), bool(choice & 8)
        try:
            if begins:
                session.begin()
                yield
            if reads:
                session.read()
                yield
            own = session.in_transaction()
            with self.guard(session, token):
                yield
                session.write(token)
                yield
                if gives_up:
                    raise _GaveUpError  # noqa: TRY301
            if own or not self.arena.guarded:
                yield
                session.commit()
            self.committed.append(token)
        except Fenced as refused:
            assert token < refused.newest  # noqa: PT017 - it may be raised or not
            assert not session.in_transaction()
            self.fenced += 1
        except LOCKED as error:
            assert "locked" in str(error)  # noqa: PT017
            self.locked += 1
            session.rollback()
        except _GaveUpError:
            session.rollback()

    @contextmanager
    def guard(self, session: Session, token: int) -> Iterator[None]:
        if not self.arena.guarded and not session.in_transaction():
            session.begin()
        with session.guard(token) if self.arena.guarded else nullcontext():
            yield


class _GaveUpError(Exception):
    pass
