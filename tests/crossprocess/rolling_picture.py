"""Draws a rolling restart with and without drain and handover: ``python -m tests.crossprocess.rolling_picture``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crossprocess.rolling import TTL, WORKERS, roll
from tests.measured import note

if TYPE_CHECKING:
    from tests.crossprocess.rolling import Report

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "rolling-restart.svg"
WIDTH, LEFT, RIGHT = 960, 100, 20
ROW, PANEL = 28, 220
INK, FAINT, HELD, BAD = "#24292f", "#8c959f", "#2f81f7", "#d1242f"


class Drawing:
    """An SVG that grows."""

    def __init__(self, seconds: float) -> None:
        self._scale = (WIDTH - LEFT - RIGHT) / seconds
        self.parts: list[str] = []

    def x(self, seconds: float) -> float:
        return LEFT + seconds * self._scale

    def bar(self, start: float, end: float, y: float, height: float, paint: tuple[str, float]) -> None:
        colour, opacity = paint
        width = max(self.x(end) - self.x(start), 0.6)
        self.parts.append(
            f'<rect x="{self.x(start):.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" '
            f'fill-opacity="{opacity:g}"/>'
        )

    def text(self, x: float, y: float, words: str, *, size: int = 12, colour: str = INK, anchor: str = "start") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{words}</text>'
        )

    def mark(self, seconds: float, y: float) -> None:
        x = self.x(seconds)
        self.parts.append(f'<path d="M{x - 5:.1f} {y - 9:.1f}h10l-5 8z" fill="{INK}"/>')

    def save(self, path: Path, height: float) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def draw(drawing: Drawing, top: float, title: str, report: Report, seconds: float) -> None:
    """Draw one run: who held the lease when, and what was done."""

    def at(host_ns: int) -> float:
        return (host_ns - report.holds[0].start) / 1e9

    drawing.text(10, top + 20, title, size=15)
    longest = 1000 * max(report.gaps)
    verdict = f"longest gap {longest:.0f} ms; {len(report.done)} units done, {len(report.lost)} lost, {len(report.twice)} done twice"
    drawing.text(WIDTH - RIGHT, top + 20, verdict, anchor="end", colour=BAD if report.lost or report.twice else INK)
    rows = top + 56
    for second in range(int(seconds) + 1):
        drawing.bar(second, second, rows - 14, 4 * ROW + 26, (FAINT, 0.4))
        drawing.text(drawing.x(second), rows + 4 * ROW + 26, f"{second} s", size=11, colour=FAINT, anchor="middle")
    drawing.text(10, rows - 18, "no holder for", size=11, colour=BAD)
    for number, name in enumerate(WORKERS):
        y = rows + number * ROW
        drawing.text(10, y + 13, name)
        drawing.bar(0, seconds, y + 16, 1, (FAINT, 0.5))
        for hold in report.holds:
            if hold.by == name:
                drawing.bar(at(hold.start), at(hold.end), y, 16, (HELD, 1))
        for who, when in report.restarts:
            if who == name:
                drawing.mark(at(when), y)
    drawing.text(10, rows + 3 * ROW + 13, "units done")
    seen: set[int] = set()
    for when, unit, _ in report.done:
        again = unit in seen
        seen.add(unit)
        drawing.bar(at(when), at(when), rows + 3 * ROW, 16, (BAD, 1) if again else (INK, 0.35))
    for earlier, later in zip(report.holds, report.holds[1:], strict=False):
        start, end = at(earlier.end), at(later.start)
        drawing.bar(start, end, rows - 14, 4 * ROW + 12, (BAD, 0.12))
        label = f"{1000 * (end - start):.0f} ms"
        drawing.text(drawing.x((start + end) / 2), rows - 18, label, size=11, colour=BAD, anchor="middle")


def legend(drawing: Drawing, y: float) -> None:
    """Say what the colours mean."""
    step = drawing.x(1) - LEFT
    at = 0.0
    for words, paint in (
        ("SIGTERM, and a new process", None),
        ("holds the lease", (HELD, 1.0)),
        ("nobody holds it", (BAD, 0.25)),
        ("a unit done", (INK, 0.6)),
        ("done again", (BAD, 1.0)),
    ):
        if paint is None:
            drawing.mark(at, y)
        else:
            drawing.bar(at, at + 12 / step, y - 9, 9, paint)
        drawing.text(drawing.x(at) + 18, y, words, size=11, colour=FAINT)
        at += (40 + 6.2 * len(words)) / step


def main() -> None:
    reports = []
    for drain in (False, True):
        with tempfile.TemporaryDirectory(prefix="lessor-rolling-") as folder:
            report = roll(f"sqlite:///{folder}/leases.db", Path(folder), drain=drain, cycles=1, ttl=TTL, pause=0.8)
            note("rolling", "sqlite" if drain else "sqlite without drain", **report.numbers())
            reports.append(report)
    seconds = max((report.done[-1][0] - report.holds[0].start) / 1e9 for report in reports)
    drawing = Drawing(seconds)
    draw(drawing, 0, f"SIGTERM ends the worker; its lease ends with the TTL of {TTL:g} s", reports[0], seconds)
    draw(drawing, PANEL, "On SIGTERM: drain, then hand over to who waits", reports[1], seconds)
    legend(drawing, 2 * PANEL + 14)
    drawing.save(PICTURE, 2 * PANEL + 26)


if __name__ == "__main__":
    main()
