"""The processes that descend from this one. It can't find a process that entered the tree by other means than fork.

A process that loses its parent becomes a child of the nearest ancestor that adopts orphans, so nothing leaves the tree
by a double fork or a new session. Signals are sent through process file descriptors where the kernel has them, so that
a number that was given to another process in the meantime does no harm.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PR_SET_CHILD_SUBREAPER: Final = 36


class Process(NamedTuple):
    """A process as /proc shows it."""

    state: bytes
    parent: int
    group: int
    session: int
    born: bytes
    """When it started: tells it from a later one with the same number."""

    @property
    def alive(self) -> bool:
        """False for a zombie, which does nothing any more."""
        return self.state not in (b"Z", b"X")


def adopt_orphans() -> bool:
    """Become the parent of every descendant that loses its own. False: this host can't do that."""
    try:
        from ctypes import CDLL  # noqa: PLC0415 - 4 ms that only this needs
    except ImportError:
        return False
    try:
        return int(CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def look(pid: int) -> Process | None:
    """Return what /proc says about a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return Process(fields[0], int(fields[1]), int(fields[2]), int(fields[3]), fields[19])
    except (OSError, ValueError, IndexError):
        return None


def descendants(root: int) -> Iterator[tuple[int, Process]]:
    """Find the living descendants of a process. A process that is forked or orphaned meanwhile may be missed."""
    children = _children if os.path.exists(f"/proc/{root}/task/{root}/children") else _Parents().children
    seen, unseen = {root}, [root]
    while unseen:
        for child in children(unseen.pop()):
            found = look(child)
            # Its parent may have died since: then one of the ancestors has adopted it, and they are all in the set.
            if child in seen or found is None or found.parent not in seen:
                continue
            seen.add(child)
            unseen.append(child)
            if found.alive:
                yield child, found


def send(pid: int, seen: Process, signum: int) -> None:
    """Signal the process, unless its number has gone to another one since it was seen, or it may not be signalled."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except OSError:  # no such call here, or no free descriptor
            fd = -1
        try:
            found = look(pid)
            if found is None or found.born != seen.born:
                return
            if fd < 0:
                os.kill(pid, signum)
            else:
                signal.pidfd_send_signal(fd, signum)
        finally:
            if fd >= 0:
                os.close(fd)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    return children


class _Parents:
    """Who is whose parent, for kernels that don't list a process's children."""

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = {}
        with contextlib.suppress(OSError):
            for name in os.listdir("/proc"):
                if name.isdigit() and (found := look(int(name))) is not None:
                    self._children.setdefault(found.parent, []).append(int(name))

    def children(self, pid: int) -> list[int]:
        return self._children.get(pid, [])
