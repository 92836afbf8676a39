"""A server whose data is put back to an older state, while clients run."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from lessor.client.sync import Client
from lessor.errors import StoreUnavailable
from lessor.testing.conformance.base import until
from tests.servers.zookeeper import zookeeper_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.client.lease import Lease
    from tests.servers.zookeeper import ZooKeeperServer

LONG = 60.0
"""Seconds in which something must have happened."""


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with zookeeper_server() as server:
        yield server


def _put_back(server: ZooKeeperServer, backup: str) -> None:
    server.kill()
    shutil.rmtree(server.folder / "data")
    shutil.copytree(backup, server.folder / "data")
    server.start()


def _write(server: ZooKeeperServer, count: int) -> None:
    client = KazooClient(server.address)
    client.start()
    client.create("/busy")
    for answer in [client.set_async("/busy", b"") for _ in range(count)]:
        answer.get(timeout=LONG)
    client.stop()
    client.close()


def _acquired(client: Client, resource: str) -> Lease:
    """Acquire as soon as the store lets us."""
    got: list[Lease] = []

    def acquire() -> bool:
        with contextlib.suppress(StoreUnavailable):
            got.append(client.acquire(resource, ttl=1, wait=5))
        return bool(got)

    until(acquire, "a lease", LONG)
    return got[0]


def test_a_running_client_gets_in_again_and_raises_the_tokens(server: ZooKeeperServer) -> None:
    backup = str(server.folder / "backup")
    with Client(server.url, timeout=2) as running, Client(server.url, timeout=2) as watcher:
        running.acquire("first", ttl=1).release()
        server.kill()
        shutil.copytree(server.folder / "data", backup)
        server.start()
        with watcher.watch("job") as events:
            for _ in range(10):
                _acquired(running, "job").release()
            _write(server, 5000)  # or the servers would soon be where they were
            held = _acquired(running, "job")
            until(lambda: next(events).token == held.token, "the last event", LONG)
            _put_back(server, backup)
            assert held.lost.wait(LONG), "what the servers know nothing of is lost"
            again = _acquired(running, "job")
            assert again.token > held.token
            until(lambda: next(events).token == again.token, "an event after that", LONG)
        with Client(server.url, timeout=2) as newcomer:
            again.release()
            assert _acquired(newcomer, "job").token > again.token
