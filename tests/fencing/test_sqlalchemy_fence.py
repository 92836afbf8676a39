# ruff: noqa: PT012 - what a guard does with the body that raises is what is tested
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DataError, InternalError, OperationalError, ResourceClosedError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from lessor import ConfigError, Fenced, LeaseLost, LessorError
from lessor.fencing import create_table, fence
from tests.fencing.bearers import LostLease, bad_bearers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.servers.postgres import PostgresServer


class Base(DeclarativeBase):
    pass


class Doc(Base):
    __tablename__ = "doc"
    name: Mapped[str] = mapped_column(primary_key=True)
    body: Mapped[str]


@pytest.fixture(params=["sqlite", "postgresql+psycopg", "postgresql+psycopg2"])
def database(request: pytest.FixtureRequest) -> str:
    """Ask for it with one value only where a test is about that one."""
    return str(request.param)


each_once = pytest.mark.parametrize("database", ["sqlite", "postgresql+psycopg"], indirect=True)
only_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
only_postgresql = pytest.mark.parametrize("database", ["postgresql+psycopg", "postgresql+psycopg2"], indirect=True)


@pytest.fixture
def engine(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    if database == "sqlite":
        engine = sa.create_engine(f"sqlite:///{tmp_path}/data.db", connect_args={"timeout": 0})
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = sa.make_url(server.database()).set(drivername=database)
        engine = sa.create_engine(url, connect_args={"options": "-c lock_timeout=50"})
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Doc(name="report", body="nothing"))
    yield engine
    engine.dispose()


def write(target: sa.Connection | Session, body: str) -> None:
    target.execute(sa.update(Doc).values(body=body))


def body(engine: sa.Engine) -> str:
    with Session(engine) as session:
        return session.get_one(Doc, "report").body


def newest(engine: sa.Engine) -> int | None:
    with engine.connect() as connection:
        token: int | None = connection.scalar(sa.text("SELECT token FROM lessor_fence"))
        return token


OPEN: dict[str, Callable[[sa.Engine], Any]] = {"connection": sa.Engine.connect, "session": Session}


@pytest.fixture(params=sorted(OPEN))
def target(request: pytest.FixtureRequest, engine: sa.Engine) -> Iterator[Any]:
    with OPEN[request.param](engine) as target:
        yield target


def test_without_a_transaction_the_guard_is_one(target: Any, engine: sa.Engine) -> None:
    with fence(target, ("job", 5)) as stamp:
        assert stamp == ("job", 5)
        write(target, "five")
    assert not target.in_transaction()
    with fence(target, ("job", 5)):
        write(target, "five again")
    with pytest.raises(Fenced) as refused, fence(target, ("job", 4)):
        pytest.fail("the body was entered")
    assert (refused.value.token, refused.value.newest) == (4, 5)
    assert not target.in_transaction()
    with pytest.raises(ZeroDivisionError), fence(target, ("job", 6)):
        write(target, "six")
        _ = 1 / 0
    assert not target.in_transaction()
    assert (body(engine), newest(engine)) == ("five again", 5)


def test_an_open_transaction_stays_the_users_own(target: Any, engine: sa.Engine) -> None:
    with target.begin(), fence(target, ("job", 5)):
        write(target, "five")
    assert (body(engine), newest(engine)) == ("five", 5)
    target.execute(sa.select(Doc.body)).all()  # begins one too
    with fence(target, ("job", 6)):
        write(target, "six")
    assert target.in_transaction()
    assert body(engine) == "five"
    target.rollback()
    assert (body(engine), newest(engine)) == ("five", 5)


def test_refused_in_an_open_transaction_rolls_all_of_it_back(target: Any, engine: sa.Engine) -> None:
    with fence(target, ("job", 5)):
        write(target, "five")
    with pytest.raises(Fenced), target.begin():
        write(target, "written before the guard")
        with fence(target, ("job", 4)):
            pytest.fail("the body was entered")
    with pytest.raises(Fenced), target.begin(), target.begin_nested():
        write(target, "written before the guard")
        with fence(target, ("job", 4)):
            pytest.fail("the body was entered")
    assert not target.in_transaction()
    assert body(engine) == "five"


