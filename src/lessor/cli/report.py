"""What ``lessor run`` says, on stderr, since stdout is COMMAND's: sentences, or with ``--json`` a line an event.

Without ``--json`` and ``-v``, a run that goes well is silent.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from lessor.cli.complaints import Complaint
from lessor.cli.durations import shown
from lessor.cli.screen import clock_time, now, plain
from lessor.core.view import iso

if TYPE_CHECKING:
    from lessor.core.ops import Loss
    from lessor.errors import LeaseHeld


class Report:
    """Tells what happens. Never fails: a closed stderr must not end COMMAND."""

    def __init__(self, resource: str, *, as_json: bool, verbose: bool) -> None:
        self._resource = resource
        self._json = as_json
        self._verbose = verbose
        self._lost = False
        with contextlib.suppress(AttributeError, ValueError):
            self._fd = sys.stderr.fileno()

    def waiting(self, held: LeaseHeld) -> None:
        """Say who has it, or why it is closed."""
        left = shown(held.remaining)
        if held.closed:
            opens = clock_time(now() + timedelta(seconds=held.remaining))[11:]
            text = f"waiting until {opens}: {held}"
        elif held.holder:
            text = f"waiting for {self._resource}, held by {held.holder} ({left} left unless renewed)"
        else:
            text = f"waiting for {self._resource}, about to go to another waiter (reserved for {left})"
        self._say("waiting", text, **_fields(held))

    def not_acquired(self, held: LeaseHeld, complaint: Complaint) -> None:
        """Say that the lease was not acquired in time."""
        self._say("not_acquired", complaint.text, **_fields(held), code=complaint.code, message=str(held))

    def error(self, complaint: Complaint, kind: str) -> None:
        """Say why nothing was run."""
        self._say("error", complaint.text, code=complaint.code, kind=kind, message=complaint.what)

    def interrupted(self, signum: int) -> None:
        """Say that a signal ended the waiting; only with -v or in JSON."""
        self._detail("interrupted", f"the waiting was ended by {_name(signum)}", signal=signum)

    def acquired(self, token: int, holder: str, url: str) -> None:
        """Say that it is ours; only with -v or in JSON."""
        text = f"holding {self._resource} as {holder} with token {token} in {url}"
        self._detail("acquired", text, token=token, holder=holder, url=url)

    def started(self, pid: int) -> None:
        """Say that COMMAND runs; only with -v or in JSON."""
        self._detail("started", f"COMMAND runs as process {pid}", pid=pid)

    def renewed(self, remaining: float) -> None:
        """Say that the lease was renewed; only with -v."""
        if self._verbose:
            self._say("renewed", f"renewed {self._resource}, safe for {shown(remaining)}", remaining=remaining)

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
        """Say that COMMAND was asked to end; only with -v or in JSON."""
        self._detail("draining", f"COMMAND was asked to end within {shown(seconds)}", seconds=seconds)

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
        """Say that COMMAND is over; only with -v or in JSON."""
        how = f"with exit code {code}" if signum is None else f"by {_name(signum)}"
        self._detail("exited", f"COMMAND ended {how}", code=code, signal=signum)

    def released(self) -> None:
        """Say that it was given back; only with -v or in JSON."""
        self._detail("released", f"released {self._resource}")

    def warn(self, text: str) -> None:
        """Say what else people should know."""
        self._say("warning", text, message=text)

    def take_over(self, log: logging.Logger) -> None:
        """Make warnings of what the library logs, so that each line is an event."""
        log.handlers = [_Warnings(self)]

    def _detail(self, event: str, text: str, **fields: object) -> None:
        if self._verbose or self._json:
            self._say(event, text, **fields)

    def _say(self, event: str, text: str, **fields: object) -> None:
        if self._json:
            line = json.dumps(
                {"event": event, "at": iso(now()), "resource": self._resource, **fields}, ensure_ascii=False
            )
        else:
            line = "lessor: " + plain(text)
        with contextlib.suppress(OSError, AttributeError):
            os.write(self._fd, line.encode(errors="backslashreplace") + b"\n")


class _Warnings(logging.Handler):
    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report.warn(Complaint.logged(record).what)


def _name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _fields(held: LeaseHeld) -> dict[str, object]:
    return {"holder": held.holder, "token": held.token, "remaining": held.remaining, "closed": held.closed}
