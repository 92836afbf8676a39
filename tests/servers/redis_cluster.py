"""A real Redis Cluster."""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING

import redis
from redis.crc import key_slot

from lessor.testing.conformance.base import until
from tests.servers import free_port
from tests.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 16384


class ClusterServer(RedisServer):
    """One server of a Cluster."""

    def __init__(self, folder: str) -> None:
        self.bus_port = free_port()
        super().__init__(folder)

    def _command(self) -> list[str]:
        return [
            *super()._command(), "--cluster-enabled", "yes", "--cluster-port", str(self.bus_port),
            "--cluster-config-file", f"nodes-{self.port}.conf", "--cluster-node-timeout", "1000",
            "--cluster-replica-validity-factor", "0",
        ]  # fmt: skip

    @property
    def name(self) -> str:
        """How the others call it."""
        return str(self.run("CLUSTER", "MYID"))

    def knows_all(self, count: int) -> bool:
        """Whether it knows that many servers, and takes the Cluster for complete."""
        facts = dict(line.split(":") for line in str(self.run("CLUSTER", "INFO")).split())
        return facts["cluster_state"] == "ok" and int(facts["cluster_known_nodes"]) == count

    def follow(self, master: ClusterServer) -> bool:
        """Become its replica, once it is known here."""
        with contextlib.suppress(redis.ResponseError):
            self.run("CLUSTER", "REPLICATE", master.name)
            return True
        return False


class Cluster:
    """Masters that share the slots; the last servers are replicas of the first one."""

    def __init__(self, folder: str, ending: contextlib.ExitStack, *, masters: int, replicas: int) -> None:
        self.servers = [ClusterServer(folder) for _ in range(masters + replicas)]
        for server in self.servers:
            ending.callback(server.end)
        self.masters = self.servers[:masters]
        first = self.servers[0]
        for number, server in enumerate(self.servers):
            server.run("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            first.run("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus_port)
        share = -(-SLOTS // masters)
        for number, server in enumerate(self.masters):
            server.run("CLUSTER", "ADDSLOTS", *range(number * share, min(SLOTS, (number + 1) * share)))
        until(self.up, "the Cluster", 60)
        for server in self.servers[masters:]:
            until(lambda: server.follow(first), "a replica")  # noqa: B023 - used at once
        until(lambda: len(first.run("ROLE")[2]) == replicas, "the replicas")

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{s.port}' for s in self.masters)}/"

    def up(self) -> bool:
        """Whether all that live take the Cluster for complete."""
        return all(server.knows_all(len(self.servers)) for server in self.servers if server.alive)

    def master_of(self, key: str) -> ClusterServer:
        """The server that has the key's slot, as the first live one knows."""
        slot = key_slot(key.encode())
        asked = next(server for server in self.servers if server.alive)
        for first, last, (_, port, *_rest), *_ in asked.run("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(server for server in self.servers if server.port == port)
        raise AssertionError(f"nobody has slot {slot}")


@contextlib.contextmanager
def redis_cluster(*, masters: int = 3, replicas: int = 0) -> Iterator[Cluster]:
    with (
        tempfile.TemporaryDirectory(prefix="lessor-cluster-", ignore_cleanup_errors=True) as folder,
        contextlib.ExitStack() as ending,
    ):
        yield Cluster(folder, ending, masters=masters, replicas=replicas)
