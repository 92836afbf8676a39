"""For tests with several processes: an empty store of each kind that processes can share."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.servers.etcd import etcd_server
from tests.servers.paxos import paxos_cluster
from tests.servers.postgres import postgres_server
from tests.servers.redis import redis_server
from tests.servers.zookeeper import zookeeper_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "redis", "postgresql", "paxos"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path}/leases.db"
        elif request.param == "redis":
            yield stack.enter_context(redis_server()).url
        elif request.param == "paxos":
            yield stack.enter_context(paxos_cluster()).url
        elif request.param == "etcd":
            yield stack.enter_context(etcd_server(durable=True)).url
        elif request.param == "zookeeper":
            yield stack.enter_context(zookeeper_server(durable=True)).url
        elif request.node.get_closest_marker("chaos"):  # which is about time, so the disk is part of it
            yield stack.enter_context(postgres_server()).url
        else:
            postgres: PostgresServer = request.getfixturevalue("postgres")
            yield postgres.database()
