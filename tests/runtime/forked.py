"""A forked child that works for a test, and talks with it line by line."""

from __future__ import annotations

import os
import signal
import socket
import traceback
import warnings
from typing import TYPE_CHECKING

from lessor.testing.conformance.base import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    Talk = Callable[["Line"], object]


class Line:
    """One end of a conversation."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(PATIENCE)
        self._file = end.makefile("rw", encoding="utf-8")
        self._end = end

    def say(self, word: object) -> None:
        self._file.write(f"{word}\n")
        self._file.flush()

    def hear(self) -> str:
        return self._file.readline().rstrip("\n")

    def close(self) -> None:
        self._file.close()
        self._end.close()


class Forked:
    """A child of this process, made with a plain fork; what it raises is told as the last line, and fails ``end``."""

    def __init__(self, work: Talk) -> None:
        ours, theirs = socket.socketpair()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads; they are the point
            self.pid = os.fork()
        if self.pid == 0:
            _work(work, Line(theirs))
        theirs.close()
        self._line = Line(ours)
        self.say, self.hear = self._line.say, self._line.hear
        self._code: int | None = None

    def end(self, patience: float = PATIENCE) -> None:
        """Wait for its end, which must be a good one."""
        until(self._gone, "the child's end", patience)
        assert self._code == 0, self.hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._gone():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self._line.close()

    def _gone(self) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code is not None


def _work(work: Talk, line: Line) -> None:
    """Do the work, and end without a word to the parent's test run."""
    code = 1
    try:
        work(line)
        code = 0
    except BaseException:  # noqa: BLE001 - it is the parent's to know
        line.say(traceback.format_exc().replace("\n", " | "))
    finally:
        os._exit(code)
