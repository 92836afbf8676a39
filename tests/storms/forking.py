"""Forks, in the middle of a program: from there on it goes on in two processes."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import tempfile
import traceback
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HUNG = "it hung, and was killed"
LONGEST = 60
"""Seconds after which a child that doesn't end by itself is killed, and counts as one that hangs."""


class Twins:
    """Does some work, forks on the way when ``fork`` is called, and returns what has become of it in the child."""

    def __init__(self) -> None:
        self.pid = -1
        self._reader, self._writer = os.pipe()
        self._stack = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `told`

    @property
    def in_child(self) -> bool:
        return self.pid == 0

    def fork(self) -> None:
        """Fork: both return."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads; they are the point
            pid = os.fork()
        self.pid = pid
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            faulthandler.register(signal.SIGALRM, file=self._stack, all_threads=False, chain=True)
            signal.setitimer(signal.ITIMER_REAL, LONGEST)

    def run(self, work: Callable[[], Any]) -> Any:
        """Return what the work returns here; what it returns or raises in the child is for ``told``."""
        try:
            result = work()
        except BaseException as error:
            if self.in_child:
                self._tell({"error": type(error).__name__, "text": "".join(traceback.format_exception(error))})
            raise
        if self.in_child:
            self._tell({"result": result})
        return result

    def told(self) -> dict[str, Any]:
        """Wait for the child's end, if there is one, and return what it told."""
        os.close(self._writer)
        with os.fdopen(self._reader, "rb") as file:
            text = file.read() if self.pid > 0 else b""
        with self._stack:
            if self.pid <= 0:
                return {}
            os.waitpid(self.pid, 0)
            self._stack.seek(0)
            return json.loads(text) if text else {"error": HUNG, "text": self._stack.read().decode()}

    def _tell(self, what: dict[str, Any]) -> None:
        os.write(self._writer, json.dumps(what).encode())
        os._exit(0)
