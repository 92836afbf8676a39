"""Says on stderr how far it is, so that stdout has nothing but the tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 24


def rounds(name: str, count: int) -> Iterator[int]:
    """Count the rounds of a work, and show it."""
    live = sys.stderr.isatty()
    for done in range(count):
        if live:
            filled = done * WIDTH // count
            sys.stderr.write(f"\r{name:<10} [{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{count}\033[K")
            sys.stderr.flush()
        yield done
    sys.stderr.write(f"\r{name:<10} done\033[K\n" if live else f"{name}: {count} rounds done\n")
    sys.stderr.flush()
