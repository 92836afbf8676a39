"""Real servers for tests: each on a free port, with a folder of its own, ended by its process id."""

from __future__ import annotations

import os
import pwd
import socket


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def unprivileged() -> str | None:
    """Return whom a server runs as that refuses to run as root; None where it already isn't root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
