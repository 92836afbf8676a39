"""COMMAND itself, from before it is started to its exit code.

The process that becomes COMMAND is forked first of all, before there is a thread or an open store, and waits at a gate.
So its group is known to the guardian before any work can begin, and no work begins unless the lease is held.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from typing import NamedTuple, NoReturn

from lessor.cli import codes
from lessor.cli.group import Group


class Ended(NamedTuple):
    """COMMAND is over, with this exit code."""

    code: int
    signum: int | None = None


class Stopped(NamedTuple):
    """COMMAND was stopped by this signal, and may be continued."""

    signum: int


class Command:
    """A process at a gate, then COMMAND; the leader of a process group of its own."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self._over = False
        gate, self._gate = os.pipe2(os.O_CLOEXEC)
        self._status, status = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            os.close(self._status)
            _wait_and_become(words, gate, status)
        self.group = Group(self.pid)
        os.close(gate)
        os.close(status)
        with contextlib.suppress(OSError):  # the child does the same: whoever comes first
            os.setpgid(self.pid, self.pid)

    def start(self, environment: dict[str, str]) -> OSError | None:
        """Open the gate. Return why COMMAND can't be executed, or None when it is running."""
        with contextlib.suppress(BrokenPipeError):  # it was killed while it waited: its status will tell
            os.write(self._gate, json.dumps(environment).encode() + b"\n")
        os.close(self._gate)
        self._gate = -1
        answer = os.read(self._status, 16)  # ends without an answer when the exec succeeds
        return OSError(int(answer), os.strerror(int(answer))) if answer else None

    def dismiss(self) -> None:
        """Close the gate for good; should COMMAND be running all the same, it is killed. Harmless once it has ended."""
        if self._over:
            return
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
        else:
            self.group.end(signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._over = True

    def news(self) -> Ended | Stopped | None:
        """Return what became of COMMAND since the last call."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            return Stopped(os.WSTOPSIG(status))
        self._over = True
        if os.WIFSIGNALED(status):
            return Ended(codes.SIGNAL + os.WTERMSIG(status), os.WTERMSIG(status))
        return Ended(os.WEXITSTATUS(status))


def _wait_and_become(words: list[str], gate: int, status: int) -> NoReturn:
    """In the child: wait for the gate to open, and become COMMAND."""
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        # Python ignores these two, and COMMAND would inherit that; and a Ctrl-C here must not print a traceback.
        for signum in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        message = b""
        while not message.endswith(b"\n"):
            piece = os.read(gate, 65536)
            if not piece:
                os._exit(0)  # never opened, or lessor died
            message += piece
        try:
            os.execvpe(words[0], words, {**os.environ, **json.loads(message)})  # noqa: S606 - that is what it is for
        except OSError as error:
            os.write(status, str(error.errno or errno.EINVAL).encode())
    finally:
        os._exit(codes.NOT_FOUND)
