"""What is seen while it runs, on stderr: where it is and, after each work, its bars. The tables come on stdout."""

from __future__ import annotations

import os
import shutil
import sys
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.results import Found

BAR = 30
EIGHTHS = " ▏▎▍▌▋▊▉█"
COLOURS = {"ours": "36;1", "peer": "0", "floor": "2"}


class Show:
    def __init__(self, works: int) -> None:
        self._works = works
        self._work = 0
        self._name = ""
        self._start = monotonic()
        self._live = sys.stderr.isatty()
        self._colour = self._live and "NO_COLOR" not in os.environ

    @property
    def elapsed(self) -> str:
        minutes, seconds = divmod(int(monotonic() - self._start), 60)
        return f"{minutes}:{seconds:02}"

    def begin(self, name: str) -> None:
        self._work += 1
        self._name = name
        self._line(f"[{self._work}/{self._works}] {name}: getting ready")

    def step(self, number: int, rounds: int, contestant: str) -> None:
        self._line(f"[{self._work}/{self._works}] {self._name}: round {number} of {rounds}, {contestant}")

    def end(self, found: Found) -> None:
        self._clear()
        measure = found.measures[0]
        self._say(f"[{self._work}/{self._works}] {found.name}, {self.elapsed}: {measure.label}, {measure.unit}")
        values = {entry.name: measure.of(entry) for entry in found.entries}
        widest = max((len(name) for name in values), default=0)
        most = max(values.values(), default=0.0)
        for entry in found.entries:
            value = values[entry.name]
            line = f"  {entry.name:<{widest}} {_bar(value, most)} {value:,.{measure.digits}f}"
            self._say(f"\033[{COLOURS[entry.kind]}m{line}\033[0m" if self._colour else line)
        for absent in found.absent:
            self._say(f"  {absent.name}: not here, {absent.why}")

    def _line(self, text: str) -> None:
        if self._live:
            width = shutil.get_terminal_size().columns - 8
            sys.stderr.write(f"\r{self.elapsed} {text[:width]}\033[K")
            sys.stderr.flush()

    def _clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\033[K")

    @staticmethod
    def _say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _bar(value: float, most: float) -> str:
    eighths = round(max(0.0, value) / most * BAR * 8) if most > 0 else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + EIGHTHS[rest].strip()).ljust(BAR)
