"""A server for all these tests, a namespace for each, and stores on it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.etcd import EtcdStore
from tests.servers.etcd import EtcdServer, etcd_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

serials = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        yield server


@pytest.fixture
def namespace() -> str:
    return f"store-{next(serials)}"


@pytest.fixture
def open_store(server: EtcdServer, namespace: str) -> Iterator[Callable[..., EtcdStore]]:
    """Return what opens a store; all are closed in the end."""
    opened: list[EtcdStore] = []

    def open_store(url: str | None = None) -> EtcdStore:
        store = EtcdStore(StoreURL.parse(url or f"{server.url}?namespace={namespace}"), SYSTEM)
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], EtcdStore]) -> EtcdStore:
    return open_store()
