"""Ctrl-C at the worst moment."""

from __future__ import annotations

import contextlib
import dis
import linecache
import sys
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, ModuleType


class Interrupt:
    """Ctrl-C, once, just before the first line for which that is so."""

    def __init__(self, is_now: Callable[[FrameType], bool]) -> None:
        self._is_now = is_now
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> Interrupt | None:
        if self.where:
            return None
        if event == "line" and not _leaves_a_lock(frame) and self._is_now(frame):
            self.where = _line(frame)
            raise KeyboardInterrupt
        return self

    def __enter__(self) -> Self:
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def _leaves_a_lock(frame: FrameType) -> bool:
    """Whether a ``with`` is about to end. Python looks for signals nowhere between its last line and the unlocking."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "LOAD_CONST" and _source(frame).startswith("with ")


@contextlib.contextmanager
def interrupted(function: Callable[..., object], text: str) -> Iterator[None]:
    """Interrupt what is done meanwhile just before a line of that function, and see it end by that."""
    code = function.__code__
    with pytest.raises(KeyboardInterrupt), Interrupt(lambda frame: frame.f_code is code and _source(frame) == text):
        yield


def interrupted_everywhere(module: ModuleType, act: Callable[[], object]) -> Iterator[str]:
    """Do something again and again, and interrupt it each time at another line of that module; say which it was."""
    seen: set[str] = set()
    while True:
        with (
            contextlib.suppress(KeyboardInterrupt),
            Interrupt(lambda frame: frame.f_code.co_filename == module.__file__ and _line(frame) not in seen) as once,
        ):
            act()
        if not once.where:
            return
        seen.add(once.where)
        yield once.where


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_name}:{frame.f_lineno}"


def _source(frame: FrameType) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
