# ruff: noqa: PT012 - what a guard does with the body that raises is what is tested
from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import IsolationLevel, errors
from psycopg.rows import dict_row

from lessor import Client, ConfigError, Fenced, LeaseLost, LessorError
from lessor.fencing import create_table, fence
from lessor.testing.conformance.base import until
from tests.fencing.bearers import LostLease, bad_bearers
from tests.servers.postgres import pgbouncer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.servers.postgres import PostgresServer

    Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    return postgres.database()


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    opened: list[psycopg.Connection[Any]] = []

    def connect(**options: Any) -> psycopg.Connection[Any]:
        connection = psycopg.connect(url, **options)
        opened.append(connection)
        return connection

    setup = connect(autocommit=True)
    setup.execute("DROP SCHEMA IF EXISTS public, other CASCADE; CREATE SCHEMA public; CREATE TABLE doc (body TEXT)")
    setup.execute("INSERT INTO doc VALUES ('nothing')")
    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def judge(connect: Connect) -> psycopg.Connection[Any]:
    return connect(autocommit=True)


def write(connection: psycopg.Connection[Any], body: str) -> None:
    connection.execute("UPDATE doc SET body = %s", (body,))


def body(judge: psycopg.Connection[Any]) -> str:
    row = judge.execute("SELECT body FROM doc").fetchone()
    assert row is not None
    return str(row[0])


def newest(judge: psycopg.Connection[Any], table: str = "lessor_fence") -> list[tuple[str, int]]:
    return judge.execute(f"SELECT resource, token FROM {table} ORDER BY resource".encode()).fetchall()


def is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def until_waiting(judge: psycopg.Connection[Any], connection: psycopg.Connection[Any]) -> None:
    """Wait until the database says that this connection waits for another one's lock."""
    pid = connection.info.backend_pid
    until(
        lambda: judge.execute("SELECT pg_blocking_pids(%s) <> '{}'", (pid,)).fetchone() == (True,),
        "the newer holder's wait",
    )


@pytest.mark.parametrize("autocommit", [False, True])
def test_without_a_transaction_the_guard_is_one(
    connect: Connect,
    judge: psycopg.Connection[Any],
    autocommit: bool,  # noqa: FBT001
) -> None:
    connection = connect(autocommit=autocommit)
    with fence(connection, ("job", 5)) as stamp:
        assert stamp == ("job", 5)
        write(connection, "five")
        assert body(judge) == "nothing"
    assert is_idle(connection)
    with fence(connection, ("job", 5)):
        write(connection, "five again")
    with pytest.raises(Fenced) as refused, fence(connection, ("job", 4)):
        pytest.fail("the body was entered")
    assert (refused.value.resource, refused.value.token, refused.value.newest) == ("job", 4, 5)
    assert is_idle(connection)
    with pytest.raises(ZeroDivisionError), fence(connection, ("job", 6)):
        write(connection, "six")
        _ = 1 / 0
    assert is_idle(connection)
    assert (body(judge), newest(judge)) == ("five again", [("job", 5)])


