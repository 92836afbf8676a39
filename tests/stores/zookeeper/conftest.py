"""One server for all tests here that don't harm it, and for each a namespace of its own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from tests.servers.zookeeper import ZooKeeperServer, zookeeper_server
from tests.stores.zookeeper.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.stores.zookeeper import ZooKeeperStore

serials = itertools.count()


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with zookeeper_server() as server:
        yield server


@pytest.fixture
def namespace() -> str:
    return f"n{next(serials)}"


@pytest.fixture
def url(zookeeper: ZooKeeperServer, namespace: str) -> str:
    return f"{zookeeper.url}/own?namespace={namespace}"


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], ZooKeeperStore]]:
    """What opens the store once more."""
    stores: list[ZooKeeperStore] = []

    def opened() -> ZooKeeperStore:
        stores.append(open_store(url, SYSTEM))  # type: ignore[arg-type]
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], ZooKeeperStore]) -> ZooKeeperStore:
    return opened()


@pytest.fixture
def tree(zookeeper: ZooKeeperServer, namespace: str) -> Iterator[Tree]:
    """The nodes, as somebody with zkCli sees them."""
    client = KazooClient(zookeeper.address)
    client.start()
    yield Tree(client, f"/own/{namespace}")
    client.stop()
    client.close()
