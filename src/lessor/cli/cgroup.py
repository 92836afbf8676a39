"""A control group of COMMAND's own, where one can be made: the kernel then kills all of it at once.

It needs Linux 5.14, control groups of version 2, and the right to make one below one's own: root, or delegation. A
process with these rights can leave it; it is still found as a descendant.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
from typing import Final

TRIES: Final = 20
PAUSE: Final = 0.01
"""Seconds between two tries: the kernel may count a process that has ended for a moment longer."""


class ControlGroup:
    """A folder below this process's own control group."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def make(cls) -> ControlGroup | None:
        """Make one. None: this host, or this user, can't."""
        parent = _own()
        if parent is None:
            return None
        path = os.path.join(parent, f"lessor-run-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            os.mkdir(path)
        except OSError:
            return None
        made = cls(path)
        if not os.access(os.path.join(path, "cgroup.kill"), os.W_OK):
            made.remove()
            return None
        return made

    def join(self) -> None:
        """Move this process into it; what it forks from then on is born there."""
        with contextlib.suppress(OSError):
            _write(self.path, "cgroup.procs", "0")

    def kill(self) -> None:
        """Kill every process in it, those of other users and those being forked included."""
        with contextlib.suppress(OSError):
            _write(self.path, "cgroup.kill", "1")

    def remove(self) -> None:
        """Remove it, with what was made below it; what still runs there goes back to where this process is."""
        for _ in range(TRIES):
            for folder, _, _ in os.walk(self.path, topdown=False):
                with contextlib.suppress(OSError):
                    _move(folder, os.path.dirname(self.path))
                    os.rmdir(folder)
            if not os.path.exists(self.path):
                return
            select.select([], [], [], PAUSE)


def _move(source: str, target: str) -> None:
    """Move all processes from one control group to another."""
    with open(os.path.join(source, "cgroup.procs"), encoding="ascii") as file:
        pids = file.read().split()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            _write(target, "cgroup.procs", pid)


def _write(folder: str, name: str, text: str) -> None:
    fd = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _own() -> str | None:
    """Return the folder of this process's own control group."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            path = next(line[3:].rstrip("\n") for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            for line in file:
                mount, _, kind = line.partition(" - ")
                if kind.startswith("cgroup2 "):
                    root, where = mount.split()[3:5]
                    inside = os.path.relpath(path, root)
                    return None if inside.startswith("..") else os.path.normpath(os.path.join(where, inside))
    except (OSError, StopIteration, ValueError):
        pass
    return None