def test_nobody_newer_slips_in_until_the_commit(target: Any, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        create_table(connection)
    with engine.connect() as newer:
        target.execute(sa.select(Doc.body)).all()
        with fence(target, ("job", 1)):
            with pytest.raises(OperationalError, match="lock"), fence(newer, ("job", 2)):
                pytest.fail("the body was entered")
            write(target, "one")
        with pytest.raises(OperationalError, match="lock"), fence(newer, ("job", 2)):
            pytest.fail("the body was entered")
        target.commit()
        with fence(newer, ("job", 2)):
            write(newer, "two")
    assert body(engine) == "two"


def test_objects_that_are_flushed_at_the_commit_are_guarded_too(engine: sa.Engine) -> None:
    with Session(engine) as session, fence(session, ("job", 2)):
        session.get_one(Doc, "report").body = "two"
    assert body(engine) == "two"
    with Session(engine) as session:
        doc = session.get_one(Doc, "report")
        doc.body = "stale"
        with pytest.raises(Fenced), fence(session, ("job", 1)):
            pytest.fail("the body was entered")
        assert doc.body == "two"
        session.commit()
    assert body(engine) == "two"


def test_a_scoped_session(engine: sa.Engine) -> None:
    session = scoped_session(sessionmaker(engine))
    with fence(session, ("job", 2)):
        session.get_one(Doc, "report").body = "two"
    with pytest.raises(Fenced), fence(session, ("job", 1)):
        pytest.fail("the body was entered")
    session.remove()
    assert body(engine) == "two"


def test_a_body_that_commits_is_told_and_what_comes_after_is_rolled_back(target: Any, engine: sa.Engine) -> None:
    with pytest.raises(ConfigError, match="ended inside the guard"), fence(target, ("job", 1)):
        write(target, "guarded")
        target.commit()
        write(target, "not guarded")
    assert body(engine) == "guarded"


def test_autocommit_is_refused(engine: sa.Engine) -> None:
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(ConfigError, match="AUTOCOMMIT"),
        fence(connection, ("job", 1)),
    ):
        pytest.fail("the body was entered")
    with engine.connect() as connection:
        assert not sa.inspect(connection).has_table("lessor_fence")


@only_sqlite
def test_where_sqlalchemy_itself_begins_on_sqlite(engine: sa.Engine) -> None:
    # As its documentation recommends for SQLite: the driver leaves transactions alone, and an event begins them.
    @sa.event.listens_for(engine, "connect")
    def leave_alone(connection: Any, _record: object) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    engine.dispose()
    with engine.connect() as connection:
        with fence(connection, ("job", 2)):
            write(connection, "two")
        with pytest.raises(Fenced), fence(connection, ("job", 1)):
            pytest.fail("the body was entered")
    assert body(engine) == "two"


@bad_bearers
def test_what_can_not_be_a_stamp_changes_nothing(
    target: Any, engine: sa.Engine, bearer: Any, error: type[LessorError], text: str
) -> None:
    with fence(target, ("job", 5)):
        pass
    write(target, "not committed yet")
    with pytest.raises(error, match=text), fence(target, bearer):
        pytest.fail("the body was entered")
    target.commit()
    assert (body(engine), newest(engine)) == ("not committed yet", 5)


def test_a_lost_lease_does_not_touch_the_database(target: Any) -> None:
    with pytest.raises(LeaseLost), fence(target, LostLease()):
        pytest.fail("the body was entered")
    assert not target.in_transaction()


def test_a_closed_connection(engine: sa.Engine) -> None:
    connection = engine.connect()
    connection.close()
    with pytest.raises(ResourceClosedError, match="closed"), fence(connection, ("job", 1)):
        pytest.fail("the body was entered")


@only_sqlite
def test_a_read_only_database(engine: sa.Engine, tmp_path: Path) -> None:
    reader = sa.create_engine(f"sqlite:///file:{tmp_path}/data.db?mode=ro&uri=true")
    with reader.connect() as connection:
        with pytest.raises(OperationalError, match="readonly"), fence(connection, ("job", 2)):
            pytest.fail("the body was entered")
        assert not connection.in_transaction()
    reader.dispose()
    assert body(engine) == "nothing"


