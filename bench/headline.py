"""Draws the README's bar chart from a run: what a user gains, beside the libraries that people use today."""

from __future__ import annotations

import os
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bench.results import Found, Run

WORK = "redis.callers64"
TITLE = "64 callers on one Redis server: acquire + release, pairs per second"
WIDTH, ROW, BAR, TOP, LEFT, RIGHT = 880, 28, 20, 52, 200, 790


class Theme(NamedTuple):
    name: str
    ink: str
    quiet: str
    ours: str
    peer: str


THEMES = (
    Theme("light", "#1f2328", "#59636e", "#0d8a7c", "#b6bfc9"),
    Theme("dark", "#e6edf3", "#9198a1", "#2cc5b0", "#4a535e"),
)


def draw(run: Run, folder: str) -> int:
    """Write ``headline-light.svg`` and ``headline-dark.svg``, if the run has the work; return how many were written."""
    found = next((work for work in run.works if work.name == WORK), None)
    if found is None:
        return 0
    for theme in THEMES:
        with open(os.path.join(folder, f"headline-{theme.name}.svg"), "w", encoding="utf-8") as file:
            file.write(svg(found, theme))
    return len(THEMES)


def svg(found: Found, theme: Theme) -> str:
    measure = found.measures[0]
    entries = sorted((one for one in found.entries if one.kind != "floor"), key=measure.of, reverse=True)
    most = max(measure.of(entry) for entry in entries)
    height = TOP + ROW * len(entries) + 14
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'font-family="ui-sans-serif, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="14">'
            f"<title>{escape(TITLE)}</title>"
        ),
        f'<text x="16" y="30" font-size="16" font-weight="600" fill="{theme.ink}">{escape(TITLE)}</text>',
    ]
    for at, entry in enumerate(entries):
        y, value = TOP + ROW * at, measure.of(entry)
        ours = entry.kind == "ours"
        weight, colour = (700, theme.ink) if ours else (400, theme.quiet)
        width = max(2.0, (RIGHT - LEFT) * value / most)
        parts += [
            (
                f'<text x="{LEFT - 12}" y="{y + 15}" text-anchor="end" font-weight="{weight}" fill="{colour}">'
                f"{escape(entry.name)}</text>"
            ),
            (
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="4" '
                f'fill="{theme.ours if ours else theme.peer}"/>'
            ),
            f'<text x="{LEFT + width + 8:.1f}" y="{y + 15}" font-weight="{weight}" fill="{colour}">{value:,.0f}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])
