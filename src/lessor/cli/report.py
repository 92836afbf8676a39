"""What ``lessor run`` says, on stderr, since stdout is COMMAND's: sentences, or with ``--json`` a line an event."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING

from lessor.cli.durations import shown
from lessor.cli.screen import now, plain
from lessor.core.view import iso

if TYPE_CHECKING:
    from lessor.core.ops import Loss
    from lessor.errors import LeaseHeld


class Report:
    """Tells what happens. Never fails: a closed stderr must not end COMMAND."""

    def __init__(self, resource: str, *, as_json: bool) -> None:
        self._resource = resource
        self._json = as_json
        self._lost = False
        with contextlib.suppress(AttributeError, ValueError):
            self._fd = sys.stderr.fileno()

    def waiting(self, held: LeaseHeld) -> None:
        """Say who has it; not into a file or a pipe, where `flock` is silent too."""
        with contextlib.suppress(OSError):
            if self._json or os.isatty(self._fd):
                by = f"held by {held.holder}" if held.holder else "about to go to another waiter"
                text = f"waiting for {self._resource}, {by} ({shown(held.remaining)} left unless renewed)"
                self._say("waiting", text, holder=held.holder, token=held.token, remaining=held.remaining)

    def acquired(self, token: int, holder: str) -> None:
        """Say that it is ours; only in JSON."""
        self._say("acquired", None, token=token, holder=holder)

    def started(self, pid: int) -> None:
        """Say that COMMAND runs; only in JSON."""
        self._say("started", None, pid=pid)

    def jeopardy(self, remaining: float, *, revoked: bool) -> None:
        """Say that renewals fail, or will not come any more."""
        why, unless = ("was revoked", "") if revoked else ("could not be renewed", " unless a renewal succeeds")
        text = f"the lease on {self._resource} {why}: it ends in {shown(remaining)}{unless}"
        self._say("jeopardy", text, remaining=remaining, revoked=revoked)

    def safe(self, remaining: float) -> None:
        """Say that a renewal succeeded again."""
        self._say("safe", f"the lease on {self._resource} is renewed again", remaining=remaining)

    def lost(self, reason: Loss, consequence: str) -> None:
        """Say that it is not ours any more."""
        self._lost = True
        self._say("lost", f"the lease on {self._resource} is lost: {reason}; {consequence}", reason=str(reason))

    def stopping(self, signal_name: str, why: str) -> None:
        """Say that COMMAND's group is being ended."""
        self._say("stopping", f"{signal_name} to COMMAND: {why}", signal=signal_name, why=why)

    def draining(self, seconds: float) -> None:
        """Say that COMMAND was asked to end; only in JSON."""
        self._say("draining", None, seconds=seconds)

    def suspended(self, remaining: float) -> None:
        """Say what Ctrl-Z means for the lease."""
        text = f"stopped, and so are the renewals: continue within {shown(remaining)}, or COMMAND is ended"
        self._say("suspended", text, remaining=remaining)

    def not_released(self, error: Exception, remaining: float) -> None:
        """Say that the store didn't take it back; not if it is lost, and so over, anyway."""
        if self._lost:
            return
        text = f"the lease on {self._resource} could not be given back ({error}); it ends by itself within {shown(remaining)}"
        self._say("not_released", text, error=str(error))

    def exited(self, code: int, signum: int | None) -> None:
        """Say that COMMAND is over; only in JSON."""
        self._say("exited", None, code=code, signal=signum)

    def released(self) -> None:
        """Say that it was given back; only in JSON."""
        self._say("released", None)

    def warn(self, text: str) -> None:
        """Say what else people should know."""
        self._say("warning", text, message=text)

    def _say(self, event: str, text: str | None, **fields: object) -> None:
        if self._json:
            line = json.dumps(
                {"event": event, "at": iso(now()), "resource": self._resource, **fields}, ensure_ascii=False
            )
        elif text is not None:
            line = "lessor: " + plain(text)
        else:
            return
        with contextlib.suppress(OSError, AttributeError):
            os.write(self._fd, line.encode(errors="backslashreplace") + b"\n")
