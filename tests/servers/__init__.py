"""Real servers for tests: each on a free port, with a folder of its own, ended by its process id."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import socket
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = "/dev/shm"
"""Where a server that syncs every write waits for no disk. What a kill leaves there is all that it wrote."""


WORKERS = 32
_given: set[int] = set()


def free_port() -> int:
    """Return a port that nobody listens on, and that the kernel gives to no connection before a server takes it.

    Nor does another worker of the same run, or a second call in this one: a server takes it only some time later.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % WORKERS
    while True:
        port = random.randrange(15_000 + worker, 32_000, WORKERS)
        if port in _given:
            continue
        _given.add(port)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def quick_folder(prefix: str, *, durable: bool = False) -> Iterator[str]:
    """Make a folder for servers, in memory where there is a place for it, unless they are to pay for the disk."""
    place = MEMORY if not durable and os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place) as folder:
        yield folder


def unprivileged() -> str | None:
    """Return whom a server runs as that refuses to run as root; None where it already isn't root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
