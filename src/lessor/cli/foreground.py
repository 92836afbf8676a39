"""Who has the terminal: COMMAND while it runs in the foreground, so that it can read keys and Ctrl-C reaches it.

It is handed over at once where both input and output are the terminal. Otherwise, as in ``lessor run ... | less``,
our neighbour in the pipe may need it: then only when COMMAND asks for it, which stops it with SIGTTIN or SIGTTOU.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
from typing import Any


class Foreground:
    """The controlling terminal, if there is one."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._settings: list[Any] | None = None
        self.given = False
        try:
            self._fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            self._fd = -1
            return
        # Setting the terminal's group from the background, and writing there under `stty tostop`, must not stop us.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)

    @property
    def exists(self) -> bool:
        """Whether we have a terminal at all."""
        return self._fd >= 0

    def give_if_interactive(self) -> None:
        """Hand the terminal over where COMMAND plainly has it to itself."""
        with contextlib.suppress(OSError):
            if os.isatty(0) and os.isatty(1):
                self.give()

    def give(self) -> bool:
        """Hand the terminal to COMMAND's group, if it is ours to give."""
        if not self._is_foreground(os.getpgrp()):
            return False
        with contextlib.suppress(OSError, termios.error):
            self._settings = termios.tcgetattr(self._fd)
            os.tcsetpgrp(self._fd, self._group)
            self.given = True
        return self.given

    def take_back(self, *, restore: bool = False) -> None:
        """Make the terminal ours again; with ``restore``, also undo what a COMMAND that was killed did to its settings."""
        if not self.given:
            return
        self.given = False
        with contextlib.suppress(OSError, termios.error):
            os.tcsetpgrp(self._fd, os.getpgrp())
            if restore and self._settings is not None:
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._settings)

    def _is_foreground(self, group: int) -> bool:
        if self._fd < 0:
            return False
        try:
            return os.tcgetpgrp(self._fd) == group
        except OSError:
            return False
