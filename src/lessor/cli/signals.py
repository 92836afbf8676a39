"""The signals that ``lessor run`` gets: an end to the waiting, or passed on to COMMAND."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType
    from typing import Self

ENDING: Final = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
"""What would end a process that does nothing about it."""
FORWARDED: Final = (*ENDING, signal.SIGCONT, signal.SIGWINCH, signal.SIGTSTP, signal.SIGALRM)
RETRY: Final = 0.005
TRIES: Final = 200


class Interrupted(BaseException):
    """A signal ended the waiting. Not an `Exception`: nothing on the way may take it for a failure."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class WhileWaiting:
    """Ends the wait for the lease at a signal, but not in the middle of a transaction, whose locks would stay taken.

    The exception is raised where the main thread sleeps. Anywhere else a timer tries again, for a second at the most.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._tries = 0

    def __enter__(self) -> Self:
        for signum in ENDING:
            if signal.getsignal(signum) is not signal.SIG_IGN:  # as under nohup, and in the background of a script
                signal.signal(signum, self._got)
        signal.signal(signal.SIGALRM, self._got)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._tries = -(2**31)  # nothing is raised from here on; ``signum`` tells
        if self.signum is not None:
            for signum in ENDING:  # whoever asks twice doesn't want to wait for the cleaning up
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    signal.signal(signum, signal.SIG_DFL)

    def _got(self, signum: int, frame: FrameType | None) -> None:
        if signum != signal.SIGALRM:
            self.signum = signum
        if self.signum is None or self._tries < 0:
            return
        self._tries += 1
        asleep = frame is not None and frame.f_code is threading.Condition.wait.__code__
        if asleep or self._tries > TRIES:
            raise Interrupted(self.signum)
        signal.setitimer(signal.ITIMER_REAL, RETRY)


class Bell:
    """What the supervisor sleeps on: signals, the guardian, and a ring from any thread. Rings are never lost."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for signum in (*FORWARDED, signal.SIGCHLD):
            if signum == signal.SIGCHLD or signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, _nothing)

    def also(self, fd: int) -> None:
        """Wake up for this too."""
        self._poll.register(fd, select.POLLIN)

    def not_any_more(self, fd: int) -> None:
        """Don't."""
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)

    def ring(self) -> None:
        """Wake the sleeper up."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def wait(self, seconds: float) -> list[int]:
        """Sleep; return the signals that came, in order."""
        self._poll.poll(max(0.0, seconds) * 1000)
        try:
            return [signum for signum in os.read(self._read, 4096) if signum]
        except BlockingIOError:
            return []


def _nothing(_signum: int, _frame: FrameType | None) -> None:
    """Do nothing: that the signal came is in the pipe."""
