"""Interrupts, raised in the main thread: at a chosen point of a program, or after a random time.

A *point* is where CPython runs signal handlers: the beginning of a function, the return of a call, and a jump backwards.
`points` counts those of lessor's own code and of the work itself; a handler can't run anywhere else.
"""

from __future__ import annotations

import dis
import os
import signal
import sys
from typing import TYPE_CHECKING, TypeVar

import lessor

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

T = TypeVar("T")
HOME = os.path.dirname(os.path.abspath(lessor.__file__)) + os.sep
CHECKED = ("CALL", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")
"""What the names of instructions start with after which CPython looks for signals."""


class Interrupted(KeyboardInterrupt):
    """What a signal handler raises: not a real Ctrl-C, but to all others it is one."""


class AtPoint:
    """Carries out an action at the n-th point of some work, counted from 0, in the thread that does the work."""

    def __init__(self, point: int, action: Callable[[], object], *more: str) -> None:
        """``more``: files whose points count too."""
        self.passed = 0
        self._homes = (HOME, *more)
        self._point = point
        self._action = action
        self._before: dict[int, int] = {}

    @property
    def came(self) -> bool:
        """Whether the work had so many points."""
        return self.passed > self._point

    def run(self, work: Callable[[], object]) -> None:
        """Do the work."""
        sys.settrace(self._enter)
        try:
            work()
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if self.came or not (code.co_filename.startswith(self._homes) or code.co_name.startswith("way_")):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "call":
            self._pass()
        return self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.came:
            return None
        if event == "opcode":
            before = self._before.get(id(frame))
            self._before[id(frame)] = frame.f_lasti
            if before is not None and (before, frame.f_lasti) in _checked(frame.f_code):
                self._pass()
        elif event == "return":
            self._before.pop(id(frame), None)
        return self._step

    def _pass(self) -> None:
        self.passed += 1
        if self.came:
            sys.settrace(None)
            self._action()


class AfterTime:
    """Carries out an action in a signal handler of the main thread, after some seconds of the work."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.came = 0
        self._action = action
        self._armed = False
        self._before = signal.signal(signal.SIGALRM, self._handle)

    def close(self) -> None:
        """Put the signal handler back."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def run(self, work: Callable[[], T], seconds: float) -> T:
        """Do the work, with the action at that time if it lasts so long, and return what it returns."""
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            return work()
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            self.came += 1
            self._action()


def interrupt() -> None:
    """Raise."""
    raise Interrupted


class _Points:
    """After which instructions of a function signals are looked for.

    The interpreter raises there while it is still at the call, and a trace function only at the next instruction: where
    another handler is in charge of that, the point is left out.
    """

    def __init__(self, code: CodeType) -> None:
        self._after = frozenset(
            instruction.offset for instruction in dis.get_instructions(code) if instruction.opname.startswith(CHECKED)
        )
        self._ranges = [(entry.start, entry.end, entry.target) for entry in dis._parse_exception_table(code)]  # type: ignore[attr-defined]

    def __contains__(self, step: tuple[int, int]) -> bool:
        before, now = step
        return before in self._after and self._handler(before) == self._handler(now)

    def _handler(self, offset: int) -> int | None:
        return next((target for start, end, target in self._ranges if start <= offset < end), None)


_known: dict[CodeType, _Points] = {}


def _checked(code: CodeType) -> _Points:
    found = _known.get(code)
    if found is None:
        found = _known[code] = _Points(code)
    return found
