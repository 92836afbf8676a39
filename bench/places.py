"""Where the contestants meet: a server of the benchmark's own for each store, on a free port, in a temporary folder."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sqlite3
import tempfile
import urllib.request
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.worker import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.etcd import EtcdCluster, EtcdServer
    from tests.servers.paxos import PaxosCluster
    from tests.servers.postgres import PostgresServer
    from tests.servers.redis import RedisServer
    from tests.servers.zookeeper import ZooKeeperServer

TICKS = os.sysconf("SC_CLK_TCK")
SCRIPTS = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall")
REDIS_SETTINGS = ("save", "appendonly", "maxmemory-policy", "io-threads", "hz")
POSTGRESQL_SETTINGS = ("fsync", "synchronous_commit", "wal_sync_method", "shared_buffers", "max_connections")


@dataclass
class Usage:
    """What a server did for its clients."""

    cpu_seconds: float = 0.0
    requests: int = 0


class Place(ABC):
    """One store, empty at first."""

    url: str
    version: str

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Return what the server is set to, as far as it matters for speed."""

    @abstractmethod
    def cpu_seconds(self) -> float:
        """Return the CPU time that the server has used."""

    @abstractmethod
    def calls(self) -> Counter[str]:
        """Return what the server was asked for so far, by kind."""

    def requests(self, calls: Counter[str]) -> int:
        """Return how many requests of clients these are."""
        return calls.total()

    def records(self) -> int | None:
        """Return how many locks there may be at most, if the server can tell."""
        return None

    def left(self) -> Counter[str]:
        """Return what the server keeps for clients: ``keys``, ``leases`` and ``watches``."""
        return Counter()

    @contextlib.contextmanager
    def window(self) -> Iterator[Usage]:
        """Measure what the server does in the meantime."""
        usage = Usage()
        cpu_seconds, calls = self.cpu_seconds(), self.calls()
        yield usage
        usage.cpu_seconds = self.cpu_seconds() - cpu_seconds
        usage.requests = self.requests(self.calls() - calls)

    @abstractmethod
    def clear(self) -> None:
        """Be empty again; the URL may be another one afterwards."""


class RedisPlace(Place):
    def __init__(self, server: RedisServer) -> None:
        self.url = server.url
        self._server = server
        self._client = server.client()
        self.version = f"Redis {self._info('server')['redis_version']}"

    def settings(self) -> dict[str, str]:
        return {name: self._config(name) or "''" for name in REDIS_SETTINGS}

    def cpu_seconds(self) -> float:
        return _cpu(self._server.pid)

    def calls(self) -> Counter[str]:
        return Counter({name: int(stats["calls"]) for name, stats in self._info("commandstats").items()})

    def requests(self, calls: Counter[str]) -> int:
        """Where scripts are called, count these: Redis counts what they call inside as commands, too."""
        return sum(calls[name] for name in SCRIPTS) or calls.total()

    def records(self) -> int:
        size: int = self._client.dbsize()
        return size

    def clear(self) -> None:
        self._client.flushall()
        self._client.config_resetstat()

    def close(self) -> None:
        self._client.close()

    def _info(self, section: str) -> dict[str, Any]:
        info: dict[str, Any] = self._client.info(section)
        return info

    def _config(self, name: str) -> str:
        found: dict[Any, Any] = self._client.config_get(name)
        return str(found.get(name, ""))


