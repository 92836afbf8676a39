"""How things look: colours and aligned tables on a terminal, tab-separated text without either elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from typing import TYPE_CHECKING, Final

from lessor.cli.durations import shown
from lessor.core.view import instant
from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import TextIO

STYLES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36",
}  # fmt: skip


class Screen:
    """Where a command prints."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.terminal = self._stream.isatty()
        self.coloured = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def columns(self) -> int:
        """How wide the terminal is."""
        return shutil.get_terminal_size((100, 24)).columns

    def paint(self, text: str, *styles: str) -> str:
        """Return the text in these styles, where there are colours."""
        if not self.coloured or not styles:
            return text
        return f"\033[{';'.join(STYLES[style] for style in styles)}m{text}\033[0m"

    def line(self, text: str = "") -> None:
        """Print a line, and make sure that whoever reads has it."""
        self._stream.write(text + "\n")
        self._stream.flush()

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Print rows under a head; without a terminal, tab-separated and without the head."""
        if not self.terminal:
            for row in rows:
                self._stream.write("\t".join(cell.text for cell in row) + "\n")
            self._stream.flush()
            return
        texts = [list(head), *([cell.text for cell in row] for row in rows)]
        widths = [max(width(row[column]) for row in texts) for column in range(len(head))]
        self.line(self.paint("  ".join(pad(title, w) for title, w in zip(head, widths, strict=True)).rstrip(), "bold"))
        for row in rows:
            cells = [
                self.paint(pad(cell.text, w, right=cell.right), *cell.styles)
                for cell, w in zip(row, widths, strict=True)
            ]
            self.line("  ".join(cells).rstrip())


class Cell:
    """What stands in a table, and how."""

    __slots__ = ("right", "styles", "text")

    def __init__(self, text: object, *styles: str, right: bool = False) -> None:
        self.text = plain(str(text))
        self.styles = styles
        self.right = right


def plain(text: str) -> str:
    """Return the text with whatever could move the cursor, or hide something, made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def width(text: str) -> int:
    """Return how many columns the text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Fill the text up with spaces."""
    space = " " * max(0, columns - width(text))
    return space + text if right else text + space


def now() -> datetime:
    """Return the time, in UTC."""
    return instant(SYSTEM.wall_us())


def clock_time(when: datetime) -> str:
    """Return a time in the local time zone, for people."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(when: datetime) -> str:
    """Return how long ago that was, for people."""
    return shown(max(0.0, (now() - when).total_seconds()))
