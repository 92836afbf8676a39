"""The stores that these tests run on, each empty."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.servers.etcd import etcd_server
from tests.servers.paxos import paxos_cluster
from tests.servers.postgres import postgres_server
from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

serials = itertools.count()


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as server:
        yield server.url


@pytest.fixture(scope="module")
def postgresql_url() -> Iterator[str]:
    with postgres_server("fsync=off", "full_page_writes=off", "track_functions=all") as server:
        yield f"{server.address}/postgres"


@pytest.fixture(scope="module")
def etcd_url() -> Iterator[str]:
    with etcd_server() as server:
        yield server.url


@pytest.fixture(scope="module")
def paxos_url() -> Iterator[str]:
    with paxos_cluster() as cluster:
        yield cluster.url


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store is that the test is parametrized with."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/leases.db"
    return f"{request.getfixturevalue(request.param + '_url')}?namespace=patterns-{next(serials)}"
