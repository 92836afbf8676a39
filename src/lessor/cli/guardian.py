"""Ends COMMAND in time when ``lessor run`` can't: because it was killed, stopped, or starved.

It can't help when it is killed as well, together with ``lessor run``. It is a process of its own, without threads, in
a process group of its own: the parent of COMMAND, and of every descendant of COMMAND that loses its parent::

    lessor run ── guardian ─┬─ COMMAND ─── ...
                            └─ orphans of COMMAND's

If the guardian dies, ``lessor run`` becomes the parent of all of them. The guardian stays in the session: COMMAND's
process group could not be stopped and continued by the terminal if its parent were in another one.

Each new deadline comes through a socket, as nanoseconds since boot, suspend included: after the deadline nothing that
descends from COMMAND runs, unless a later one has come. The end of the socket is the end of ``lessor run`` (else it
ends its guardian first): SIGTERM at once, and SIGKILL after the grace, by the deadline.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from lessor.cli import codes
from lessor.cli.descent import adopt_orphans
from lessor.cli.group import Ended, Group, Reaper, Stopped
from lessor.core.clock import MILLISECOND, SECOND
from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.cli.cgroup import ControlGroup

FRAME: Final = struct.Struct("<cq")

# What lessor run says.
DEADLINE: Final = b"D"
STOPPING: Final = b"S"
"""SIGTERM has been sent already, and this is when SIGKILL is due, whatever deadlines follow."""
GRACE: Final = b"G"
"""From SIGTERM to SIGKILL; said before the first deadline, once the store has told what the lease's safe time is."""
REAP: Final = b"R"
"""COMMAND's end is known, and its number needn't be kept for it any longer."""

# What the guardian says.
FORKED: Final = b"F"
"""COMMAND's process exists, and has this number."""
ACTED: Final = b"A"
"""It has signalled COMMAND by itself."""
STOPPED: Final = b"T"
EXITED: Final = b"E"
KILLED: Final = b"K"
LEFT: Final = b"L"
"""Since COMMAND was reaped: whether something that descends from it is left."""

LONGEST_SLEEP_NS: Final = 250 * MILLISECOND
"""Timers stand still during suspend; this bounds how late a look is after waking up."""
LOOK_NS: Final = 20 * MILLISECOND
"""How long to wait for processes that were killed before they are killed again, with what they forked meanwhile."""
KILLED_NS: Final = 2 * SECOND
"""How long the end of killed processes is waited for when ``lessor run`` cleans up."""
DEAF: Final = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGPIPE, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip
"""A service manager sends SIGTERM to everybody at once; the guardian has to outlive the others."""


