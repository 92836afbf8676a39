"""COMMAND itself, until it is started.

The process that becomes COMMAND is forked first of all, before there is a thread or an open store, and waits at a gate.
So the guardian is its parent before any work can begin, and no work begins unless the lease is held.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from typing import NoReturn

from lessor.cli import codes


class Command:
    """A process at a gate, then COMMAND; the leader of a process group of its own."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self._gate = os.pipe2(os.O_CLOEXEC)
        self._status = os.pipe2(os.O_CLOEXEC)

    def become(self) -> NoReturn:
        """In the process that will be COMMAND: wait for the gate to open."""
        (gate, theirs), (also_theirs, status) = self._gate, self._status
        os.close(theirs)
        os.close(also_theirs)
        _wait_and_become(self.words, gate, status)

    def start(self, environment: dict[str, str]) -> OSError | None:
        """Open the gate. Return why COMMAND can't be executed, or None when it is running."""
        os.close(self._status[1])  # so that its end is seen
        with contextlib.suppress(BrokenPipeError):  # it was killed while it waited: its status will tell
            os.write(self._gate[1], json.dumps(environment).encode() + b"\n")
        answer = os.read(self._status[0], 16)  # ends without an answer when the exec succeeds
        return OSError(int(answer), os.strerror(int(answer))) if answer else None


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
