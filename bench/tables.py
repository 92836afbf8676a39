"""The same tables twice: aligned for a terminal, and as Markdown. Goals first, ratios second, absolutes last."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from bench.goals import reached
from bench.results import ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.results import Entry, Found, Measure, Run


STORES = {
    "redis": "Redis",
    "postgresql": "PostgreSQL",
    "sqlite": "SQLite",
    "etcd": "etcd",
    "zookeeper": "ZooKeeper",
    "cluster": "Cluster",
}


class Table(NamedTuple):
    titles: list[str]
    rows: list[list[str]]


class Part(NamedTuple):
    """A heading, a sentence, facts or a table, and what must be known beside it."""

    heading: str
    level: int
    text: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()
    work: str = ""


def parts(run: Run) -> Iterator[Part]:
    """All that is said about a run."""
    yield Part("Where and with what", 1, facts=tuple(_surroundings(run).items()), text=QUICK if run.quick else "")
    ratios = [(found, table) for found in run.works if (table := _ratios(found))]
    if ratios:
        yield Part("Ratios", 1, RATIOS)
    for found, table in ratios:
        yield Part(_title(found), 2, table=table, work=found.name)
    yield Part("Absolutes", 1, ABSOLUTES)
    for found in run.works:
        yield Part(_title(found), 2, table=_absolutes(found), notes=tuple(_missing(found)), work=found.name)
    if goals := reached(run):
        rows = [[r.goal.what, r.said, r.goal.wanted, "yes" if r.met else "**no**"] for r in goals]
        yield Part("Goals", 1, table=Table(["", "measured", "goal", "met"], rows))
    if remarks := tuple(_remarks(run)):
        yield Part("Beside the numbers", 1, notes=remarks)


QUICK = "A quick run: too short for its numbers to mean much."
RATIOS = "How many times as good lessor is: above 1 it is better, below 1 the other one is. In brackets: quartiles over the rounds."
ABSOLUTES = "Medians, in brackets the quartiles over the rounds. They belong to the machine; compare ratios."


def print_run(run: Run) -> None:
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for part in parts(run):
        heading = part.heading.upper() if part.level == 1 else part.heading
        print(f"\n\033[1m{heading}\033[0m" if bold else f"\n{heading}")
        if part.text:
            print(part.text)
        for name, value in part.facts:
            print(textwrap.fill(f"{name}: {value}", 110, initial_indent="  ", subsequent_indent="    "))
        if part.table:
            print(aligned(part.table))
        for note in part.notes:
            print(f"  {note}")


def aligned(table: Table) -> str:
    rows = [[cell.replace("**", "") for cell in row] for row in [table.titles, *table.rows]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.titles))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append(("  " + "   ".join(cells)).rstrip())
    return "\n".join(line for line in lines if line)


def markdown(run: Run, *, level: int, charts: dict[str, str]) -> str:
    """Return all of it, with headings from that level on; ``charts`` has the pictures' paths by the works' names."""
    lines: list[str] = []
    charts = dict(charts)
    for part in parts(run):
        lines += ["", "#" * (level + part.level - 1) + " " + part.heading, ""]
        if part.text:
            lines += [part.text, ""]
        if chart := charts.pop(part.work or part.heading.lower(), None):
            lines += [f"![{part.heading}]({chart})", ""]
        lines += [f"- **{name}:** {value}" for name, value in part.facts]
        if part.table:
            lines += [_markdown_row(part.table.titles), "|---" + "|---:" * (len(part.table.titles) - 1) + "|"]
            lines += [_markdown_row(row) for row in part.table.rows]
        lines += [f"{'' if number else chr(10)}- {note}" for number, note in enumerate(part.notes)]
    return "\n".join(lines).strip() + "\n"


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _surroundings(run: Run) -> dict[str, str]:
    minutes = f"{run.seconds / 60:.0f} minutes" if run.seconds >= 90 else f"{run.seconds:.0f} s"
    return {
        "when": f"{run.at[:10]}, {minutes}",
        **run.machine,
        **run.servers,
        "versions": ", ".join(f"{name} {version}" for name, version in run.versions.items()),
    }


def _title(found: Found) -> str:
    store, _, _ = found.name.rpartition(".")
    return f"{STORES[store]}: {found.title}" if store else found.title


def _ratios(found: Found) -> Table | None:
    compared = [measure for measure in found.measures if measure.compared]
    rows = []
    for entry in found.entries:
        ours = found.ours_for(entry)
        if entry.kind == "ours" or ours is None:
            continue
        cells = [_ratio(measure, ours, entry) for measure in compared]
        rows.append([f"{ours.name} / {entry.name}", *cells])
    return Table(["", *(measure.label for measure in compared)], rows) if rows and compared else None


def _ratio(measure: Measure, ours: Entry, theirs: Entry) -> str:
    found = ratio(measure, ours, theirs)
    if found is None:
        return "-"
    spread = f" ({times(found.spread[0])} to {times(found.spread[1])})" if found.spread else ""
    return f"{times(found.value)} x{spread}"


def times(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _absolutes(found: Found) -> Table:
    titles = ["", *(f"{measure.label}, {measure.unit}".removesuffix(", ") for measure in found.measures)]
    return Table(titles, [[entry.name, *(_number(m, entry) for m in found.measures)] for entry in found.entries])


def _number(measure: Measure, entry: Entry) -> str:
    spread = measure.quartiles(entry)
    low_high = f" ({spread[0]:,.{measure.digits}f} to {spread[1]:,.{measure.digits}f})" if spread else ""
    return f"{measure.of(entry):,.{measure.digits}f}{low_high}"


def _missing(found: Found) -> Iterator[str]:
    """Say who is not in a table, and why; once for all that have the same reason."""
    names: dict[str, list[str]] = {}
    for absent in found.absent:
        names.setdefault(absent.why, []).append(absent.name)
    for why, missing in names.items():
        yield f"Not here: {', '.join(sorted(missing))}: {why}."


def _remarks(run: Run) -> Iterator[str]:
    said: dict[tuple[str, str], str] = {}
    for found in run.works:
        store = found.name.partition(".")[0]
        said |= {(entry.name, store): entry.remark for entry in found.entries if entry.remark}
    for (name, store), remark in said.items():
        yield f"{name} ({STORES[store]}): {remark}."
