"""How processes on one file wake each other: a datagram socket each, in a folder beside the file.

A datagram is only a nudge with a name in it. Whoever gets one asks the file, so a lost, forged or repeated one costs
a look and nothing else. That nobody listens any more is told at once, which takes dead waiters out of the queue.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from typing import TYPE_CHECKING

from lessor.stores.descriptors import keep_from_children
from lessor.stores.doorbell import Doorbell
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.ops import Notice

MAX_DATAGRAM = 64 * 1024
NOTICES_AT_ONCE = 64
"""How many fit into one datagram, with the longest names there are."""
FULL_RETRIES = 3
FULL_PAUSE = 5e-4


class Post:
    """Sends nudges to, and makes mailboxes in, the folder of one file. Thread-safe."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = new_lock()
        self._dir_fd: int | None = None
        self._socket: socket.socket | None = None

    def send(self, address: str, message: bytes) -> bool:
        """Nudge a mailbox. False: nobody is there any more."""
        with self._lock:
            error = self._send(address, message)
            for _ in range(FULL_RETRIES if message else 0):  # a nudge without a word is as good as those before it
                if error != errno.EAGAIN:
                    break
                time.sleep(FULL_PAUSE)  # it takes ten at a time, and its reader is about to take them out
                error = self._send(address, message)
        # One that stays full, or that we may not write to, is there, for all we know.
        return error not in (errno.ECONNREFUSED, errno.ENOENT)

    def call(self, notices: Sequence[Notice]) -> list[Notice]:
        """Send the notices, those for one client together; return those that reach nobody."""
        by_address: dict[str, list[Notice]] = {}
        for notice in notices:
            by_address.setdefault(notice.address, []).append(notice)
        unheard = []
        for address, theirs in by_address.items():
            for start in range(0, len(theirs), NOTICES_AT_ONCE):
                some = theirs[start : start + NOTICES_AT_ONCE]
                words = [[n.summons, n.resource, n.lease_id] for n in some]
                if not self.send(address, json.dumps(words).encode()):
                    unheard += some
        return unheard

    def mailbox(self) -> Mailbox:
        """Open a mailbox of our own, and remove those of the dead."""
        os.makedirs(self._folder, exist_ok=True)
        for name in os.listdir(self._folder):
            if not self.send(name, b""):
                with contextlib.suppress(OSError):  # gone already, or nothing of ours
                    os.unlink(os.path.join(self._folder, name))
        name = os.urandom(8).hex()
        with self._lock:
            return Mailbox(name, self._path(name), os.path.join(self._folder, name))

    def close(self) -> None:
        """Let go of the socket and the folder."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self._forget_folder()

    def _send(self, address: str, message: bytes) -> int:
        """Try to send, also into a folder that has replaced the one we know; return the error's number, or 0."""
        for _ in range(2):
            try:
                if self._socket is None:
                    self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
                self._socket.sendto(message, self._path(address))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    return error.errno or errno.EIO
                self._forget_folder()
            else:
                return 0
        return errno.ENOENT

    def _path(self, name: str) -> str:
        # A socket's path holds 107 bytes; this one is short however deep the folder lies.
        if self._dir_fd is None:
            self._dir_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._dir_fd}/{name}"

    def _forget_folder(self) -> None:
        if self._dir_fd is not None:
            os.close(self._dir_fd)
            self._dir_fd = None


class Mailbox:
    """Where one subscription is nudged. Read by one thread at a time, closed by any."""

    def __init__(self, name: str, short_path: str, path: str) -> None:
        self.name = name
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        keep_from_children(self._socket)
        self._socket.bind(short_path)
        self._doorbell = Doorbell(self._socket.close)
        self._doorbell.watch(self._socket.fileno())
        self.interrupt = self._doorbell.ring

    def get(self, timeout: float) -> list[bytes]:
        """Return the nudges that came, waiting up to ``timeout`` seconds for the first."""
        messages: list[bytes] = []
        self._doorbell.wait(max(0.0, timeout))
        with contextlib.suppress(OSError):  # there are no more, or it was closed
            while True:
                messages.append(self._socket.recv(MAX_DATAGRAM))
        return messages

    def close(self) -> None:
        """Stop listening; a ``get`` in another thread returns."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        self._doorbell.close()
