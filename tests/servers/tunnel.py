"""A way to a server on which things get lost: connections stay open, and nothing comes through."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Tunnel:
    """Passes everything on, until it swallows it. A connection that was swallowed once stays dead."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = [self._listener]
        self._dead = threading.Event()
        self._serving = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._serving.join()  # or a connection that comes at this moment stays open
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def swallow(self) -> None:
        """Let nothing through from here on, new connections included."""
        self._dead.set()

    def lead(self, to: int) -> None:
        """Take new connections to another port from here on."""
        self._to = to

    @property
    def passed(self) -> int:
        """How many connections have come through so far."""
        return len(self._ends) // 2

    def mend(self) -> None:
        """Let new connections through."""
        self._dead = threading.Event()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._to))
                except ConnectionRefusedError:  # nobody is there at the moment
                    near.close()
                    continue
                self._ends += [near, far]
                for pump, source, target in ((self._there, near, far), (self._back, far, near)):
                    threading.Thread(target=pump, args=(source, target, self._dead), daemon=True).start()

    def _there(self, source: socket.socket, target: socket.socket, dead: threading.Event) -> None:
        self._pump(source, target, dead)

    def _back(self, source: socket.socket, target: socket.socket, dead: threading.Event) -> None:
        self._pump(source, target, dead)

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket, dead: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not dead.is_set():
                    target.sendall(data)
            if not dead.is_set():
                target.shutdown(socket.SHUT_WR)


class TornTunnel(Tunnel):
    """Loses its way in the middle of what comes back."""

    _torn = False

    def tear(self) -> None:
        """Let half of the next thing through that comes back, and nothing from there on."""
        self._torn = True

    def _back(self, source: socket.socket, target: socket.socket, dead: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._torn and not dead.is_set():
                    target.sendall(data[: len(data) // 2])
                    self.swallow()
                elif not dead.is_set():
                    target.sendall(data)

    def mend(self) -> None:
        """Let new connections through."""
        self._torn = False
        super().mend()


class SlowTunnel(Tunnel):
    """What comes back is late; each part of it, where the parts are small."""

    delay = 0.0
    size = 65536

    def _back(self, source: socket.socket, target: socket.socket, dead: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                for start in range(0, len(data), self.size):
                    dead.wait(self.delay)
                    target.sendall(data[start : start + self.size])
            target.shutdown(socket.SHUT_WR)
