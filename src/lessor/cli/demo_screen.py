"""What the viewer sees: a timeline that is redrawn in place on a terminal, or plain lines in a pipe."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECOND = 1_000_000_000
LOG_LINES = 7
LABEL = 9
"""Columns before the timeline."""
WIDEST = 160

RESET, BOLD, DIM = "\033[0m", "\033[1m", "\033[2m"
GREY, RED, YELLOW, GREEN = "\033[38;5;244m", "\033[38;5;203m", "\033[38;5;221m", "\033[38;5;114m"


class Phase(Enum):
    """What a worker does for a while, and how that is drawn."""

    WAITS = "\N{BOX DRAWINGS LIGHT DIAGONAL UPPER RIGHT TO LOWER LEFT}"
    HOLDS = " "
    LEFT_OVER = "▒"
    """Dead or stopped, while the store still keeps the others out."""
    ASLEEP = "┄"
    """Stopped, and its lease is over without its knowing."""


class Mark(NamedTuple):
    """Something that happened to a worker at one moment."""

    at_ns: int
    glyph: str
    style: str


@dataclass
class Span:
    """A phase from one moment to another, or still going on."""

    phase: Phase
    start_ns: int
    end_ns: int | None = None
    label: str = ""


@dataclass
class Track:
    """One worker's row."""

    name: str
    colour: int
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def enter(self, phase: Phase | None, at_ns: int, label: str = "") -> None:
        """End the phase that goes on, and begin another."""
        if self.spans and self.spans[-1].end_ns is None:
            self.spans[-1].end_ns = at_ns
        if phase is not None:
            self.spans.append(Span(phase, at_ns, None, label))

    @property
    def phase(self) -> Phase | None:
        """What goes on now."""
        return self.spans[-1].phase if self.spans and self.spans[-1].end_ns is None else None


class Line(NamedTuple):
    """A line of the log."""

    at_ns: int
    track: Track
    text: str
    style: str = ""


class Caption(NamedTuple):
    """What the viewer should notice, from one moment on."""

    at_ns: int
    text: str


@dataclass
class Picture:
    """All that there is to see."""

    start_ns: int
    length_ns: int
    tracks: Sequence[Track]
    ledger: list[Mark] = field(default_factory=list)
    log: list[Line] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)

    @property
    def caption(self) -> str:
        """The caption that is shown now."""
        return self.captions[-1].text if self.captions else ""

    def seconds(self, at_ns: int) -> float:
        """Return how far into the demo that was."""
        return (at_ns - self.start_ns) / SECOND


class Claim(NamedTuple):
    """Something that must be so, and what was found."""

    what: str
    found: str
    holds: bool


class PlainLines:
    """For pipes, dumb terminals and those who asked for no colours: each event once, as it happens."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown = 0
        self._caption = ""

    def show(self, picture: Picture, now_ns: int) -> None:
        """Print what is new."""
        for line in picture.log[self._shown :]:
            self._out.write(f"{picture.seconds(line.at_ns):6.2f} s  {line.track.name:<5} {line.text}\n")
        self._shown = len(picture.log)
        if picture.caption != self._caption:
            self._caption = picture.caption
            self._out.write(f"{picture.seconds(now_ns):6.2f} s  -- {picture.caption}\n")
        self._out.flush()

    def conclude(self, claims: Sequence[Claim], verdict: str, *, held: bool) -> None:
        """Print the summary."""
        del held  # the words say it
        width = max(len(claim.what) for claim in claims)
        lines = [f" {'ok  ' if claim.holds else 'FAIL'} {claim.what:<{width}}  {claim.found}" for claim in claims]
        self._out.write("\n" + "\n".join(lines) + f"\n\n {verdict}\n")
        self._out.flush()

    def close(self) -> None:
        """Nothing to put back."""


class Timeline:
    """For terminals: redrawn in place, and left standing at the end."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._height = 0
        out.write("\033[?25l")

    def show(self, picture: Picture, now_ns: int) -> None:
        """Draw it all anew over what was drawn before, in one write."""
        columns, rows = shutil.get_terminal_size()
        lines = draw(picture, now_ns, min(columns, WIDEST))[: rows - 1]
        back = f"\033[{self._height}A" if self._height else ""
        # No wrapping while we draw: a terminal made narrower meanwhile would tear the picture.
        self._out.write(f"{back}\033[?7l" + "".join(f"\r{line}{RESET}\033[K\n" for line in lines) + "\033[J\033[?7h")
        self._out.flush()
        self._height = len(lines)

    def conclude(self, claims: Sequence[Claim], verdict: str, *, held: bool) -> None:
        """Print the summary beneath the picture."""
        width = max(len(claim.what) for claim in claims)
        self._out.write("\n")
        for claim in claims:
            sign = f"{GREEN}✔" if claim.holds else f"{RED}✘"
            self._out.write(f" {sign} {GREY}{claim.what:<{width}}{RESET}  {claim.found}\n")
        self._out.write(f"\n {BOLD}{GREEN if held else RED}{verdict}{RESET}\n\n")
        self._out.flush()

    def close(self) -> None:
        """Give the cursor back."""
        self._out.write("\033[?25h")
        self._out.flush()


def screen_for(out: TextIO, environment: Mapping[str, str]) -> Timeline | PlainLines:
    """Return the timeline where it can be seen, else plain lines."""
    colours = not environment.get("NO_COLOR") and not environment.get("CI")
    able = environment.get("TERM", "dumb") != "dumb" and (out.encoding or "").lower().replace("-", "") == "utf8"
    return Timeline(out) if out.isatty() and colours and able else PlainLines(out)


