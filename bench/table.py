"""Aligned tables, plain in a pipe and with a little weight on a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.result import Row


def heading(text: str) -> None:
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(f"\n\033[1m{text}\033[0m" if bold else f"\n{text}")


def table(titles: tuple[str, str, str, str], groups: Sequence[tuple[str, Sequence[Row]]]) -> None:
    """Print the rows of all groups, with columns that have the same width in each."""
    rows = [row for _, group in groups for row in group]
    if not rows:
        return
    widths = [max(len(titles[i]), *(len(row[i]) for row in rows)) for i in range(4)]
    widths[0] += 2
    _line(titles, widths)
    print("-" * (sum(widths) + 6))
    for title, group in groups:
        if group:
            print(title)
        for row in group:
            _line(("  " + row.what, row.value, row.goal, row.spread), widths)


def _line(cells: tuple[str, str, str, str], widths: list[int]) -> None:
    what, value, goal, spread = cells
    line = f"{what:<{widths[0]}}  {value:>{widths[1]}}  {goal:<{widths[2]}}  {spread:>{widths[3]}}"
    print(line.rstrip())
