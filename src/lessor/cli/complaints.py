"""What is said about an error, and with which exit code the process ends."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, NamedTuple

from lessor.cli import codes
from lessor.cli.screen import plain
from lessor.errors import ConfigError, InvalidResource, LeaseHeld, LeaseLost, LessorError, StoreUnavailable

if TYPE_CHECKING:
    import logging


class Complaint(NamedTuple):
    """One line, and an exit code."""

    what: str
    hint: str
    code: int

    @classmethod
    def about(cls, error: Exception) -> Complaint:
        """Explain an error."""
        match error:
            case InvalidResource():
                return cls(str(error), "give another name", codes.USAGE)
            case ConfigError():
                return cls(str(error), "", codes.CONFIG)
            case StoreUnavailable():
                hint = "check the store, or name another with --url or LESSOR_URL"
                return cls(str(error), hint, codes.UNAVAILABLE)
            case LeaseHeld(closed="hold_at_least"):
                return cls(str(error), "wait longer with --wait, or open it: lessor revoke", codes.NOT_ACQUIRED)
            case LeaseHeld():
                return cls(str(error), "wait longer with --wait, or ask: lessor show", codes.NOT_ACQUIRED)
            case LeaseLost():
                return cls(str(error), "", codes.LOST)
            case LessorError():
                return cls(str(error), "", getattr(error, "exit_code", codes.INTERNAL))
            case _:
                what = f"internal error: {type(error).__name__}: {error}"
                return cls(what, "LESSOR_DEBUG=1 shows where; please report it", codes.INTERNAL)

    @classmethod
    def logged(cls, record: logging.LogRecord) -> Complaint:
        """Put what was logged into one line, without a traceback."""
        error = record.exc_info[1] if record.exc_info else None
        reason = f": {type(error).__name__}: {error}" if error is not None else ""
        return cls(record.getMessage() + reason, "", 0)

    @property
    def text(self) -> str:
        """The line."""
        return f"{self.what} ({self.hint})" if self.hint else self.what

    def show(self) -> int:
        """Print the line, if that is possible, and return the code."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"lessor: {plain(self.text)}\n")
            sys.stderr.flush()
        return self.code
