"""A picture of one world: who believed what when, what went wrong, and the messages. As SVG, or for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, ROW, LEFT = 1400, 40, 60
COLUMNS = 100
COLOURS = {
    "stale write": "#d33",
    "writes": "#36c",
    "holds": "#2a7",
    "silence": "#bbb",
    "crash": "#d33",
    "lost disk": "#a0a",
    "shutdown": "#e90",
    "stop": "#59f",
}
OTHER = "#c96"
MARKS = {"silence": "~", "crash": "x", "lost disk": "X", "shutdown": "o", "stop": "=", "death": "x"}
KEY = (
    "1, 2: holds the first, the second resource  s: holds a session  ~ silent  x crashed  X lost its disk",
    "o shut down  = stopped  | partition  ! clock jump",
)
RANKS = {"holds": 1, "writes": 2, "stale": 3}
TOP = 44
"""Above the first row: the legend."""
MOST_TICKS = 14


class Span(NamedTuple):
    """Something that lasts."""

    who: str
    what: str
    begin_ns: int
    end_ns: int


class Timeline:
    """What there is to draw."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, int, int]] = []
        """Source, target, when sent and when to arrive."""
        self.spans: list[Span] = []
        self._open: dict[tuple[str, str], int] = {}

    def begin(self, who: str, what: str, now: int) -> None:
        """Note that something begins."""
        self._open.setdefault((who, what), now)

    def end(self, who: str, what: str, now: int) -> None:
        """Note that it is over."""
        begun = self._open.pop((who, what), None)
        if begun is not None:
            self.spans.append(Span(who, what, begun, now))

    def closed(self, end_ns: int) -> list[Span]:
        """Return all that lasted, with what still does; what a holder believes on top, and what it writes over that."""
        spans = [*self.spans, *(Span(who, what, begun, end_ns) for (who, what), begun in self._open.items())]
        return sorted(spans, key=lambda span: (RANKS.get(span.what.split()[0], 0), span.begin_ns))

    def text(
        self,
        rows: tuple[str, ...],
        end_ns: int,
        *,
        mark: Callable[[str], str] | None = None,
        key: tuple[str, ...] = KEY,
    ) -> list[str]:
        """Return it as lines, a row for each process, with what the marks mean: one character for what lasts."""
        mark = mark or _mark
        wide = max(map(len, rows))
        scale = COLUMNS / max(end_ns, 1)
        lines = {who: ["·"] * COLUMNS for who in rows}
        for span in self.closed(end_ns):
            first = min(int(span.begin_ns * scale), COLUMNS - 1)
            last = max(first + 1, min(int(span.end_ns * scale), COLUMNS))
            lines[span.who][first:last] = mark(span.what) * (last - first)
        drawn = [f"{who:{wide}}   {''.join(marks)}" for who, marks in lines.items()]
        return [*drawn, *(f"{' ' * wide}   {line}" for line in key)]

    def svg(self, rows: tuple[str, ...], end_ns: int, verdict: str) -> str:
        """Return it as an SVG document."""
        scale = (WIDTH - LEFT - 20) / max(end_ns, 1)
        at = {who: TOP + number * ROW for number, who in enumerate(rows)}
        bottom = TOP + len(rows) * ROW
        height = bottom + 54
        spans = self.closed(end_ns)
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *_legend(spans, messages=bool(self.messages)),
            *_axis(end_ns, scale, bottom),
        ]
        for who, y in at.items():
            out.append(f'<text x="8" y="{y + 14}">{who}</text>')
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y + 10}" y2="{y + 10}" stroke="#ddd"/>')
        for source, target, sent, arrival in self.messages:
            if sent <= end_ns:
                x1, x2 = LEFT + sent * scale, LEFT + min(arrival, end_ns) * scale
                ends = f'x1="{x1:.1f}" y1="{at[source] + 10}" x2="{x2:.1f}" y2="{at[target] + 10}"'
                out.append(f'<line {ends} stroke="#36c" stroke-opacity="0.12"/>')
        for span in spans:
            x, width = LEFT + span.begin_ns * scale, max((span.end_ns - span.begin_ns) * scale, 2)
            holds = span.what.startswith("holds")
            y, tall = (at[span.who], 14) if holds else (at[span.who] + 16, 7)
            colour = _colour(span.what)
            told = f"{span.who} {span.what}: {span.begin_ns / 1e9:.3f} s to {span.end_ns / 1e9:.3f} s"
            box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{tall}" fill="{colour}"'
            out.append(f"<rect {box}><title>{told}</title></rect>")
            if width > 30:
                out.append(f'<text x="{x + 3:.1f}" y="{y + tall - 2}" font-size="{tall - 2}">{span.what}</text>')
        text = verdict.replace("&", "&amp;").replace("<", "&lt;") or "no invariant was broken"
        out.append(f'<text x="{LEFT}" y="{height - 12}">{end_ns / 1e9:.3f} s: {text}</text></svg>\n')
        return "\n".join(out)


def _colour(what: str) -> str:
    return COLOURS.get("holds" if what.startswith("holds") else what, OTHER)


def _legend(spans: list[Span], *, messages: bool) -> list[str]:
    """Return what the colours mean that occur."""
    kinds = dict.fromkeys("holds" if span.what.startswith("holds") else span.what for span in spans)
    out, x = [], LEFT
    for what in kinds:
        out.append(f'<rect x="{x}" y="10" width="14" height="10" fill="{_colour(what)}"/>')
        out.append(f'<text x="{x + 18}" y="19">{what}</text>')
        x += 36 + 7 * len(what)
    if messages:
        out.append(f'<line x1="{x}" x2="{x + 14}" y1="20" y2="10" stroke="#36c" stroke-opacity="0.5"/>')
        out.append(f'<text x="{x + 18}" y="19">a message</text>')
    return out


def _axis(end_ns: int, scale: float, y: int) -> list[str]:
    """Return the time axis under the rows: marks at round seconds, and faint lines up from them."""
    end = end_ns / 1e9
    steps = (unit * 10**power for power in range(-3, 6) for unit in (1, 2, 5))
    step = next(step for step in steps if end <= step * MOST_TICKS)
    out = [f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y}" y2="{y}" stroke="#888"/>']
    for number in range(int(end / step) + 1):
        x = LEFT + number * step * 1e9 * scale
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{y + 5}" stroke="#888" stroke-opacity="0.25"/>')
        out.append(f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle" fill="#555">{number * step:g} s</text>')
    return out


def _mark(what: str) -> str:
    if what.startswith("holds"):
        return {"x": "1", "y": "2"}.get(what.split()[1], "s")
    return {"partition": "|", "clock jump": "!", "lowered maximum": "x", "replaced": "X", "freeze": "="}.get(
        what
    ) or MARKS.get(what, "?")