class PostgresqlPlace(Place):
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._open()
        self.version = f"PostgreSQL {self._one('SHOW server_version').split()[0]}"

    def settings(self) -> dict[str, str]:
        return {name: self._one(f"SHOW {name}") for name in POSTGRESQL_SETTINGS}

    def cpu_seconds(self) -> float:
        children = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text().split()
        running = 0.0
        for child in children:
            with contextlib.suppress(OSError):  # it has just ended, and counts with its parent
                running += _cpu(int(child))
        return _cpu(self._server.pid, with_children=True) + running

    def calls(self) -> Counter[str]:
        """Count transactions: who doesn't begin one has one for each statement."""
        count = self._one("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
        return Counter({"transactions": int(count)})

    def clear(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self._connection.close()

    def _open(self) -> None:
        self.url = self._server.database()
        self._connection = self._server.connect(self.url.rpartition("/")[2])

    def _one(self, query: str) -> str:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return str(row[0])


class SqlitePlace(Place):
    """No server: each process does its own work."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._serials = itertools.count()
        self.version = f"SQLite {sqlite3.sqlite_version}"
        self.clear()

    def settings(self) -> dict[str, str]:
        return {"journal_mode": "wal", "synchronous": "normal"}

    def cpu_seconds(self) -> float:
        return 0.0

    def calls(self) -> Counter[str]:
        return Counter()

    def clear(self) -> None:
        folder = os.path.join(self._folder, str(next(self._serials)))
        os.mkdir(folder)
        self.url = f"sqlite:///{folder}/leases.db"


class EtcdPlace(Place):
    """Counts by etcd's own metrics: each message of a call or a stream is a request."""

    def __init__(self, server: EtcdServer) -> None:
        self.url = server.url
        self._server = server
        with urllib.request.urlopen(f"{self._address}/version", timeout=5) as answer:
            self.version = f"etcd {json.load(answer)['etcdserver']}"

    @property
    def _address(self) -> str:
        return f"http://{self._server.host}:{self._server.port}"

    def settings(self) -> dict[str, str]:
        return {"data": "on the disk, synced", "members": "1"}

    def cpu_seconds(self) -> float:
        return _cpu(self._server.pid)

    def calls(self) -> Counter[str]:
        return self._metrics("grpc_server_msg_received_total")

    def records(self) -> int:
        return self._metrics("etcd_debugging_mvcc_keys_total").total()

    def left(self) -> Counter[str]:
        return Counter(
            keys=self.records(),
            leases=len(self._server.ask("lease/leases", {}).get("leases", ())),
            watches=self._metrics("etcd_debugging_mvcc_watcher_total").total(),
        )

    def clear(self) -> None:
        everything = {"key": "AA==", "range_end": "AA=="}
        self._server.ask("kv/deleterange", everything)
        for lease in self._server.ask("lease/leases", {}).get("leases", ()):
            with contextlib.suppress(OSError):  # it has just run out
                self._server.ask("lease/revoke", {"ID": lease["ID"]})

    def _metrics(self, name: str) -> Counter[str]:
        with urllib.request.urlopen(f"{self._address}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line.startswith(name)]
        return Counter({what: int(float(number)) for what, number in pairs})


class ZookeeperPlace(Place):
    """Counts by what ``mntr`` says: each packet of a client is a request, pings included."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._serials = itertools.count()
        self.version = f"ZooKeeper {server.ask('srvr').split()[2].partition('-')[0]}"
        self.clear()

    def settings(self) -> dict[str, str]:
        return {"data": "on the disk, synced", "tickTime": "2000", "servers": "1"}

    def cpu_seconds(self) -> float:
        return _cpu(self._server.pid)

    def calls(self) -> Counter[str]:
        return Counter(packets=self._server.count("zk_packets_received"))

    def records(self) -> int:
        return self._server.count("zk_ephemerals_count")

    def left(self) -> Counter[str]:
        return Counter(keys=self._server.count("zk_znode_count"), watches=self._server.count("zk_watch_count"))

    def clear(self) -> None:
        """Begin in another part of the tree; what was left goes with the sessions that it belongs to."""
        from kazoo.client import KazooClient

        name = f"bench{next(self._serials)}"
        client = KazooClient(self._server.address)
        client.start()
        client.ensure_path(f"/{name}")
        client.stop()
        client.close()
        self.url = f"{self._server.url}/{name}"


class ClusterPlace(Place):
    """Three nodes of ours beside three members of etcd; whoever doesn't take part at the moment has nothing to do."""

    def __init__(self, nodes: PaxosCluster, members: EtcdCluster) -> None:
        self._nodes = nodes.nodes
        self._members = [EtcdPlace(member) for member in members.members]
        self.url = f"{nodes.url} {members.url}"
        self._pids = [node.pid for node in nodes.nodes] + [member.pid for member in members.members]
        self.version = f"three nodes of lessor, three of {self._members[0].version}"

    @staticmethod
    def ours(url: str) -> str:
        return url.split(maxsplit=1)[0]

    @staticmethod
    def etcd(url: str) -> str:
        return url.split()[1]

    def settings(self) -> dict[str, str]:
        return {"data": "on the disk, synced: ours once in ten seconds, etcd's with each write"}

    def cpu_seconds(self) -> float:
        return sum(_cpu(pid) for pid in self._pids)

    def calls(self) -> Counter[str]:
        calls: Counter[str] = Counter()
        for node in self._nodes:
            lines = [line.rsplit(" ", 1) for line in node.get("metrics")[1].splitlines()]
            calls["frames"] += sum(int(number) for name, number in lines if name == "lessor_node_requests_total")
        for member in self._members:
            calls["messages"] += member.calls().total()
        return calls

    def clear(self) -> None:
        """Leave ours to their TTLs: a resource that nobody asks for costs nothing."""
        self._members[0].clear()


@contextlib.contextmanager
def _redis() -> Iterator[Place]:
    from tests.servers.redis import redis_server

    with redis_server() as server, contextlib.closing(RedisPlace(server)) as place:
        yield place


@contextlib.contextmanager
def _postgresql() -> Iterator[Place]:
    from tests.servers.postgres import postgres_server

    with postgres_server() as server, contextlib.closing(PostgresqlPlace(server)) as place:
        yield place


@contextlib.contextmanager
def _sqlite() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="lessor-bench-") as folder:
        yield SqlitePlace(folder)


@contextlib.contextmanager
def _etcd() -> Iterator[Place]:
    from tests.servers.etcd import etcd_server

    with etcd_server(durable=True) as server:
        yield EtcdPlace(server)


@contextlib.contextmanager
def _zookeeper() -> Iterator[Place]:
    from tests.servers.zookeeper import USUAL, zookeeper_server

    with zookeeper_server(USUAL, durable=True) as server:
        yield ZookeeperPlace(server)


@contextlib.contextmanager
def _clusters() -> Iterator[Place]:
    from tests.servers.etcd import etcd_cluster
    from tests.servers.paxos import paxos_cluster

    with paxos_cluster() as nodes, etcd_cluster(durable=True) as members:
        yield ClusterPlace(nodes, members)


STORES: dict[str, Callable[[], contextlib.AbstractContextManager[Place]]] = {
    "redis": _redis,
    "postgresql": _postgresql,
    "sqlite": _sqlite,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
    "cluster": _clusters,
}


@contextlib.contextmanager
def open_place(store: str) -> Iterator[Place]:
    """Start the store's server; it is gone when the block ends. Raises `Failed` where it isn't installed."""
    import pytest  # the starters of the servers are those of the tests, and skip where there is no server

    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(STORES[store]())
        except (pytest.skip.Exception, pytest.fail.Exception) as absent:
            raise Failed(str(absent)) from None
        yield place


def _cpu(pid: int, *, with_children: bool = False) -> float:
    """Return the seconds that a process, and its ended children, have run."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11 : 15 if with_children else 13]) / TICKS
