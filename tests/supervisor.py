"""Runs a command to its end, whatever happens in it, and leaves none of its processes behind.

``python -m tests.supervisor [--limit SECONDS] COMMAND...``

The supervisor adopts every process that loses its parent (a subreaper), so that it can end them all. It ends them when
the command has ended, since a process that keeps the command's output open would keep a reader of that output waiting;
and it ends the command itself when that takes longer than the limit, after a look at where its Python processes are
(SIGABRT, on which faulthandler writes the stack of every thread).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

LIMIT = 3600.0
"""Seconds that a command may take."""
STACKS = 10.0
"""Seconds in which the processes of a command that is too slow write where they are."""
PR_SET_CHILD_SUBREAPER = 36
TIMED_OUT = 124
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AWAITED = (*ENDING, signal.SIGCHLD)


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    seconds: float
    strays: tuple[str, ...]
    """What it had started and not ended."""


def supervise(command: Sequence[str], *, limit: float = LIMIT, output: IO[bytes] | None = None) -> Ended:
    """Run the command; return when it and all that it started have ended."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    start = time.monotonic()
    others = set(_below(os.getpid()))
    # In a group of its own: a Ctrl-C comes to the supervisor alone, which passes it on.
    process = subprocess.Popen(command, stdout=output, stderr=output, process_group=0)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    try:
        status = _await(process.pid, start + limit)
        if status == TIMED_OUT:
            _write(output, f"\n{' '.join(command)}: not finished within {limit:g} s\n")
            _abort(process.pid)
        process.returncode = status  # it is buried already
        strays = tuple(_kill_all(others))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Ended(status, time.monotonic() - start, strays)


def _await(main: int, end: float) -> int:
    """Return the status of the command; pass on the first request to end, and follow the second."""
    asked = False
    while (left := end - time.monotonic()) > 0:
        received = signal.sigtimedwait(AWAITED, min(left, 1.0))
        if received is not None and received.si_signo in ENDING:
            if asked:
                return 128 + received.si_signo
            asked = True
            _signal(main, signal.SIGINT)
        status = _reap(main)
        if status is not None:
            return status
    return TIMED_OUT


def _reap(main: int) -> int | None:
    """Bury every child that has ended; return the status of the main one, if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == main:
            found = os.waitstatus_to_exitcode(status)


def _abort(main: int) -> None:
    """Let the command and its Python children write their stacks."""
    parents = _parents()
    for pid in (main, *(pid for pid, parent in parents.items() if parent == main and b"python" in _command_of(pid))):
        _signal(pid, signal.SIGABRT)
    end = time.monotonic() + STACKS
    while time.monotonic() < end and _reap(main) is None:
        signal.sigtimedwait((signal.SIGCHLD,), 0.2)


def _kill_all(others: set[int]) -> list[str]:
    """End all that is left below this process but those; return what that was."""
    named: dict[int, str] = {}
    while below := set(_below(os.getpid())) - others:
        for pid in sorted(below):
            named.setdefault(pid, _command_of(pid).replace(b"\0", b" ").decode(errors="replace").strip() or str(pid))
            _signal(pid, signal.SIGKILL)
        _reap(-1)
        signal.sigtimedwait((signal.SIGCHLD,), 0.05)
    return list(named.values())


def _below(root: int) -> list[int]:
    """Return all descendants that have not ended."""
    parents = _parents()
    below = {root}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        below |= more
        grown = bool(more)
    return sorted(below - {root})


def _parents() -> dict[int, int]:
    """Return the parent of each process that is not a zombie."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    return parents


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _write(output: IO[bytes] | None, text: str) -> None:
    to = output or sys.stderr.buffer
    to.write(text.encode())
    to.flush()


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.supervisor", description=__doc__)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that the command may take")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    ended = supervise(args.command, limit=args.limit)
    for stray in ended.strays:
        sys.stderr.write(f"left behind, and ended: {stray}\n")
    return ended.status if ended.status >= 0 else 128 - ended.status


if __name__ == "__main__":
    sys.exit(main())
