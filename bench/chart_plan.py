"""Which charts there are: the works that belong together share one, with a panel for each of their measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench.tables import STORES

if TYPE_CHECKING:
    from bench.results import Found, Measure, Run

GROUPS = {
    "throughput": ("sequential", "callers16", "callers64", "callers256"),
    "handover": ("handover",),
    "contention": ("contention",),
    "takeover": ("takeover",),
    "holding1000": ("holding1000",),
    "holding10000": ("holding10000",),
    "renewing": ("renewing",),
}


class Panel(NamedTuple):
    title: str
    found: Found
    measure: Measure


class Chart(NamedTuple):
    name: str
    title: str
    panels: list[Panel]
    stands_at: tuple[str, ...]
    """The parts of the report that it is shown in."""


def plan(run: Run) -> list[Chart]:
    charts: list[Chart] = []
    for store, said in STORES.items():
        for group, works in GROUPS.items():
            founds = [found for work in works if (found := run.work(f"{store}.{work}")) and len(found.entries) > 1]
            if founds:
                title = f"{said}: " + ("acquire + release pairs a second" if len(works) > 1 else founds[0].title)
                panels = [panel for found in founds for panel in _panels(found, alone=len(works) == 1)]
                charts.append(Chart(f"{store}-{group}", title, panels, (founds[0].name,)))
    imports = run.work("imports")
    if imports and imports.entries:
        charts.append(Chart("imports", imports.title, list(_panels(imports, alone=True)), ("imports",)))
    return charts


def _panels(found: Found, *, alone: bool) -> list[Panel]:
    if not alone:
        return [Panel(found.title.partition(",")[0], found, found.measures[0])]
    return [Panel(f"{m.label}, {m.unit}".removesuffix(", "), found, m) for m in found.measures]
