"""Real Redis servers behind real Sentinels."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from lessor.testing.conformance.base import until
from tests.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVICE = "mymaster"


class Sentinel(RedisServer):
    """One Sentinel that watches over the group's master."""

    def __init__(self, folder: str, master: RedisServer, down_after_ms: int, *settings: str, tls: bool = False) -> None:
        self._master = master
        self._down_after_ms = down_after_ms
        super().__init__(folder, *settings, tls=tls)

    def _command(self) -> list[str]:
        path = Path(self.folder, f"sentinel-{self.port}.conf")
        if not path.exists():
            lines = [
                *(["port 0", f"tls-port {self.port}"] if self.tls else [f"port {self.port}"]),
                "bind 127.0.0.1",
                f"dir {self.folder}",
                f"logfile {self.port}.log",
                f"sentinel monitor {SERVICE} 127.0.0.1 {self._master.port} 2",
                f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}",
                f"sentinel failover-timeout {SERVICE} 3000",
                *self.settings,
            ]
            path.write_text("\n".join(lines))
        return ["redis-server", str(path), "--sentinel"]

    def facts(self) -> dict[str, Any]:
        """What it knows of the master."""
        with self.client() as raw:
            return dict(raw.sentinel_master(SERVICE))


class SentinelGroup:
    """A master, its replicas, and three Sentinels."""

    def __init__(self, folder: str, ending: contextlib.ExitStack, *, replicas: int, down_after_ms: int) -> None:
        self.servers = [RedisServer(folder) for _ in range(1 + replicas)]
        for server in self.servers:
            ending.callback(server.end)
        for replica in self.servers[1:]:
            replica.replicate(self.servers[0])
        self.sentinels = [Sentinel(folder, self.servers[0], down_after_ms) for _ in range(3)]
        for sentinel in self.sentinels:
            ending.callback(sentinel.end)
        until(self.settled, "Sentinels that know each other")

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'127.0.0.1:{s.port}' for s in self.sentinels)}/{SERVICE}/0"

    @property
    def master(self) -> RedisServer:
        """The server that the first Sentinel names."""
        port = self.sentinels[0].facts()["port"]
        return next(server for server in self.servers if server.port == port)

    def agreed(self) -> bool:
        """Whether all Sentinels name the same server, and it is a master."""
        known = [sentinel.facts() for sentinel in self.sentinels]
        same = len({facts["port"] for facts in known}) == 1
        return same and all(facts["flags"] == "master" for facts in known) and self.master.run("ROLE")[0] == "master"

    def settled(self) -> bool:
        """Whether they also know each other, and all other servers follow the master."""
        known = [(facts["num-other-sentinels"], facts["num-slaves"]) for facts in (s.facts() for s in self.sentinels)]
        replicas = len(self.servers) - 1
        return self.agreed() and set(known) == {(2, replicas)} and len(self.master.run("ROLE")[2]) == replicas

    def fail_over(self) -> None:
        """Let Sentinel promote a replica, and wait until all know."""
        before = self.master.port
        tries = 4
        while tries:
            with contextlib.suppress(redis.ResponseError):  # one is under way already
                self.sentinels[0].run("SENTINEL", "FAILOVER", SERVICE)
            tries -= 1
            try:
                until(lambda: self.master.port != before and self.agreed(), "the failover", 20)
            except AssertionError:  # Sentinels give one up that takes too long, and don't try again by themselves
                if not tries:
                    raise
            else:
                return


@contextlib.contextmanager
def sentinel_group(*, replicas: int = 1, down_after_ms: int = 1000) -> Iterator[SentinelGroup]:
    with (
        tempfile.TemporaryDirectory(prefix="lessor-sentinel-", ignore_cleanup_errors=True) as folder,
        contextlib.ExitStack() as ending,
    ):
        yield SentinelGroup(folder, ending, replicas=replicas, down_after_ms=down_after_ms)
