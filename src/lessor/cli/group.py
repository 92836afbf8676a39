"""A process group, and what descends from its leader. Out of reach: what left the group and lost its parent too."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NamedTuple


class Process(NamedTuple):
    """A process as /proc shows it."""

    state: bytes
    group: int
    born: bytes
    """When it started: tells it from a later one with the same number."""

    @property
    def alive(self) -> bool:
        """Zombies don't count: where nobody reaps them they stay for ever."""
        return self.state not in (b"Z", b"X")


class Group:
    """COMMAND's process group. Its leader's number is its own."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self._strays: dict[int, bytes] = {}

    def signal(self, signum: int) -> bool:
        """Send a signal to the group. False: none of it is left, or none of it may be signalled."""
        try:
            os.killpg(self.leader, signum)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def end(self, signum: int) -> None:
        """Send SIGTERM or SIGKILL to the group, and to descendants elsewhere, like the jobs of an interactive shell."""
        self._find_strays()  # first: who loses its parent can't be found any more
        self.signal(signum)
        strays = [pid for pid, born in self._strays.items() if (found := look(pid)) and found.born == born]
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signum)
        if signum == signal.SIGTERM:  # who is stopped would not hear of it
            self.signal(signal.SIGCONT)
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)

    def lives(self) -> bool:
        """Whether a process of the group is alive."""
        try:
            os.killpg(self.leader, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        try:
            pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        except OSError:
            return True
        return any(found.alive and found.group == self.leader for pid in pids if (found := look(pid)))

    def _find_strays(self) -> None:
        seen, unseen = {self.leader}, [self.leader]
        while unseen:
            for child in _children(unseen.pop()):
                if child in seen:
                    continue
                seen.add(child)
                unseen.append(child)
                found = look(child)
                if found is not None and found.group != self.leader:
                    self._strays[child] = found.born


def look(pid: int) -> Process | None:
    """Return what /proc says about a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return Process(fields[0], int(fields[2]), fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    return children
