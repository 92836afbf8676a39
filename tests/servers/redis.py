"""Real Redis servers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import redis

from leasehold.testing.conformance.base import until
from tests.needs import not_here
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator


class RedisServer:
    """One redis-server process, which a test may stop, kill and start again on the same port."""

    def __init__(self, folder: str, *settings: str) -> None:
        if shutil.which("redis-server") is None:
            not_here("redis-server is not installed")
        self.folder = folder
        self.settings = settings
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [
            "redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder,
            "--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", f"{self.folder}/redis.log",
            *self.settings,
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._listening, "the server's start")

    def _listening(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return not connection.recv(64).startswith(b"-LOADING")
        return False

    def client(self, **settings: Any) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True, **settings)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Connected, and silent: the kernel still takes what is sent."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


@contextlib.contextmanager
def redis_server(*settings: str) -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="leasehold-redis-") as folder:
        server = RedisServer(folder, *settings)
        try:
            yield server
        finally:
            server.end()
