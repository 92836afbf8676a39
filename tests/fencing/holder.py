"""A holder that is stopped between its check and its write: ``python -m tests.fencing.holder URL GUARD PATH``.

It takes the lease, prints its token, asks whether the lease is its own, and stops itself (SIGSTOP), as a debugger or a
busy host would. Whenever it is continued, it writes, without asking again, and says what came of it. In the end it
tries the guard with the lease itself, which asks.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from lessor import Client, LessorError
from lessor.fencing import FencedFile, fence

RESOURCE = "reports/nightly"
TTL = 0.5


def write_to_memory(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    """Have it written by the process that owns the memory: here, the test."""
    resource, token = bearer if isinstance(bearer, tuple) else _asked(bearer)
    sys.stdout.write(json.dumps({"resource": resource, "token": token, "body": body, "guarded": guarded}) + "\n")
    sys.stdout.flush()
    answer = json.loads(sys.stdin.readline())
    if answer["refused"]:
        raise LessorError(answer["refused"])


def _asked(lease: Any) -> tuple[str, int]:
    lease.check()
    return lease.resource, lease.token


def write_to_file(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    if guarded:
        FencedFile(path).write(bearer, body)
    else:
        Path(path).write_text(body)


def write_to_sqlite(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    with closing(sqlite3.connect(path)) as connection:
        if guarded:
            with fence(connection, bearer):
                connection.execute("UPDATE doc SET body = ?", (body,))
        else:
            with connection:
                connection.execute("UPDATE doc SET body = ?", (body,))


def write_to_sqlalchemy(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(path)
    with engine.begin() as connection:
        if guarded:
            with fence(connection, bearer):
                connection.execute(sa.text("UPDATE doc SET body = :body"), {"body": body})
        else:
            connection.execute(sa.text("UPDATE doc SET body = :body"), {"body": body})
    engine.dispose()


def write_to_sqlalchemy_async(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    import sqlalchemy as sa
    from sqlalchemy.ext.asyncio import create_async_engine

    async def write() -> None:
        engine = create_async_engine(path)
        async with engine.begin() as connection:
            if guarded:
                async with fence(connection, bearer):
                    await connection.execute(sa.text("UPDATE doc SET body = :body"), {"body": body})
            else:
                await connection.execute(sa.text("UPDATE doc SET body = :body"), {"body": body})
        await engine.dispose()

    asyncio.run(write())


def write_to_psycopg(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    import psycopg

    with psycopg.connect(path) as connection:
        if guarded:
            with fence(connection, bearer):
                connection.execute("UPDATE doc SET body = %s", (body,))
        else:
            connection.execute("UPDATE doc SET body = %s", (body,))


def write_to_psycopg_async(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    import psycopg

    async def write() -> None:
        async with await psycopg.AsyncConnection.connect(path) as connection:
            if guarded:
                async with fence(connection, bearer):
                    await connection.execute("UPDATE doc SET body = %s", (body,))
            else:
                await connection.execute("UPDATE doc SET body = %s", (body,))

    asyncio.run(write())


def write_to_redis(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    import redis

    with redis.Redis.from_url(path) as client:
        if guarded:
            fence(client, bearer).set("doc", body)
        else:
            client.set("doc", body)


def write_to_redis_async(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    import redis.asyncio

    async def write() -> None:
        async with redis.asyncio.Redis.from_url(path) as client:
            if guarded:
                await fence(client, bearer).set("doc", body)
            else:
                await client.set("doc", body)

    asyncio.run(write())


def write_to_s3(path: str, bearer: Any, body: str, *, guarded: bool) -> None:
    from lessor.fencing import FencedObject
    from tests.servers.s3 import store

    if guarded:
        FencedObject(store(path), "doc").write(bearer, body)
    else:
        store(path).put("doc", body.encode())


WRITE = {
    "memory": write_to_memory,
    "file": write_to_file,
    "sqlite": write_to_sqlite,
    "sqlite+pysqlite": write_to_sqlalchemy,
    "sqlite+aiosqlite": write_to_sqlalchemy_async,
    "psycopg": write_to_psycopg,
    "psycopg-async": write_to_psycopg_async,
    "postgresql+psycopg": write_to_sqlalchemy,
    "postgresql+asyncpg": write_to_sqlalchemy_async,
    "redis": write_to_redis,
    "redis-async": write_to_redis_async,
    "s3": write_to_s3,
}
"""What is written to, and how; those with a + are SQLAlchemy's."""


def main() -> None:
    url, kind, path = sys.argv[1:]
    write = WRITE[kind]
    with Client(url, holder="stopped") as leases:
        lease = leases.acquire(RESOURCE, ttl=TTL)
        stamp = (lease.resource, lease.token)
        say({"token": lease.token})
        lease.check()
        os.kill(os.getpid(), signal.SIGSTOP)
        for bearer, guarded in ((stamp, True), (lease, True), (stamp, False)):
            try:
                write(path, bearer, "stale", guarded=guarded)
                say({"refused": None})
            except LessorError as error:
                say({"refused": type(error).__name__, "text": str(error)})
            sys.stdin.readline()


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
