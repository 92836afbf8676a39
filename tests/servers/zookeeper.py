"""Real ZooKeeper servers: one, or an ensemble of three."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from lessor.testing.conformance.base import until
from tests.needs import not_here
from tests.servers import free_port, quick_folder
from tests.servers.island import Island

if TYPE_CHECKING:
    from collections.abc import Iterator

JARS = "/usr/share/java"
CLASSES = ":".join(f"{JARS}/{name}.jar" for name in ("zookeeper", "slf4j-simple", "netty-codec", "netty-resolver"))
TICK_MS = 50
"""So short that leases of a second can be tested. The limits that ZooKeeper counts in ticks are raised instead."""
MAX_TIMEOUT_MS = 300_000

SETTINGS = f"""
tickTime={TICK_MS}
initLimit=200
syncLimit=60
minSessionTimeout=100
maxSessionTimeout={MAX_TIMEOUT_MS}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""


USUAL = """
tickTime=2000
initLimit=10
syncLimit=5
minSessionTimeout=4000
maxSessionTimeout=40000
"""
"""What ZooKeeper has without settings, for those who don't wait for expiries."""
QUICKLY = "-Dzookeeper.forceSync=no"
"""Don't sync what is written."""


class ZooKeeperServer:
    """One server, which a test may stop, kill and start again on the same port."""

    java_options: tuple[str, ...] = (QUICKLY,)
    inside: tuple[str, ...] = ()
    """The command that runs it in a network of its own."""

    def __init__(
        self, folder: str, settings: str = "", number: int = 0, members: str = "", *, host: str = "127.0.0.1"
    ) -> None:
        if shutil.which("java") is None or not os.path.exists(f"{JARS}/zookeeper.jar"):
            not_here("zookeeper, or a Java to run it with, is not installed")
        self.folder = Path(folder)
        self.host = host
        self.port = free_port()
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        data = self.folder / "data"
        data.mkdir()
        (data / "myid").write_text(str(number))
        self._configuration = self.folder / "zoo.cfg"
        self._configuration.write_text(
            f"dataDir={data}\nclientPort={self.port}\nclientPortAddress={host}\n{SETTINGS}{members}{settings}"
        )

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"zookeeper://{self.address}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self.launch()
        until(self.serving, "the server's start", 60)

    def launch(self) -> None:
        """Start it without waiting until it answers."""
        command = [
            *self.inside, "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true",
            "-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.extendedTypesEnabled=true",
            "-Dzookeeper.fastleader.maxNotificationInterval=1000",
            *self.java_options, "-cp", CLASSES,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._configuration),
        ]  # fmt: skip
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def serving(self) -> bool:
        """Whether it is up and, in an ensemble, has found its place."""
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        return self.mode != ""

    @property
    def mode(self) -> str:
        """standalone, leader or follower; empty while it is none of them."""
        for line in self.ask("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def ask(self, word: str) -> str:
        """Send a four-letter word, and return the answer; empty if there is none."""
        answer = b""
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), timeout=2) as connection:
            connection.sendall(word.encode())
            while data := connection.recv(65536):
                answer += data
        return answer.decode()

    def count(self, what: str) -> int:
        """Return a number of the server's own: zk_watch_count, zk_znode_count, ..."""
        found = dict(line.split("\t", 1) for line in self.ask("mntr").splitlines() if "\t" in line)
        return int(float(found[what]))

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Connected, and silent: the kernel still takes what is sent."""
        self.stop()
        try:
            yield
        finally:
            self.go_on()

    def stop(self) -> None:
        """Let it stand still; see `go_on`."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class Ensemble:
    """Three servers that elect a leader."""

    def __init__(self, folder: str, island: Island | None = None) -> None:
        """With an island, the last one is there."""
        homes = [("127.0.0.1", "127.0.0.1")] * 3
        if island is not None:
            here = ("127.0.0.1", f"{island.peers}.1")
            homes = [here, here, (f"{island.clients}.2", f"{island.peers}.2")]
        members = "".join(
            f"server.{number}={peer}:{free_port()}:{free_port()}\n" for number, (_, peer) in enumerate(homes, 1)
        )
        self.servers: list[ZooKeeperServer] = []
        for number, (host, _) in enumerate(homes, 1):
            place = Path(folder) / str(number)
            place.mkdir()
            self.servers.append(ZooKeeperServer(str(place), number=number, members=members, host=host))
        if island is not None:
            self.servers[-1].inside = island.inside

    @property
    def url(self) -> str:
        return "zookeeper://" + ",".join(server.address for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.launch()
        self.settle()

    def settle(self) -> None:
        """Wait until all are up, under one leader. One that finds no place, or has given up, is started again."""
        for _ in range(3):
            with contextlib.suppress(AssertionError):
                return until(self._has_settled, "an ensemble", 20)
            for server in self.servers:
                if not server.mode:
                    server.end()
                    server.launch()
        return until(self._has_settled, "an ensemble", 60)

    def _has_settled(self) -> bool:
        return sorted(server.mode for server in self.servers) == ["follower", "follower", "leader"]

    @property
    def leader(self) -> ZooKeeperServer:
        return next(server for server in self.servers if server.mode == "leader")

    @property
    def followers(self) -> list[ZooKeeperServer]:
        return [server for server in self.servers if server.mode == "follower"]

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """All of them connected, and silent."""
        with contextlib.ExitStack() as stack:
            for server in self.servers:
                stack.enter_context(server.standing_still())
            yield

    def end(self) -> None:
        for server in self.servers:
            server.end()


@contextlib.contextmanager
def zookeeper_server(
    settings: str = "", *, durable: bool = False, options: tuple[str, ...] = ()
) -> Iterator[ZooKeeperServer]:
    """One with these settings and, for those that have no place there, options of Java's."""
    with quick_folder("lessor-zookeeper-", durable=durable) as folder:
        server = ZooKeeperServer(folder, settings)
        server.java_options = options if durable else (QUICKLY, *options)
        try:
            server.start()
            yield server
        finally:
            server.end()


@contextlib.contextmanager
def ensemble() -> Iterator[Ensemble]:
    with quick_folder("lessor-zookeeper-") as folder:
        yield from _running(Ensemble(folder))


@contextlib.contextmanager
def ensemble_with_island() -> Iterator[tuple[Ensemble, ZooKeeperServer, Island]]:
    """Three servers, the last one on an island."""
    with quick_folder("lessor-zookeeper-") as folder, Island() as island:
        for three in _running(Ensemble(folder, island)):
            yield three, three.servers[-1], island


def _running(three: Ensemble) -> Iterator[Ensemble]:
    try:
        three.start()
        yield three
    finally:
        three.end()