@dataclass(slots=True)
class Orders:
    """What the guardian knows, and what follows from it. Pure: ``now`` is handed in."""

    gentle: bool
    """SIGTERM comes before SIGKILL."""
    enforce: bool
    """False: deadlines don't matter while ``lessor run`` lives."""
    grace_ns: int = 0
    kill_at_ns: int | None = None
    stopping: bool = False
    orphaned: bool = False
    killed: bool = False

    def take(self, kind: bytes, value: int) -> None:
        """Take in what ``lessor run`` says."""
        if kind == DEADLINE and not self.stopping:
            self.kill_at_ns = value
        elif kind == STOPPING:
            self.stopping = True
            self.kill_at_ns = value
        elif kind == GRACE:
            self.grace_ns = value

    def orphan(self, now: int) -> int | None:
        """Note that ``lessor run`` is gone; return the signal to send at once."""
        self.orphaned = True
        latest = now + self.grace_ns
        self.kill_at_ns = min(self.kill_at_ns, latest) if self.kill_at_ns is not None else now
        if not self.gentle:
            self.kill_at_ns = now
        if self.stopping or self.kill_at_ns <= now:
            return None
        self.stopping = True
        return signal.SIGTERM

    def due(self, now: int) -> int | None:
        """Return the signal that is due, once."""
        if self.killed or self.kill_at_ns is None or not (self.enforce or self.orphaned or self.stopping):
            return None
        if now >= self.kill_at_ns:
            self.killed = self.stopping = True
            return signal.SIGKILL
        # A little later than `lessor run` itself would, so that COMMAND gets only one of them.
        if self.gentle and not self.stopping and now >= self.kill_at_ns - self.grace_ns * 9 // 10:
            self.stopping = True
            return signal.SIGTERM
        return None

    def sleep_ns(self, now: int) -> int:
        """Return how long nothing needs to be looked at."""
        if self.kill_at_ns is None:
            return LONGEST_SLEEP_NS
        if self.killed:  # less and less often: what SIGKILL doesn't end in time is not ours to kill, or in the kernel
            return min(max((now - self.kill_at_ns) // 10, LOOK_NS), LONGEST_SLEEP_NS)
        next_at = self.kill_at_ns
        if self.gentle and not self.stopping:
            next_at -= self.grace_ns * 9 // 10
        return min(max(next_at - now, MILLISECOND), LONGEST_SLEEP_NS)


class Guardian:
    """The guardian, and through it COMMAND, as ``lessor run`` sees them."""

    def __init__(
        self, become: Callable[[], NoReturn], cgroup: ControlGroup | None, *, gentle: bool, enforce: bool
    ) -> None:
        self.follows = adopt_orphans()
        """False: what detaches itself from COMMAND can't be followed on this host."""
        self._socket, theirs = socket.socketpair()
        # A Ctrl-C now must not end the guardian before it ignores it, nor the process that will be COMMAND.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, DEAF)
        try:
            self._pid = os.fork()
            if self._pid == 0:
                self._socket.close()
                _guard(theirs, become, cgroup, Orders(gentle, enforce), mask)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        self.acted = False
        """It has signalled COMMAND by itself."""
        self.dead = False
        self.left: bool | None = None
        """Whether something that descends from COMMAND is left after its end; None: not known yet."""
        self.leaves_daemons = False
        """COMMAND has ended, and what it left in other sessions is to go on."""
        self._news: list[Ended | Stopped] = []
        first = self._socket.recv(FRAME.size)
        if len(first) < FRAME.size:
            os.waitpid(self._pid, 0)
            raise ChildProcessError("fork failed")
        self.leader: int = FRAME.unpack(first)[1]
        self.group = Group(self.leader, cgroup, spared=self._pid)
        self._reaper = Reaper(self.leader)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return what becomes readable when there is news."""
        return self._socket.fileno()

    def tell(self, kind: bytes, value: int) -> None:
        """Say something; never waits."""
        if self.dead:
            return
        try:
            self._socket.send(FRAME.pack(kind, value))
        except OSError:  # gone, or so stuck that its buffer is full
            self.replace()

    def listen(self) -> None:
        """Take in what it said or, once it is dead, what became of COMMAND."""
        while not self.dead:
            try:
                said = self._socket.recv(FRAME.size)
            except BlockingIOError:
                return
            except ConnectionError:
                said = b""
            if len(said) == FRAME.size:
                self._take(*FRAME.unpack(said))
            else:
                self.replace()
        news = self._reaper.news()
        if isinstance(news, Stopped) or (news is not None and self.group.leader is not None):
            self._news.append(news)
        left = self._reaper.reap(leader=self.group.leader is None)
        self.left = left if self.group.leader is None else None

    def news(self) -> Ended | Stopped | None:
        """Return what became of COMMAND since the last call. After its end, its number is no longer used."""
        if not self._news:
            return None
        news = self._news.pop(0)
        if isinstance(news, Ended):
            self.group.leader = None
            self.tell(REAP, 0)
        return news

    def dismiss(self) -> None:
        """End it, and everything that descends from COMMAND, but for daemons that are to be left."""
        self.replace()
        self._socket.close()
        if self.leaves_daemons:
            return
        give_up = SYSTEM.now() + KILLED_NS
        while self._reaper.reap(leader=True) and SYSTEM.now() < give_up:
            self.group.end(signal.SIGKILL)
            select.select([], [], [], LOOK_NS / SECOND / 10)

    def replace(self) -> None:
        """Take its place: all that it was the parent of is ours then. It may be dead already, or stopped."""
        if self.dead:
            return
        self.dead = True
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)  # our child, not reaped yet: no other process can have its number
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def _take(self, kind: bytes, value: int) -> None:
        if kind == ACTED:
            self.acted = True
        elif kind == LEFT:
            self.left = bool(value)
        elif kind == STOPPED:
            self._news.append(Stopped(value))
        elif kind == EXITED:
            self._news.append(Ended(value))
        elif kind == KILLED:
            self._news.append(Ended(codes.SIGNAL + value, value))


def _guard(
    channel: socket.socket,
    become: Callable[[], NoReturn],
    cgroup: ControlGroup | None,
    orders: Orders,
    mask: set[int | signal.Signals],
) -> NoReturn:
    """In the guardian: never returns."""
    try:
        os.setpgid(0, 0)
        adopt_orphans()
        leader = os.fork()
        if leader == 0:
            channel.close()
            if cgroup is not None:
                cgroup.join()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            become()
        with contextlib.suppress(OSError):  # the child does the same: the first one counts
            os.setpgid(leader, leader)
        for signum in DEAF:
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _close_all_but(channel.fileno())
        with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as comm:
            comm.write("lessor-guard")
        _Watch(channel, leader, cgroup, orders).keep()
        if cgroup is not None:
            cgroup.remove()
    finally:
        os._exit(0)


class _Watch:
    """What the guardian does."""

    def __init__(self, channel: socket.socket, leader: int, cgroup: ControlGroup | None, orders: Orders) -> None:
        self._channel, self._orders = channel, orders
        self._group, self._reaper = Group(leader, cgroup), Reaper(leader)
        self._told = False
        self._left: bool | None = None
        self._child, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._poll.register(self._child, select.POLLIN)
        self._say(FORKED, leader)

    def keep(self) -> None:
        """Watch until ``lessor run`` is gone, and all that descends from COMMAND."""
        orders = self._orders
        while True:
            now = SYSTEM.host_ns()
            signum = orders.due(now)
            if signum is not None:
                self._say(ACTED, 0)
                self._group.end(signum)
            elif orders.killed and self._left is not False:
                self._group.end(signal.SIGKILL)
            self._look()
            if orders.orphaned and self._left is False:
                return
            # Not from ``now``: sending signals may have taken a while, and the next ones must not be late by that.
            for fd, _ in self._poll.poll(-(-orders.sleep_ns(SYSTEM.host_ns()) // MILLISECOND)):
                if fd == self._child:
                    os.read(self._child, 4096)
                elif not self._read():
                    self._poll.unregister(self._channel)
                    self._orphaned()

    def _look(self) -> None:
        """See what has ended, and tell it."""
        news = self._reaper.news()
        if isinstance(news, Stopped):
            self._say(STOPPED, news.signum)
        elif news is not None and not self._told:
            self._told = True
            self._say(*((EXITED, news.code) if news.signum is None else (KILLED, news.signum)))
        if self._told and self._orders.orphaned:
            self._group.leader = None
        left = self._reaper.reap(leader=self._group.leader is None)
        if self._group.leader is None and left is not self._left:
            self._left = left
            self._say(LEFT, left)

    def _orphaned(self) -> None:
        signum = self._orders.orphan(SYSTEM.host_ns())
        if signum is not None:
            self._group.end(signum)

    def _say(self, kind: bytes, value: int) -> None:
        with contextlib.suppress(OSError):
            self._channel.send(FRAME.pack(kind, value), socket.MSG_DONTWAIT)

    def _read(self) -> bool:
        """Take in all that is there, since the last word counts, however late it is read. False: there will be no more."""
        while True:
            try:
                frame = self._channel.recv(FRAME.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            if len(frame) < FRAME.size:  # frames are sent whole, so it is the end
                return False
            kind, value = FRAME.unpack(frame)
            if kind == REAP:
                self._group.leader = None
            else:
                self._orders.take(kind, value)


def _close_all_but(kept: int) -> None:
    """Hold nothing open that somebody waits to see the end of: the user's pipes, and the gate of COMMAND."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        if fd != kept:
            os.dup2(null, fd)
    last = os.sysconf("SC_OPEN_MAX")
    if kept > 2:
        os.closerange(3, kept)
    os.closerange(max(kept + 1, 3), max(last, kept + 2))
