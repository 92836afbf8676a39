"""A database for all these tests, a namespace for each, and stores on it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.postgresql import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from tests.servers.postgres import PostgresServer

serials = itertools.count()


@pytest.fixture(scope="session")
def shared(postgres: PostgresServer) -> str:
    return postgres.database()


@pytest.fixture
def url(shared: str) -> str:
    return f"{shared}?namespace=test-{next(serials)}"


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[..., PostgresStore]]:
    """Return what opens a store; all are closed in the end."""
    opened: list[PostgresStore] = []

    def open_store(where: str = url) -> PostgresStore:
        store = PostgresStore(StoreURL.parse(where), SYSTEM)
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], PostgresStore]) -> PostgresStore:
    store = open_store()
    store.read(["x"], timeout=20)  # the schema is there from here on
    return store


@pytest.fixture
def raw(store: PostgresStore, postgres: PostgresServer, shared: str) -> Iterator[psycopg.Connection]:
    """A connection, to look behind the store."""
    with postgres.connect(shared.rpartition("/")[2]) as connection:
        yield connection
