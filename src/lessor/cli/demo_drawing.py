"""Draws a finished demo as an animated SVG: one file for light pages and one for dark ones.

The drawing is complete without its animation, for viewers that asked for reduced motion. It uses no script, no font of
its own and nothing from outside, so that it plays inside an ``<img>``.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from lessor.cli.demo_screen import SECOND, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.cli.demo_screen import Claim, Mark, Picture, Span, Track

WIDTH, HEIGHT = 880, 372
LEFT, RIGHT = 92, 856
"""Where the timeline begins and ends."""
TOP = 96
"""The middle of the first row."""
ROW = 42
BAR = 26
PLAYED = 16.0
"""Seconds that the animation takes for the whole run."""
HELD = 5.0
"""Seconds for which the complete drawing stays before the animation starts again."""


class Theme(NamedTuple):
    """The colours for one kind of page."""

    name: str
    card: str
    border: str
    ink: str
    quiet: str
    line: str
    red: str
    amber: str
    green: str
    workers: Sequence[str]
    on_worker: str


LIGHT = Theme(
    "light", "#ffffff", "#d0d7de", "#1f2328", "#59636e", "#d8dee4", "#cf222e", "#9a6700", "#1a7f37",
    ("#0969da", "#bf3989", "#1a7f37"), "#ffffff",
)  # fmt: skip
DARK = Theme(
    "dark", "#0d1117", "#30363d", "#e6edf3", "#9198a1", "#30363d", "#ff7b72", "#e3b341", "#3fb950",
    ("#58a6ff", "#f778ba", "#56d364"), "#0d1117",
)  # fmt: skip


def write(picture: Picture, claims: Sequence[Claim], path: str) -> list[str]:
    """Write ``NAME-light.svg`` and ``NAME-dark.svg`` for a path ``NAME.svg``, and return their paths."""
    stem = path.removesuffix(".svg")
    written = []
    for theme in (LIGHT, DARK):
        name = f"{stem}-{theme.name}.svg"
        with open(name, "w", encoding="utf-8") as file:
            file.write(Drawing(picture, claims, theme).svg())
        written.append(name)
    return written


class Drawing:
    """One drawing in the colours of one theme."""

    def __init__(self, picture: Picture, claims: Sequence[Claim], theme: Theme) -> None:
        self._picture = picture
        self._claims = claims
        self._theme = theme
        self._length = max(
            picture.seconds(at)
            for track in picture.tracks
            for span in track.spans
            for at in (span.start_ns, span.end_ns or 0)
        )

    def svg(self) -> str:
        """Return the file's text."""
        theme, bottom = self._theme, TOP + ROW * len(self._picture.tracks)
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
                    'font-family="ui-sans-serif, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
                ),
                f"<title>{escape(self._summary())}</title>",
                f"<style>{self._style()}</style>",
                f'<defs><clipPath id="card"><rect x="0" y="0" width="{WIDTH}" height="{HEIGHT}" rx="10"/></clipPath>',
                *self._hatches(),
                "</defs>",
                f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10" fill="{theme.card}"/>',
                self._text(24, 34, "lessor demo", size=16, weight=600),
                self._text(RIGHT, 34, "three workers, one job, a lease of 2 s: a real run", theme.quiet, anchor="end"),
                '<g clip-path="url(#card)">',
                *(part for at, track in enumerate(self._picture.tracks) for part in self._row(at, track)),
                *self._ledger(bottom),
                (
                    f'<rect class="sweep" x="{LEFT}" y="{TOP - ROW / 2}" width="{WIDTH}" '
                    f'height="{bottom - TOP + ROW}" fill="{theme.card}"/>'
                ),
                (
                    f'<rect class="sweep" x="{LEFT}" y="{TOP - ROW / 2}" width="1.5" height="{bottom - TOP + ROW}" '
                    f'fill="{theme.quiet}"/>'
                ),
                "</g>",
                (
                    f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10" fill="none" '
                    f'stroke="{theme.border}"/>'
                ),
                *self._labels(bottom),
                *self._axis(),
                *self._captions(bottom + 58),
                *self._legend(bottom + 96),
                *self._verdicts(bottom + 128),
                "</svg>\n",
            ]
        )

    # --- the parts ------------------------------------------------------------------------------------------------

    def _row(self, at: int, track: Track) -> Iterator[str]:
        colour, middle = self._theme.workers[at], TOP + ROW * at
        for span in track.spans:
            yield self._span(at, span, colour, middle)
        for mark in track.marks:
            yield self._mark(mark, middle)

    def _span(self, at: int, span: Span, colour: str, middle: float) -> str:
        first, last = self._x(span.start_ns), self._x(span.end_ns)
        width = max(1.0, last - first)
        if span.phase is Phase.WAITS:
            return (
                f'<rect x="{first:.1f}" y="{middle - 1}" width="{width:.1f}" height="2" fill="{colour}" opacity=".45"/>'
            )
        if span.phase is Phase.ASLEEP:
            return (
                f'<path d="M{first:.1f} {middle}H{last:.1f}" stroke="{self._theme.quiet}" stroke-width="2" '
                'stroke-dasharray="2 4"/>'
            )
        box = f'x="{first:.1f}" y="{middle - BAR / 2}" width="{width:.1f}" height="{BAR}" rx="4"'
        if span.phase is Phase.LEFT_OVER:
            return f'<rect {box} fill="url(#hatch{at})" stroke="{colour}" stroke-opacity=".6"/>'
        label = ""
        if width > 9 * len(span.label):
            label = self._text(
                first + width / 2, middle + 4.5, span.label, self._theme.on_worker, anchor="middle", weight=600
            )
        return f'<rect {box} fill="{colour}"/>{label}'

    def _mark(self, mark: Mark, middle: float) -> str:
        """Draw a mark as a shape: a font may lack the glyph."""
        theme, x = self._theme, self._x(mark.at_ns)
        shapes = {
            "✖": (theme.red, "M-5 -5L5 5M5 -5L-5 5"),
            "‖": (theme.amber, "M-3 -6V6M3 -6V6"),
            "▸": (theme.green, "M-3 -6L5 0L-3 6Z"),
            "⊘": (theme.red, "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0 -6 0M-4 4L4 -4"),
        }
        colour, path = shapes[mark.glyph]
        fill = colour if mark.glyph == "▸" else "none"
        ring = "none" if mark.glyph == "⊘" else colour
        return (
            f'<g transform="translate({x:.1f} {middle})"><circle r="10" fill="{theme.card}" stroke="{ring}"/>'
            f'<path d="{path}" fill="{fill}" stroke="{colour}" stroke-width="2.4" stroke-linecap="round"/></g>'
        )

    def _ledger(self, middle: float) -> Iterator[str]:
        """Draw what was written: a dot in the colour of its writer, and each write that was refused."""
        for mark in self._picture.ledger:
            if mark.glyph == "⊘":
                yield self._mark(mark, middle)
            else:
                yield f'<circle cx="{self._x(mark.at_ns):.1f}" cy="{middle}" r="3" fill="{self._writer(mark)}"/>'

    def _writer(self, mark: Mark) -> str:
        names = {f"\033[38;5;{track.colour}m": at for at, track in enumerate(self._picture.tracks)}
        return self._theme.workers[names[mark.style]]

    def _labels(self, bottom: float) -> Iterator[str]:
        for at, track in enumerate(self._picture.tracks):
            yield self._text(24, TOP + ROW * at + 5, track.name, self._theme.workers[at], weight=600, size=14)
        yield self._text(24, bottom + 5, "writes", self._theme.quiet, size=14)

    def _axis(self) -> Iterator[str]:
        theme, y = self._theme, TOP - ROW / 2 - 8
        yield f'<path d="M{LEFT} {y}H{RIGHT}" stroke="{theme.line}"/>'
        for second in range(0, int(self._length) + 1, 5):
            x = self._x(self._picture.start_ns + second * SECOND)
            yield f'<path d="M{x:.1f} {y - 3}v6" stroke="{theme.quiet}"/>'
            yield self._text(x, y - 8, f"{second} s", theme.quiet, anchor="middle", size=11)

    def _captions(self, y: float) -> Iterator[str]:
        for at, caption in enumerate(self._picture.captions):
            yield f'<g class="caption c{at}">{self._text(24, y, caption.text, size=16, weight=600)}</g>'

    def _legend(self, y: float) -> Iterator[str]:
        theme, x = self._theme, 24.0
        colour = theme.quiet
        signs: list[tuple[str, str]] = [
            (f'<rect width="22" height="12" y="-6" rx="3" fill="{colour}"/>', "holds the lease"),
            (f'<rect width="22" height="2" y="-1" fill="{colour}"/>', "waits"),
            (f'<rect width="22" height="12" y="-6" rx="3" fill="url(#hatch)" stroke="{colour}"/>', "lease runs out"),
            (f'<path d="M0 0H22" stroke="{colour}" stroke-width="2" stroke-dasharray="2 4"/>', "still paused"),
            (f'<path d="M6 -5L16 5M16 -5L6 5" stroke="{theme.red}" stroke-width="2.4"/>', "kill -9"),
            (f'<path d="M8 -6V6M14 -6V6" stroke="{theme.amber}" stroke-width="2.4"/>', "paused"),
            (f'<circle cx="11" r="3" fill="{colour}"/>', "write"),
            (
                (
                    f'<circle cx="11" r="6" fill="none" stroke="{theme.red}" stroke-width="2"/>'
                    f'<path d="M7 4L15 -4" stroke="{theme.red}" stroke-width="2"/>'
                ),
                "write refused",
            ),
        ]
        for sign, words in signs:
            yield f'<g transform="translate({x:.1f} {y - 4})">{sign}</g>{self._text(x + 28, y, words, colour, size=12)}'
            x += 28 + 6.4 * len(words) + 18

    def _verdicts(self, y: float) -> Iterator[str]:
        """Show what was checked after the run, as its table says it."""
        shown = [claim for claim in self._claims if claim.what in SHOWN]
        x = 24.0
        for claim in shown:
            sign, colour = ("✓", self._theme.green) if claim.holds else ("✗", self._theme.red)
            words = f"{SHOWN[claim.what]}: {claim.found}"
            yield f'<g class="verdict">{self._text(x, y, sign, colour, weight=700)}'
            yield f"{self._text(x + 16, y, words, self._theme.quiet, size=12)}</g>"
            x += 16 + 6.1 * len(words) + 20

    # --- drawing tools --------------------------------------------------------------------------------------------

    def _x(self, at_ns: int | None) -> float:
        seconds = self._length if at_ns is None else self._picture.seconds(at_ns)
        return LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, seconds / self._length))

    def _text(
        self,
        x: float,
        y: float,
        words: str,
        fill: str | None = None,
        *,
        anchor: str = "start",
        size: int = 13,
        weight: int = 400,
    ) -> str:
        return (
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill or self._theme.ink}" font-size="{size}" '
            f'font-weight="{weight}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def _hatches(self) -> Iterator[str]:
        colours = {f"hatch{at}": colour for at, colour in enumerate(self._theme.workers)}
        for name, colour in {**colours, "hatch": self._theme.quiet}.items():
            yield (
                f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
                f'patternTransform="rotate(45)"><rect width="2" height="6" fill="{colour}" opacity=".55"/></pattern>'
            )

    def _style(self) -> str:
        """Return the animation: a cover that moves off the timeline, and the captions, each in its time."""
        total = PLAYED + HELD
        shown = 100 * PLAYED / total
        rules = [
            f".sweep{{transform:translateX({RIGHT - LEFT + 40}px)}}",
            ".caption{opacity:0}",
            f".c{len(self._picture.captions) - 1}{{opacity:1}}",
            "@media (prefers-reduced-motion:no-preference){",
            f".sweep{{animation:sweep {total:g}s linear infinite}}",
            (
                f"@keyframes sweep{{0%{{transform:translateX(0)}}{shown:.2f}%,100%{{transform:translateX("
                f"{RIGHT - LEFT}px)}}}}"
            ),
            f".verdict{{animation:verdict {total:g}s linear infinite}}",
            f"@keyframes verdict{{0%,{shown:.2f}%{{opacity:0}}{shown + 1:.2f}%,100%{{opacity:1}}}}",
        ]
        for at, caption in enumerate(self._picture.captions):
            later = self._picture.captions[at + 1 :]
            start = self._share(caption.at_ns) * shown
            end = self._share(later[0].at_ns) * shown if later else 100.0
            appear = f"0%,{start:.2f}%{{opacity:0}}{start + 0.3:.2f}%" if start > 0 else "0%"
            vanish = f"{end:.2f}%{{opacity:1}}{end + 0.01:.2f}%,100%{{opacity:0}}" if later else "100%{opacity:1}"
            rules.append(f".c{at}{{opacity:1;animation:c{at} {total:g}s linear infinite}}")
            rules.append(f"@keyframes c{at}{{{appear},{vanish}}}")
        return "".join(rules) + "}"

    def _share(self, at_ns: int) -> float:
        return min(1.0, max(0.0, self._picture.seconds(at_ns) / self._length))

    def _summary(self) -> str:
        return "Three workers share one lease. " + " ".join(caption.text for caption in self._picture.captions)


SHOWN = {
    "tokens strictly increasing": "tokens rise",
    "overlaps on the host's clock": "overlaps",
    "takeover after the kill": "takeover",
    "stale writes": "stale writes",
}
"""The claims that the drawing repeats, and how it calls them."""
