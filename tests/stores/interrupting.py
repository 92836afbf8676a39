"""Ctrl-C at the worst moment."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class InterruptAt:
    """Ctrl-C, once, just before a line with that text is carried out."""

    def __init__(self, function: Callable[..., object], text: str) -> None:
        lines, first = inspect.getsourcelines(function)
        *_, self._line = [first + at for at, line in enumerate(lines) if line.strip() == text]
        self._code = function.__code__
        self.done = False

    def __call__(self, frame: FrameType, event: str, _: object) -> InterruptAt | None:
        if frame.f_code is not self._code or self.done:
            return None
        if event == "line" and frame.f_lineno == self._line:
            self.done = True
            raise KeyboardInterrupt
        return self
