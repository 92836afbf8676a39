"""Guards for the places that are written to: they refuse the token of a holder whose time is over.

A guard knows only what came through it. It can't refuse a late write before a newer holder has been there, and it
can't see writes that go round it: send *every* write of a resource through its guard. Reads need no token.

========================  ========================================================================
what is written to        the guard
========================  ========================================================================
anything in memory        ``Fence``: ``with fence.guard(lease): ...``
a file                    ``FencedFile(path).write(lease, data)``
SQLite, PostgreSQL        ``with fence(connection, lease): ...`` in your transaction
the same by SQLAlchemy    the same; ``async with`` where the connection is async
Redis                     ``fence(client, lease).set(key, value)``, ``hset``, ``delete``, ``eval``
an object in S3           ``FencedObject(store, path).write(lease, data)``
========================  ========================================================================

A guard takes a lease, or a ``(resource, token)`` pair that came with a message or from ``from_environ()``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lessor.fencing.file import FencedFile
    from lessor.fencing.memory import Fence
    from lessor.fencing.object import FencedObject
    from lessor.fencing.redis import AsyncFencedRedis, FencedRedis
    from lessor.fencing.registry import create_table, fence
    from lessor.fencing.stamp import Fenceable, Stamp, from_environ

__all__ = [
    "AsyncFencedRedis",
    "Fence",
    "Fenceable",
    "FencedFile",
    "FencedObject",
    "FencedRedis",
    "Stamp",
    "create_table",
    "fence",
    "from_environ",
]

_HOMES = {
    "AsyncFencedRedis": "redis",
    "Fence": "memory",
    "Fenceable": "stamp",
    "FencedFile": "file",
    "FencedObject": "object",
    "FencedRedis": "redis",
    "Stamp": "stamp",
    "create_table": "registry",
    "fence": "registry",
    "from_environ": "stamp",
}


def __getattr__(name: str) -> object:
    # Each guard is imported when it is asked for: a program that fences files needs no database.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