def test_another_database(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.dialect.name, kept = "mysql", connection.dialect.name
        try:
            with pytest.raises(ConfigError, match="mysql"), fence(connection, ("job", 1)):
                pytest.fail("the body was entered")
            with pytest.raises(ConfigError, match="mysql"):
                create_table(connection)
        finally:
            connection.dialect.name = kept


def test_an_engine_has_no_transaction(engine: sa.Engine) -> None:
    not_a_connection: Any = engine
    with pytest.raises(ConfigError, match="Engine has none"):
        fence(not_a_connection, ("job", 1))
    with pytest.raises(ConfigError, match="Engine has none"):
        create_table(not_a_connection)


@only_postgresql
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_from_before_the_newer_holder_can_not_write(engine: sa.Engine, level: str) -> None:
    with engine.begin() as connection:
        create_table(connection)
    past = engine.execution_options(isolation_level=level)
    with past.connect() as older, past.connect() as newer:
        older.execute(sa.select(Doc.body)).all()
        with fence(newer, ("job", 2)):
            write(newer, "two")
        with pytest.raises(OperationalError, match="could not serialize"), fence(older, ("job", 1)):
            pytest.fail("the body was entered")
        older.rollback()
        with pytest.raises(Fenced), fence(older, ("job", 1)):
            pytest.fail("the body was entered")
    assert body(engine) == "two"


def test_a_missing_table_is_made_and_what_was_written_before_is_kept(target: Any, engine: sa.Engine) -> None:
    write(target, "written before the guard")
    with fence(target, ("job", 2**53 - 1)):
        pass
    target.commit()
    assert (body(engine), newest(engine)) == ("written before the guard", 2**53 - 1)


def test_a_body_that_says_commit_to_the_database_is_told(target: Any, engine: sa.Engine) -> None:
    with pytest.raises(ConfigError, match="ended inside the guard"), fence(target, ("job", 1)):
        write(target, "guarded")
        target.execute(sa.text("COMMIT"))
    assert body(engine) == "guarded"


@only_postgresql
def test_a_body_that_swallows_an_error_of_the_database_commits_nothing(target: Any, engine: sa.Engine) -> None:
    with pytest.raises(InternalError, match="aborted"), fence(target, ("job", 1)):
        write(target, "lost")
        connection = target if isinstance(target, sa.Connection) else target.connection()
        with pytest.raises(DataError):
            connection.execute(sa.text("SELECT 1 / 0"))
    assert not target.in_transaction()
    assert body(engine) == "nothing"


# --- asyncio ------------------------------------------------------------------------------------------------------


def run(engine: sa.Engine, use: Callable[[AsyncEngine], Awaitable[None]]) -> None:
    """Do it with each of the database's asyncio drivers, one after the other."""
    for driver, options in ASYNC_DRIVERS[engine.dialect.name].items():
        with engine.begin() as connection:
            connection.execute(sa.update(Doc).values(body="nothing"))
            connection.execute(sa.text("DROP TABLE IF EXISTS lessor_fence"))
        url = engine.url.set(drivername=f"{engine.dialect.name}+{driver}")
        asyncio.run(_use(create_async_engine(url, connect_args=options), use))


async def _use(async_engine: AsyncEngine, use: Callable[[AsyncEngine], Awaitable[None]]) -> None:
    try:
        await use(async_engine)
    finally:
        await async_engine.dispose()


@pytest.fixture(params=[AsyncEngine.connect, AsyncSession], ids=["connection", "session"])
def opening(request: pytest.FixtureRequest) -> Any:
    return request.param


ASYNC_DRIVERS: dict[str, dict[str, dict[str, Any]]] = {
    "sqlite": {"aiosqlite": {"timeout": 0}},
    "postgresql": {"psycopg": {}, "asyncpg": {}},
}


async def write_async(target: Any, body: str) -> None:
    await target.execute(sa.update(Doc).values(body=body))


@each_once
def test_async_without_a_transaction_the_guard_is_one(engine: sa.Engine, opening: Any) -> None:
    async def use(async_engine: AsyncEngine) -> None:
        async with opening(async_engine) as target:
            async with fence(target, ("job", 5)) as stamp:
                assert stamp == ("job", 5)
                await write_async(target, "five")
            assert not target.in_transaction()
            with pytest.raises(Fenced):
                async with fence(target, ("job", 4)):
                    pytest.fail("the body was entered")
            assert not target.in_transaction()
            with pytest.raises(ZeroDivisionError):
                async with fence(target, ("job", 6)):
                    await write_async(target, "six")
                    _ = 1 / 0
            assert not target.in_transaction()

    run(engine, use)
    assert (body(engine), newest(engine)) == ("five", 5)


@each_once
def test_async_an_open_transaction_stays_the_users_own(engine: sa.Engine, opening: Any) -> None:
    async def use(async_engine: AsyncEngine) -> None:
        async with opening(async_engine) as target, target.begin():
            async with fence(target, ("job", 5)):
                await write_async(target, "five")
            assert target.in_transaction()
            assert await asyncio.to_thread(body, engine) == "nothing"
        with pytest.raises(Fenced):
            async with opening(async_engine) as target, target.begin():
                await write_async(target, "written before the guard")
                async with fence(target, ("job", 4)):
                    pytest.fail("the body was entered")

    run(engine, use)
    assert (body(engine), newest(engine)) == ("five", 5)


@each_once
def test_async_a_cancelled_body_is_rolled_back(engine: sa.Engine, opening: Any) -> None:
    async def use(async_engine: AsyncEngine) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with opening(async_engine) as target, fence(target, ("job", 1)):
                await write_async(target, "half")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with opening(async_engine) as target, fence(target, ("job", 1)):  # nothing is locked
            pass

    run(engine, use)
    assert body(engine) == "nothing"


@each_once
def test_async_a_body_that_commits_is_told(engine: sa.Engine, opening: Any) -> None:
    async def use(async_engine: AsyncEngine) -> None:
        async with opening(async_engine) as target:
            with pytest.raises(ConfigError, match="ended inside the guard"):
                async with fence(target, ("job", 1)):
                    await write_async(target, "guarded")
                    await target.commit()
                    await write_async(target, "not guarded")

    run(engine, use)
    assert body(engine) == "guarded"


@each_once
def test_async_a_lost_lease_and_the_table_beforehand(engine: sa.Engine, opening: Any) -> None:
    async def use(async_engine: AsyncEngine) -> None:
        async with opening(async_engine) as target:
            with pytest.raises(LeaseLost):
                async with fence(target, LostLease()):
                    pytest.fail("the body was entered")
            with pytest.raises(ConfigError, match="run_sync"):
                create_table(target)
            await target.run_sync(create_table)
            await target.commit()

    run(engine, use)
    assert newest(engine) is None
