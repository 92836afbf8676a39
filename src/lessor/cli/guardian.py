"""Ends COMMAND's group in time when ``lessor run`` can't: because it was killed, stopped, or starved.

It can't help when it is killed as well, together with ``lessor run``. It is a process of its own, in a session of
its own, without threads. Each new deadline comes through a socket, as nanoseconds since boot, suspend included: after
the deadline nothing of the group runs, unless a later one has come. The end of the socket is the end of ``lessor
run`` (else it ends its guardian first): SIGTERM at once, and SIGKILL after the grace, by the deadline.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
from dataclasses import dataclass
from typing import Final, NoReturn

from lessor.cli.group import Group
from lessor.core.clock import MILLISECOND
from lessor.runtime.clock import SYSTEM

FRAME: Final = struct.Struct("<cq")
DEADLINE: Final = b"D"
STOPPING: Final = b"S"
"""SIGTERM has been sent already, and this is when SIGKILL is due, whatever deadlines follow."""
GRACE: Final = b"G"
"""From SIGTERM to SIGKILL; said before the first deadline, once the store has told what the lease's safe time is."""
LONGEST_SLEEP_NS: Final = 250 * MILLISECOND
"""Timers stand still during suspend; this bounds how late a look is after waking up."""
LOOK_NS: Final = 20 * MILLISECOND
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
        if self.orphaned:
            return LOOK_NS
        if self.killed or self.kill_at_ns is None:
            return LONGEST_SLEEP_NS
        next_at = self.kill_at_ns
        if self.gentle and not self.stopping:
            next_at -= self.grace_ns * 9 // 10
        return min(max(next_at - now, MILLISECOND), LONGEST_SLEEP_NS)


class Guardian:
    """The guardian as ``lessor run`` sees it."""

    def __init__(self, leader: int, *, gentle: bool, enforce: bool) -> None:
        self._socket, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            _guard(theirs, Group(leader), Orders(gentle, enforce))
        theirs.close()
        self._socket.setblocking(False)
        self.acted = False
        """It has signalled the group by itself."""
        self.dead = False

    def fileno(self) -> int:
        """Return what becomes readable when there is news."""
        return self._socket.fileno()

    def tell(self, kind: bytes, value: int) -> None:
        """Say something; never waits."""
        try:
            self._socket.send(FRAME.pack(kind, value))
        except OSError:  # gone, or so stuck that its buffer is full
            self.dead = True

    def listen(self) -> None:
        """Take in what it said."""
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    said = self._socket.recv(64)
                except ConnectionError:
                    said = b""
                if not said:
                    self.dead = True
                    return
                self.acted = True

    def dismiss(self) -> None:
        """End it: there is nothing left to guard."""
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)  # our child, not reaped yet: no other process can have its number
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._socket.close()  # only now: it would take the end of the socket for our death


def _guard(channel: socket.socket, group: Group, orders: Orders) -> NoReturn:
    """In the guardian: never returns."""
    try:
        os.setsid()
        for signum in DEAF:
            signal.signal(signum, signal.SIG_IGN)
        _close_all_but(channel.fileno())
        with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as comm:
            comm.write("lessor-guard")
        _keep_watch(channel, group, orders)
    finally:
        os._exit(0)


def _keep_watch(channel: socket.socket, group: Group, orders: Orders) -> None:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        now = SYSTEM.host_ns()
        signum = orders.due(now)
        if signum is not None:
            if not orders.orphaned:
                with contextlib.suppress(OSError):
                    channel.send(b"x", socket.MSG_DONTWAIT)
            group.end(signum)
        if orders.orphaned and (orders.killed or not group.lives()):
            return
        news = poll.poll(-(-orders.sleep_ns(now) // MILLISECOND))
        if news and not _read(channel, orders):
            poll.unregister(channel)
            signum = orders.orphan(SYSTEM.host_ns())
            if signum is not None:
                group.end(signum)


def _read(channel: socket.socket, orders: Orders) -> bool:
    """Take in all that is there, since the last word counts, however late it is read. False: there will be no more."""
    while True:
        try:
            frame = channel.recv(FRAME.size, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if len(frame) < FRAME.size:  # frames are sent whole, so it is the end
            return False
        orders.take(*FRAME.unpack(frame))


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
