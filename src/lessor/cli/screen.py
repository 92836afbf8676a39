"""How things look: colours and aligned tables on a terminal, tab-separated text without either elsewhere."""

from __future__ import annotations

import itertools
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

NARROWEST: Final = 20
"""Columns to which a name may be shortened."""


class OutputError(Exception):
    """The output can't be written."""


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
        self.write(text + "\n")

    def write(self, text: str) -> None:
        """Print text. Raises `OutputError` on a full disk, and `BrokenPipeError` when nobody reads any more."""
        try:
            if text:  # an empty write fails on a full disk, although nothing is lost
                self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.strerror or str(error)) from error

    def table(
        self, head: Sequence[str], rows: Sequence[Sequence[Cell]], *, cut: Sequence[str] = (), drop: Sequence[str] = ()
    ) -> None:
        """Print rows under a head; without a terminal, tab-separated, complete and without the head.

        Where the terminal is too narrow, the columns in ``cut`` are shortened, and those in ``drop`` left out, in that
        order, empty ones first.
        """
        if not self.terminal:
            self.write("".join("\t".join(cell.text for cell in row) + "\n" for row in rows))
            return
        widths = _fit(head, rows, self.columns, cut, drop)
        self.line(self.paint("  ".join(pad(head[at], w) for at, w in widths.items()).rstrip(), "bold"))
        ellipsis = "\u2026" if str(self._stream.encoding).lower().startswith("utf") else "~"
        for row in rows:
            cells = [
                self.paint(pad(shorten(row[at].text, w, ellipsis), w, right=row[at].right), *row[at].styles)
                for at, w in widths.items()
            ]
            self.line("  ".join(cells).rstrip())


class Cell:
    """What stands in a table, and how."""

    __slots__ = ("right", "styles", "text")

    def __init__(self, text: object, *styles: str, right: bool = False) -> None:
        self.text = plain(str(text))
        self.styles = styles
        self.right = right


def _fit(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], columns: int, cut: Sequence[str], drop: Sequence[str]
) -> dict[int, int]:
    """Return which columns are shown, and how wide each is."""
    widths = {at: max([width(title), *(width(row[at].text) for row in rows)]) for at, title in enumerate(head)}
    least = {at: min(w, NARROWEST) if head[at] in cut else w for at, w in widths.items()}
    empty = [title for at, title in enumerate(head) if not any(row[at].text for row in rows)]
    for title in (*empty, *drop):
        if sum(least.values()) + 2 * (len(least) - 1) <= columns:
            break
        least.pop(head.index(title), None)
    spare = columns - sum(least.values()) - 2 * (len(least) - 1)
    for count, at in zip(range(len(least), 0, -1), sorted(least, key=lambda at: widths[at] - least[at]), strict=True):
        more = min(widths[at] - least[at], max(0, spare) // count)
        least[at] += more
        spare -= more
    return least


def shorten(text: str, columns: int, ellipsis: str) -> str:
    """Return the text, without its middle if it is too wide: names differ in their ends."""
    if width(text) <= columns:
        return text
    start, end = "", ""
    for turn in itertools.count():
        more = text[len(start)] if turn % 2 == 0 else text[-1 - len(end)]
        if width(start) + width(end) + width(more) + 1 > columns:
            return start + ellipsis + end
        start, end = (start + more, end) if turn % 2 == 0 else (start, more + end)
    raise AssertionError("it returns")


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
