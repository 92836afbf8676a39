"""A server for all these tests, an empty database for each, and stores on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.redis import RedisStore
from tests.servers.redis import RedisServer, redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    with redis_server("--requirepass", "") as server:
        yield server


@pytest.fixture
def raw(server: RedisServer) -> Iterator[redis.Redis]:
    """redis-py's own client, to look behind the store."""
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def open_store(server: RedisServer) -> Iterator[Callable[..., RedisStore]]:
    """Return what opens a store; all are closed in the end."""
    opened: list[RedisStore] = []

    def open_store(url: str | None = None) -> RedisStore:
        store = RedisStore(StoreURL.parse(url or server.url), SYSTEM)
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def store(raw: redis.Redis, open_store: Callable[[], RedisStore]) -> RedisStore:
    return open_store()
