"""COMMAND and everything that descends from it: how it is signalled, and how its end is noticed.

Out of reach is what another process runs for COMMAND (a service manager, a container daemon, cron), and, without a
control group, a process that belongs to another user.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

from lessor.cli import codes
from lessor.cli.descent import descendants, send
from lessor.core.clock import MILLISECOND
from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.cli.cgroup import ControlGroup
    from lessor.cli.descent import Process

SWEEP_NS: Final = 200 * MILLISECOND
"""How long to go on without a pause while further processes turn up."""


class Ended(NamedTuple):
    """COMMAND is over, with this exit code."""

    code: int
    signum: int | None = None


class Stopped(NamedTuple):
    """COMMAND was stopped by this signal, and may be continued."""

    signum: int


class Group:
    """COMMAND's process group, and what else descends from COMMAND. For a process that COMMAND descends from."""

    def __init__(self, leader: int, cgroup: ControlGroup | None, *, spared: int = 0) -> None:
        self.leader: int | None = leader
        """COMMAND's number; None once it has been reaped, since then the number may be another process's."""
        self._cgroup = cgroup
        self._spared = spared
        """The guardian, where it stands between this process and COMMAND."""

    def members(self, *, daemons: bool = True) -> Iterator[tuple[int, Process]]:
        """Find all that is alive; without ``daemons``, only in this session."""
        session = os.getsid(0)
        for pid, found in descendants(os.getpid()):
            if pid != self._spared and (daemons or found.session == session):
                yield pid, found

    def signal(self, signum: int) -> None:
        """Send a signal to the process group."""
        if self.leader is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader, signum)

    def end(self, signum: int, *, daemons: bool = True) -> None:
        """Send SIGTERM or SIGKILL to all of it, wherever it is; without ``daemons``, not to other sessions."""
        if signum == signal.SIGKILL and daemons and self._cgroup is not None:
            self._cgroup.kill()
        self.signal(signum)
        done = {(pid, found.born) for pid, found in self.members(daemons=daemons) if found.group == self.leader}
        give_up, fresh = SYSTEM.now() + SWEEP_NS, True
        while fresh and SYSTEM.now() < give_up:
            fresh = False
            for pid, found in self.members(daemons=daemons):
                if (pid, found.born) not in done:
                    send(pid, found, signum)  # at once: its children are found in the next pass, wherever they are then
                    done.add((pid, found.born))
                    fresh = True
        if signum == signal.SIGTERM:  # a stopped process would not notice it
            self.signal(signal.SIGCONT)
            for pid, found in self.members(daemons=daemons):
                if found.group != self.leader:
                    send(pid, found, signal.SIGCONT)


class Reaper:
    """Waits for the children of this process: COMMAND, and the orphans that were adopted."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._ended: Ended | None = None

    def news(self) -> Ended | Stopped | None:
        """Return what became of COMMAND, its end as often as asked. It isn't reaped: its number remains its own."""
        if self._ended is not None:
            return self._ended
        try:
            seen = os.waitid(os.P_PID, self._leader, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # reaped by a guardian that died before it could say so
            self._ended = Ended(codes.INTERNAL)
            return self._ended
        if seen is None:
            return None
        if seen.si_code in (os.CLD_STOPPED, os.CLD_TRAPPED):
            with contextlib.suppress(ChildProcessError):  # it has ended since
                os.waitid(os.P_PID, self._leader, os.WSTOPPED | os.WNOHANG)
            return Stopped(seen.si_status)
        killed = seen.si_code != os.CLD_EXITED
        self._ended = Ended(codes.SIGNAL + seen.si_status, seen.si_status) if killed else Ended(seen.si_status)
        return self._ended

    def reap(self, *, leader: bool) -> bool:
        """Reap what has ended, COMMAND only with ``leader``. False: there is no child left, and so no descendant."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None or (found.si_pid == self._leader and not leader):
                    return True
                os.waitpid(found.si_pid, 0)
            except ChildProcessError:
                return False