def default_screen() -> Timeline | PlainLines:
    """Return the screen for this process's output."""
    return screen_for(sys.stdout, os.environ)


# --- the drawing --------------------------------------------------------------------------------------------------


def draw(picture: Picture, now_ns: int, width: int) -> list[str]:
    """Return the lines of the picture as it is now."""
    cells = max(20, width - LABEL - 2)
    since = max(picture.start_ns, now_ns - picture.length_ns)
    scale = Scale(since, picture.length_ns / cells, cells)
    clock = f"{picture.seconds(now_ns):5.1f} s"
    title = "lessor  three workers, one job, a lease of 2 s"
    gap = " " * max(1, width - 1 - len(title) - len(clock) - 1)
    lines = ["", f" {BOLD}lessor{RESET}{GREY}{title[9:]}{gap}{clock}{RESET}", ""]
    lines.append(" " * LABEL + _axis(picture, scale))
    for track in picture.tracks:
        lines.append(_label(track) + _row(track, scale, now_ns))
        lines.append(" " * LABEL + "".join(_now(scale, now_ns)))
    lines.append(f" {GREY}{'ledger':<{LABEL - 1}}{RESET}" + _marks(picture.ledger, scale, now_ns))
    lines += ["", _legend(width), "", f" {BOLD}{picture.caption[: width - 2]}{RESET}", ""]
    recent = picture.log[-LOG_LINES:]
    lines += [_log_line(picture, line, width) for line in recent]
    lines += [""] * (LOG_LINES - len(recent))
    return lines


class Scale(NamedTuple):
    """Which cell shows what time."""

    since_ns: int
    cell_ns: float
    cells: int

    def at(self, ns: int) -> int:
        """Return the cell of that moment, which may lie outside."""
        return min(int((ns - self.since_ns) / self.cell_ns), self.cells)


def _row(track: Track, scale: Scale, now_ns: int) -> str:
    colour, faint = f"\033[38;5;{track.colour}m", f"{DIM}\033[38;5;{track.colour}m"
    row = _now(scale, now_ns)
    for span in track.spans:
        first, last = scale.at(span.start_ns), scale.at(span.end_ns or now_ns)
        style = {
            Phase.WAITS: faint,
            Phase.HOLDS: f"\033[48;5;{track.colour}m\033[38;5;16m{BOLD}",
            Phase.LEFT_OVER: colour,
            Phase.ASLEEP: GREY,
        }[span.phase]
        text = span.label if last - first >= len(span.label) else ""
        for cell in range(max(first, 0), min(max(last, first + 1), scale.cells)):
            glyph = text[cell - first] if cell - first < len(text) else span.phase.value
            row[cell] = style + glyph + RESET
    taken = -1
    for mark in track.marks:
        cell = taken = max(scale.at(mark.at_ns), taken + 1)  # two at once stand side by side
        if 0 <= cell < scale.cells:
            row[cell] = BOLD + mark.style + mark.glyph + RESET
    return "".join(row)


def _marks(marks: Sequence[Mark], scale: Scale, now_ns: int) -> str:
    row = _now(scale, now_ns)
    for mark in marks:
        cell = scale.at(mark.at_ns)
        if 0 <= cell < scale.cells:
            row[cell] = mark.style + mark.glyph + RESET
    return "".join(row)


def _now(scale: Scale, now_ns: int) -> list[str]:
    """Return an empty row with the line that moves."""
    row = [" "] * (scale.cells + 1)
    row[scale.at(now_ns)] = f"{GREY}┊{RESET}"
    return row


def _axis(picture: Picture, scale: Scale) -> str:
    row = ["─"] * scale.cells
    step = 5 if scale.cells < 100 else 2
    for second in range(0, 1000, step):
        cell = scale.at(picture.start_ns + second * SECOND)
        text = f"{second} s" if second else "0"
        if cell >= 0:
            if cell + len(text) >= scale.cells:
                break
            row[cell : cell + len(text) + 1] = [*text, " "]
    return GREY + "".join(row) + RESET


def _label(track: Track) -> str:
    colour = f"\033[38;5;{track.colour}m"
    symbol = {Phase.HOLDS: "●", Phase.WAITS: "○", Phase.LEFT_OVER: "◌", Phase.ASLEEP: "◌", None: " "}[track.phase]
    return f" {colour}{symbol} {BOLD}{track.name:<{LABEL - 3}}{RESET}"


def _legend(width: int) -> str:
    hold = f"\033[48;5;250m\033[38;5;16m{BOLD}#1{RESET}{GREY}"
    parts = [
        (f"{hold} holds", 8),
        (f"{Phase.WAITS.value * 2} waits", 8),
        (f"{Phase.LEFT_OVER.value * 2} runs out", 11),
        (f"{RED}✖{GREY} killed", 8),
        (f"{YELLOW}‖{GREY} stopped", 9),
        (f"{YELLOW}▸{GREY} wakes", 7),
        ("• written", 9),
        (f"{RED}⊘{GREY} refused", 9),
    ]
    room = width - 2 - sum(length for _, length in parts)
    gap = " " * max(1, min(4, room // (len(parts) - 1)))
    return f" {GREY}{gap.join(text for text, _ in parts)}{RESET}"


def _log_line(picture: Picture, line: Line, width: int) -> str:
    colour, name = f"\033[38;5;{line.track.colour}m", line.track.name
    text = line.text[: max(0, width - 19)]
    return f" {GREY}{picture.seconds(line.at_ns):6.2f} s{RESET}  {colour}{name:<5}{RESET} {line.style}{text}{RESET}"
