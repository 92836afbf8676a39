"""Real lessor nodes: processes on free ports, each with a data folder of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from lessor.node.process import init
from lessor.testing.conformance.base import until
from tests.servers import free_port
from tests.servers.island import Island

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class PaxosNode:
    """One node, which a test may stop, kill and start again on the same ports and folder."""

    host = "127.0.0.1"
    inside: tuple[str, ...] = ()
    """The command that runs it in a network of its own."""

    def __init__(self, folder: str, name: str, *settings: str) -> None:
        self.folder = folder
        self.name = name
        self.settings = settings
        self.port = free_port()
        self.http_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self, peers: Sequence[PaxosNode]) -> list[str]:
        others = ",".join(f"{peer.name}={peer.place}" for peer in peers if peer is not self)
        return [
            *self.inside, sys.executable, "-m", "lessor", "node", "--id", self.name, "--data", self.data,
            "--listen", self.place, "--http", f"{self.host}:{self.http_port}", "--peers", others, *self.settings,
        ]  # fmt: skip

    def launch(self, peers: Sequence[PaxosNode]) -> None:
        """Start it, and don't wait until it answers."""
        with open(f"{self.folder}/{self.name}.log", "ab") as log:
            self._process = subprocess.Popen(self.command(peers), stdout=log, stderr=log)

    def get(self, path: str) -> tuple[int, str]:
        """Ask over HTTP."""
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.http_port}/{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def state(self) -> str:
        """Say in a word how it is."""
        with contextlib.suppress(OSError):
            return self.get("health")[1].strip()
        return "down"

    def wait(self, *states: str) -> None:
        """Wait until it is in one of these states: serving, if nothing else is said."""

        def there() -> bool:
            assert self.alive, f"node {self.name} ended: {self.log()}"
            return self.state() in (states or ("serving",))

        until(there, f"the node's start ({self.name})", 60)

    def log(self) -> str:
        with open(f"{self.folder}/{self.name}.log", encoding="utf-8") as file:
            return file.read()

    def stop(self) -> None:
        """Let it stand still; see `go_on`."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def collect(self) -> None:
        """Let it forget all free resources."""
        os.kill(self.pid, signal.SIGUSR1)

    def kill(self) -> None:
        """As a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def shut_down(self) -> int:
        """As an administrator would; return the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(30)

    def exit_code(self) -> int:
        """Wait until it ends by itself; return how."""
        assert self._process is not None
        return self._process.wait(30)

    def end(self) -> None:
        if self.alive:
            self.kill()


class PaxosCluster:
    """Some nodes."""

    def __init__(self, nodes: list[PaxosNode]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return f"paxos://{','.join(node.place for node in self.nodes)}"

    def init(self) -> None:
        """Prepare their folders for a new cluster."""
        for node in self.nodes:
            init(node.data, node.name)

    def start(self, *nodes: PaxosNode, wait: bool = True) -> None:
        """Start these, or all of them, at first or again."""
        for node in nodes or self.nodes:
            node.launch(self.nodes)
        for node in nodes or self.nodes:
            if wait:
                node.wait()

    def stop_and_start_inside(self, node: PaxosNode, *command: str) -> None:
        """Restart it, run by this command."""
        node.shut_down()
        node.inside = command
        self.start(node)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Connected, and silent: the kernel still takes what is sent."""
        for node in self.nodes:
            node.stop()
        try:
            yield
        finally:
            for node in self.nodes:
                node.go_on()


@contextlib.contextmanager
def paxos_cluster(nodes: int = 3, *settings: str) -> Iterator[PaxosCluster]:
    with tempfile.TemporaryDirectory(prefix="lessor-paxos-") as folder:
        yield from _running([PaxosNode(folder, "abcde"[n], *settings) for n in range(nodes)])


@contextlib.contextmanager
def paxos_cluster_with_island(*settings: str) -> Iterator[tuple[PaxosCluster, Island]]:
    """Three nodes, the last one on a network of its own."""
    with tempfile.TemporaryDirectory(prefix="lessor-paxos-") as folder, Island() as island:
        nodes = [PaxosNode(folder, name, *settings) for name in "abc"]
        for node in nodes[:2]:
            node.host = f"{island.peers}.1"
        nodes[2].host = f"{island.peers}.2"
        nodes[2].inside = ("ip", "netns", "exec", island.name)
        for cluster in _running(nodes):
            yield cluster, island


def _running(nodes: list[PaxosNode]) -> Iterator[PaxosCluster]:
    cluster = PaxosCluster(nodes)
    try:
        cluster.init()
        cluster.start()
        yield cluster
    finally:
        for node in nodes:
            node.end()