def test_an_open_transaction_stays_the_users_own(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    connection = connect()
    connection.execute("SELECT 1")
    with fence(connection, ("job", 5)):
        write(connection, "five")
    assert body(judge) == "nothing"
    connection.commit()
    assert body(judge) == "five"

    connection.execute("SELECT 1")
    with fence(connection, ("job", 6)):
        write(connection, "six")
    connection.rollback()  # the token goes the way of the write
    assert (body(judge), newest(judge)) == ("five", [("job", 5)])


def test_refused_in_an_open_transaction_rolls_all_of_it_back(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    connection = connect()
    with fence(connection, ("job", 5)):
        write(connection, "five")
    write(connection, "written before the guard")
    with pytest.raises(Fenced), fence(connection, ("job", 4)):
        pytest.fail("the body was entered")
    assert is_idle(connection)
    assert body(judge) == "five"


@pytest.mark.parametrize("autocommit", [False, True])
def test_in_a_transaction_block(
    connect: Connect,
    judge: psycopg.Connection[Any],
    autocommit: bool,  # noqa: FBT001
) -> None:
    connection = connect(autocommit=autocommit)
    with connection.transaction(), fence(connection, ("job", 5)):
        write(connection, "five")
    assert body(judge) == "five"
    with pytest.raises(Fenced), connection.transaction():
        write(connection, "written before the guard")
        with fence(connection, ("job", 4)):
            pytest.fail("the body was entered")
    assert is_idle(connection)
    assert (body(judge), newest(judge)) == ("five", [("job", 5)])


def test_a_block_that_goes_on_after_the_refusal_commits_nothing(
    connect: Connect, judge: psycopg.Connection[Any]
) -> None:
    connection = connect()
    with fence(connection, ("job", 5)):
        pass
    with connection.transaction():
        write(connection, "written before the guard")
        with pytest.raises(Fenced), fence(connection, ("job", 4)):
            pytest.fail("the body was entered")
        with pytest.raises(errors.InFailedSqlTransaction):
            write(connection, "written after the refusal")
    assert is_idle(connection)
    assert body(judge) == "nothing"


def test_a_savepoint_around_the_guard_is_what_is_rolled_back(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    connection = connect()
    with fence(connection, ("job", 5)):
        pass
    with connection.transaction():
        write(connection, "kept")
        with pytest.raises(Fenced), connection.transaction():
            write(connection, "written in the savepoint")
            with fence(connection, ("job", 4)):
                pytest.fail("the body was entered")
    assert body(judge) == "kept"


def test_a_savepoint_that_is_rolled_back_takes_the_token_along(
    connect: Connect, judge: psycopg.Connection[Any]
) -> None:
    connection = connect()
    with connection.transaction():
        with fence(connection, ("a", 1)), connection.transaction(force_rollback=True):
            write(connection, "undone")
        with connection.transaction(force_rollback=True), fence(connection, ("b", 2)):
            write(connection, "undone")
    assert (body(judge), newest(judge)) == ("nothing", [("a", 1)])


def test_nobody_newer_slips_in_until_the_commit(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    older, newer = connect(), connect()
    create_table(older)
    older.commit()
    newer.execute("SET lock_timeout = '50ms'")
    newer.commit()
    older.execute("SELECT 1")
    with fence(older, ("job", 1)):
        with pytest.raises(errors.LockNotAvailable), fence(newer, ("job", 2)):
            pytest.fail("the body was entered")
        write(older, "one")
    with pytest.raises(errors.LockNotAvailable), fence(newer, ("job", 2)):
        pytest.fail("the body was entered")
    with fence(newer, ("another job", 1)):  # tokens belong to a resource, and so do the locks
        pass
    older.commit()
    with fence(newer, ("job", 2)):
        write(newer, "two")
    assert body(judge) == "two"


@pytest.mark.parametrize("first", [None, 1], ids=["no row yet", "a row"])
@pytest.mark.parametrize(("ours", "theirs"), [(1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("commits", [True, False])
def test_who_comes_second_waits_and_is_compared_with_what_the_first_left(
    *,
    connect: Connect,
    judge: psycopg.Connection[Any],
    first: int | None,
    ours: int,
    theirs: int,
    commits: bool,
) -> None:
    we, they = connect(), connect()
    create_table(judge)
    if first is not None:
        with fence(judge, ("job", first)):
            pass

    def they_write() -> str:
        try:
            with fence(they, ("job", theirs)):
                write(they, "theirs")
        except Fenced as refused:
            return f"fenced by {refused.newest}"
        return "written"

    with ThreadPoolExecutor(1) as pool:
        we.execute("SELECT 1")
        with fence(we, ("job", ours)):
            write(we, "ours")
        writing = pool.submit(they_write)
        until_waiting(judge, they)
        we.commit() if commits else we.rollback()
        refused = commits and theirs < ours
        assert writing.result(60) == (f"fenced by {ours}" if refused else "written")
    assert body(judge) == ("ours" if refused else "theirs")
    assert newest(judge) == [("job", ours if refused else theirs)]


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
@pytest.mark.parametrize("row", [True, False])
def test_a_snapshot_from_before_the_newer_holder_can_not_write(
    connect: Connect,
    judge: psycopg.Connection[Any],
    level: IsolationLevel,
    row: bool,  # noqa: FBT001
) -> None:
    older, newer = connect(), connect()
    older.isolation_level = newer.isolation_level = level
    create_table(judge)
    if row:
        with fence(older, ("job", 1)):
            pass
    older.execute("SELECT * FROM doc").fetchall()  # from here on it sees the past
    with fence(newer, ("job", 2)):
        write(newer, "two")
    with pytest.raises(errors.SerializationFailure), fence(older, ("job", 1)):
        pytest.fail("the body was entered")
    older.rollback()
    with pytest.raises(Fenced), fence(older, ("job", 1)):
        pytest.fail("the body was entered")
    assert body(judge) == "two"


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_every_isolation_level_refuses_and_lets_in(
    connect: Connect, judge: psycopg.Connection[Any], level: IsolationLevel
) -> None:
    connection = connect()
    connection.isolation_level = level
    with fence(connection, ("job", 5)):
        write(connection, "five")
    with pytest.raises(Fenced), fence(connection, ("job", 4)):
        pytest.fail("the body was entered")
    with fence(connection, ("job", 2**53 - 1)):
        write(connection, "the newest there can be")
    assert (body(judge), newest(judge)) == ("the newest there can be", [("job", 2**53 - 1)])


def test_a_body_that_commits_is_told_and_what_comes_after_is_rolled_back(
    connect: Connect, judge: psycopg.Connection[Any]
) -> None:
    connection = connect()
    connection.execute("SELECT 1")
    with pytest.raises(ConfigError, match="ended inside the guard"), fence(connection, ("job", 1)):
        write(connection, "guarded")
        connection.commit()
        write(connection, "not guarded")
    assert is_idle(connection)
    assert body(judge) == "guarded"
    # Where the guard has begun the transaction, psycopg itself won't have it.
    with pytest.raises(psycopg.ProgrammingError, match="forbidden"), fence(connection, ("job", 1)):
        write(connection, "rolled back")
        connection.commit()
    with pytest.raises(ConfigError, match="ended inside the guard"), fence(connection, ("job", 1)):
        connection.execute("COMMIT")
    assert is_idle(connection)
    assert body(judge) == "guarded"


def test_a_body_that_swallows_an_error_of_the_database_commits_nothing(
    connect: Connect, judge: psycopg.Connection[Any]
) -> None:
    connection = connect()
    with pytest.raises(errors.InFailedSqlTransaction), fence(connection, ("job", 1)):
        write(connection, "lost")
        with pytest.raises(errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
    assert is_idle(connection)
    assert body(judge) == "nothing"


def test_a_transaction_that_has_failed_before(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(errors.DivisionByZero):
        connection.execute("SELECT 1 / 0")
    with pytest.raises(errors.InFailedSqlTransaction), fence(connection, ("job", 1)):
        pytest.fail("the body was entered")
    connection.rollback()


def test_two_leases_in_one_transaction(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    connection = connect()
    with fence(connection, ("a", 1)), fence(connection, ("b", 9)):
        write(connection, "both")
    assert (body(judge), newest(judge)) == ("both", [("a", 1), ("b", 9)])
    with pytest.raises(Fenced), fence(connection, ("a", 2)):
        write(connection, "half")
        with fence(connection, ("b", 8)):
            pytest.fail("the body was entered")
    assert (body(judge), newest(judge)) == ("both", [("a", 1), ("b", 9)])


# --- the table ----------------------------------------------------------------------------------------------------


def test_a_missing_table_is_made_and_what_was_written_before_is_kept(
    connect: Connect, judge: psycopg.Connection[Any]
) -> None:
    connection = connect()
    connection.execute("INSERT INTO doc VALUES ('written before the guard')")
    with fence(connection, ("job", 1)):
        connection.execute("INSERT INTO doc VALUES ('in the guard')")
    connection.commit()
    assert judge.execute("SELECT count(*) FROM doc").fetchone() == (3,)
    assert newest(judge) == [("job", 1)]


def test_a_missing_table_is_made_by_two_at_once(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    we, they = connect(), connect()

    def they_write() -> None:
        with fence(they, ("another job", 1)):
            pass

    with ThreadPoolExecutor(1) as pool:
        we.execute("SELECT 1")
        with fence(we, ("job", 1)):
            writing = pool.submit(they_write)
            until_waiting(judge, they)
        we.commit()
        writing.result(60)
    assert newest(judge) == [("another job", 1), ("job", 1)]


@pytest.mark.parametrize("autocommit", [False, True])
def test_the_table_can_be_made_beforehand_and_twice(
    connect: Connect,
    judge: psycopg.Connection[Any],
    autocommit: bool,  # noqa: FBT001
) -> None:
    connection = connect(autocommit=autocommit)
    create_table(connection)
    create_table(connection)
    connection.commit()
    create_table(connection, "rolled_back")
    connection.rollback()
    made = judge.execute("SELECT to_regclass('lessor_fence') IS NOT NULL, to_regclass('rolled_back') IS NOT NULL")
    assert made.fetchone() == (True, autocommit)


def test_another_table_and_another_schema(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    connection = connect()
    judge.execute("CREATE SCHEMA other")
    for table, token in (("my_fence", 2), ("other.my_fence", 3), ("lessor_fence", 1)):
        with fence(connection, ("job", token), table=table):
            pass
        assert newest(judge, table) == [("job", token)]
    with pytest.raises(errors.InvalidSchemaName), fence(connection, ("job", 1), table="nowhere.my_fence"):
        pytest.fail("the body was entered")
    with pytest.raises(ConfigError, match="can't name the table"):
        fence(connection, ("job", 1), table="a;b")


def test_the_least_privileges(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    judge.execute("DROP ROLE IF EXISTS fence_writer; CREATE ROLE fence_writer")
    judge.execute("GRANT USAGE ON SCHEMA public TO fence_writer; GRANT SELECT, UPDATE ON doc TO fence_writer")
    connection = connect()
    connection.execute("SET ROLE fence_writer")
    connection.commit()
    with pytest.raises(errors.InsufficientPrivilege, match="schema public"), fence(connection, ("job", 1)):
        pytest.fail("the body was entered")
    create_table(judge)
    judge.execute("GRANT SELECT, INSERT, UPDATE ON lessor_fence TO fence_writer")
    for token in (1, 2):
        with fence(connection, ("job", token)):
            write(connection, str(token))
    with pytest.raises(Fenced), fence(connection, ("job", 1)):
        pytest.fail("the body was entered")
    assert body(judge) == "2"
    judge.execute("DROP OWNED BY fence_writer; DROP ROLE fence_writer")


def test_a_token_in_the_table_that_is_none(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    judge.execute("CREATE TABLE lessor_fence (resource TEXT PRIMARY KEY, token NUMERIC NOT NULL)")
    judge.execute("INSERT INTO lessor_fence VALUES ('job', 1.5)")
    with pytest.raises(ConfigError, match="tampered"), fence(connect(), ("job", 1)):
        pytest.fail("the body was entered")


# --- what is handed in --------------------------------------------------------------------------------------------


@bad_bearers
def test_what_can_not_be_a_stamp_changes_nothing(
    connect: Connect, judge: psycopg.Connection[Any], bearer: Any, error: type[LessorError], text: str
) -> None:
    connection = connect()
    with fence(connection, ("job", 5)):
        pass
    write(connection, "not committed yet")
    with pytest.raises(error, match=text), fence(connection, bearer):
        pytest.fail("the body was entered")
    connection.commit()
    assert (body(judge), newest(judge)) == ("not committed yet", [("job", 5)])


def test_a_lost_lease_does_not_touch_the_database(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(LeaseLost), fence(connection, LostLease()):
        pytest.fail("the body was entered")
    assert is_idle(connection)


def test_a_real_lease(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    connection = connect()
    with Client("memory://psycopg-fence") as leases:
        with leases.acquire("job", ttl=30) as lease, fence(connection, lease):
            write(connection, "mine")
        with pytest.raises(LeaseLost), fence(connection, lease):
            pytest.fail("the body was entered")
    assert (body(judge), newest(judge)) == ("mine", [("job", lease.token)])


def test_a_connection_with_its_own_rows_and_cursors(connect: Connect) -> None:
    connection = connect(row_factory=dict_row, cursor_factory=psycopg.ClientCursor)
    for token in range(5, 15):
        with fence(connection, ("job", token)):
            pass
    with pytest.raises(Fenced), fence(connection, ("job", 5)):
        pytest.fail("the body was entered")


def test_a_pipeline_may_be_opened_inside_but_not_around(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    connection = connect()
    with (
        connection.pipeline(),
        pytest.raises(ConfigError, match="open the pipeline inside"),
        fence(connection, ("job", 1)),
    ):
        pytest.fail("the body was entered")
    with fence(connection, ("job", 1)), connection.pipeline():
        write(connection, "one")
    assert body(judge) == "one"


def test_behind_pgbouncer_in_transaction_mode(
    connect: Connect, judge: psycopg.Connection[Any], postgres: PostgresServer, url: str
) -> None:
    with pgbouncer(postgres, default_pool_size="1") as bouncer:
        address = f"{bouncer.address}/{url.rpartition('/')[2]}"
        # Both are on the same connection to the server, one after the other.
        with (
            psycopg.connect(address, prepare_threshold=None) as older,
            psycopg.connect(address, prepare_threshold=None) as newer,
        ):
            for token in range(1, 10):
                with fence(newer if token % 2 else older, ("job", token)) as stamp:
                    write(newer if token % 2 else older, str(stamp.token))
            with pytest.raises(Fenced), fence(older, ("job", 8)):
                pytest.fail("the body was entered")
    assert (body(judge), newest(judge)) == ("9", [("job", 9)])


def test_a_two_phase_transaction_that_is_refused_can_not_be_prepared(
    connect: Connect, judge: psycopg.Connection[Any]
) -> None:
    connection = connect()
    with fence(connection, ("job", 5)):
        pass
    connection.tpc_begin("refused")
    write(connection, "written before the guard")
    with pytest.raises(Fenced), fence(connection, ("job", 4)):
        pytest.fail("the body was entered")
    with pytest.raises(errors.InFailedSqlTransaction):
        write(connection, "written after the refusal")
    connection.tpc_rollback()
    assert body(judge) == "nothing"


def test_a_closed_connection_and_one_that_breaks(connect: Connect, judge: psycopg.Connection[Any]) -> None:
    connection = connect()
    connection.close()
    with pytest.raises(psycopg.OperationalError, match="closed"), fence(connection, ("job", 1)):
        pytest.fail("the body was entered")
    connection = connect()
    with pytest.raises(psycopg.OperationalError), fence(connection, ("job", 1)):
        write(connection, "lost")
        judge.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    assert body(judge) == "nothing"
    with fence(judge, ("job", 1)):  # nothing is locked
        pass


def test_a_read_only_transaction(connect: Connect) -> None:
    connection = connect()
    create_table(connection)
    connection.commit()
    connection.read_only = True
    with pytest.raises(errors.ReadOnlySqlTransaction), fence(connection, ("job", 2)):
        pytest.fail("the body was entered")
    assert is_idle(connection)


def test_a_cursor_is_no_connection(connect: Connect) -> None:
    cursor: Any = connect().cursor()
    with pytest.raises(ConfigError, match="Cursor has none"):
        fence(cursor, ("job", 1))
    with pytest.raises(ConfigError, match="Cursor has none"):
        create_table(cursor)


# --- asyncio ------------------------------------------------------------------------------------------------------


def run(url: str, use: Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url, **options) as connection:
            await use(connection)

    asyncio.run(main())


async def write_async(connection: psycopg.AsyncConnection[Any], body: str) -> None:
    await connection.execute("UPDATE doc SET body = %s", (body,))


@pytest.mark.parametrize("autocommit", [False, True])
def test_async_without_a_transaction_the_guard_is_one(
    connect: Connect,
    judge: psycopg.Connection[Any],
    url: str,
    autocommit: bool,  # noqa: FBT001
) -> None:
    async def use(connection: psycopg.AsyncConnection[Any]) -> None:
        async with fence(connection, ("job", 5)) as stamp:
            assert stamp == ("job", 5)
            await write_async(connection, "five")
        assert is_idle(connection)
        with pytest.raises(Fenced):
            async with fence(connection, ("job", 4)):
                pytest.fail("the body was entered")
        with pytest.raises(ZeroDivisionError):
            async with fence(connection, ("job", 6)):
                await write_async(connection, "six")
                _ = 1 / 0
        assert is_idle(connection)

    run(url, use, autocommit=autocommit)
    assert (body(judge), newest(judge)) == ("five", [("job", 5)])


def test_async_an_open_transaction_stays_the_users_own(
    connect: Connect, judge: psycopg.Connection[Any], url: str
) -> None:
    async def use(connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("SELECT 1")
        async with fence(connection, ("job", 5)):
            await write_async(connection, "five")
        assert not is_idle(connection)
        await connection.commit()
        await write_async(connection, "written before the guard")
        with pytest.raises(Fenced):
            async with fence(connection, ("job", 4)):
                pytest.fail("the body was entered")
        assert is_idle(connection)
        async with connection.transaction():
            await write_async(connection, "written before the guard")
            with pytest.raises(Fenced):
                async with fence(connection, ("job", 4)):
                    pytest.fail("the body was entered")
            with pytest.raises(errors.InFailedSqlTransaction):
                await write_async(connection, "written after the refusal")

    run(url, use)
    assert (body(judge), newest(judge)) == ("five", [("job", 5)])


def test_async_a_body_that_commits_is_told(connect: Connect, judge: psycopg.Connection[Any], url: str) -> None:
    async def use(connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("SELECT 1")
        with pytest.raises(ConfigError, match="ended inside the guard"):
            async with fence(connection, ("job", 1)):
                await write_async(connection, "guarded")
                await connection.commit()
                await write_async(connection, "not guarded")
        assert is_idle(connection)

    run(url, use)
    assert body(judge) == "guarded"


def test_async_a_cancelled_body_is_rolled_back(connect: Connect, judge: psycopg.Connection[Any], url: str) -> None:
    async def use(connection: psycopg.AsyncConnection[Any]) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with fence(connection, ("job", 1)):
                await write_async(connection, "half")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with fence(connection, ("job", 1)):  # nothing is locked
            pass

    run(url, use)
    assert body(judge) == "nothing"


@pytest.mark.parametrize("autocommit", [False, True])
def test_async_the_table_beforehand_and_a_lost_lease(
    connect: Connect,
    judge: psycopg.Connection[Any],
    url: str,
    autocommit: bool,  # noqa: FBT001
) -> None:
    async def use(connection: psycopg.AsyncConnection[Any]) -> None:
        with pytest.raises(LeaseLost):
            async with fence(connection, LostLease()):
                pytest.fail("the body was entered")
        await create_table(connection)
        await connection.commit()

    run(url, use, autocommit=autocommit)
    assert newest(judge) == []
