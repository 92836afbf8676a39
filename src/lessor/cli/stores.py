"""``lessor stores``: what each store guarantees and, as plainly, what it doesn't."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Final

from lessor.cli.durations import shown
from lessor.cli.screen import Cell, Screen, pad
from lessor.core.timing import shown_drift
from lessor.stores.registry import guarantees

if TYPE_CHECKING:
    import argparse

    from lessor.stores.base import Guarantees

NARROWEST: Final = 26
"""Columns that a store's text needs to be readable; where they don't all fit, there are several tables."""


def stores(args: argparse.Namespace) -> int:
    """Print the table of guarantees."""
    known = guarantees()
    screen = Screen()
    if args.json:
        screen.line(json.dumps([store.as_dict() for store in known], indent=2, ensure_ascii=False))
    elif screen.terminal:
        _print(screen, known)
    else:
        for store in known:
            for name, value in _fields(store):
                screen.line(f"{store.store}\t{name}\t{value}")
    return 0


def _fields(store: Guarantees) -> list[tuple[str, str]]:
    return [
        ("not promised", store.not_promised),
        ("expiry's clock", store.clock),
        ("drift bound", shown_drift(store.drift)),
        ("tokens", store.tokens),
        ("failover", store.failover),
        ("waiting order", store.waiting_order),
        ("can", ", ".join(store.capabilities.names) or "nothing special"),
        ("platforms", store.platforms),
        ("ttl", ", ".join(filter(None, (_ttls(store), store.max_ttl_by)))),
        ("batch", f"{store.max_batch} operations"),
        ("metadata", f"{store.max_metadata} bytes"),
    ]


def _ttls(store: Guarantees) -> str:
    return f"{shown(store.min_ttl_ns / 1e9)} to {shown(store.max_ttl_ns / 1e9)}"


def _print(screen: Screen, known: list[Guarantees]) -> None:
    left = max(len(name) for name, _ in _fields(known[0]))
    fits = max(1, (screen.columns - left) // (NARROWEST + 2))
    for start in range(0, len(known), fits):
        chosen = known[start : start + fits]
        wide = min(52, max(NARROWEST, (screen.columns - left) // len(chosen) - 2))
        if start:
            screen.line()
        titles = "  ".join(screen.paint(pad(f"{store.store}://", wide), "bold", "cyan") for store in chosen)
        screen.line(f"{' ' * left}  {titles}".rstrip())
        for rows in zip(*(_fields(store) for store in chosen), strict=True):
            _print_row(screen, rows[0][0], [textwrap.wrap(value, wide) for _, value in rows], left, wide)


def _print_row(screen: Screen, name: str, columns: list[list[str]], left: int, wide: int) -> None:
    styles = ("yellow",) if name == "not promised" else ()
    for at in range(max(len(lines) for lines in columns)):
        texts = [Cell(lines[at] if at < len(lines) else "").text for lines in columns]
        title = screen.paint(pad(name if at == 0 else "", left), "bold")
        screen.line(f"{title}  {'  '.join(screen.paint(pad(text, wide), *styles) for text in texts)}".rstrip())
