"""Draws the charts, once for light and dark: no background, and colours that both bear."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from bench.chart_plan import plan
from bench.results import ratio
from bench.tables import times

if TYPE_CHECKING:
    from bench.chart_plan import Chart, Panel
    from bench.results import Entry, Run

INK = "#7a828c"
LEGEND = {"ours": "lessor", "peer": "peers", "floor": "floors: the least that the store can do"}
COLOURS = {"ours": "#12a594", "peer": "#8e99ab", "floor": "#c2a25a"}
COLUMNS = 3
WIDE = 50.0
"""From so many times as much on, a linear axis would show nothing but the largest."""
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "path",
    "svg.hashsalt": "lessor",
}


def draw(run: Run, folder: str) -> int:
    """Draw all, as SVG and PNG; return how many there are."""
    charts = plan(run)
    with plt.rc_context(STYLE):
        for chart in charts:
            figure = _bars(chart)
            for ending, settings in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 160})):
                figure.savefig(os.path.join(folder, f"{chart.name}.{ending}"), bbox_inches="tight", **settings)
            plt.close(figure)
    return len(charts)


def _bars(chart: Chart) -> Any:
    """Draw a panel for each measure, with the contestants as rows that all panels share."""
    entries = [entry for panel in chart.panels for entry in panel.found.entries]
    names = list(dict.fromkeys(entry.name for entry in entries))
    columns = min(COLUMNS, len(chart.panels))
    lines = -(-len(chart.panels) // columns)
    size = (2.0 + 2.9 * columns, (0.34 * len(names) + 0.75) * lines + 0.35)
    figure, grid = plt.subplots(lines, columns, sharey=True, squeeze=False, figsize=size)
    axes = list(grid.flat)
    for axis, panel in zip(axes, chart.panels, strict=False):
        _panel(axis, panel, names)
    for axis in axes[len(chart.panels) :]:
        axis.axis("off")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    ours = {entry.name for entry in entries if entry.kind == "ours"}
    for label in [label for axis in axes[::columns] for label in axis.get_yticklabels() if label.get_text() in ours]:
        label.set(fontweight="bold", color=COLOURS["ours"])
    figure.suptitle(chart.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    figure.tight_layout(w_pad=1.5, h_pad=1.5)
    kinds = {entry.kind for entry in entries}
    marks = [Patch(color=COLOURS[kind], label=said) for kind, said in LEGEND.items() if kind in kinds]
    if any(panel.measure.compared for panel in chart.panels) and len(kinds) > 1:
        marks.append(Patch(color="none", label="2 x: lessor is twice as good"))
    figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(0, 0.01), ncols=4, frameon=False, fontsize=8)
    return figure


def _panel(axis: Any, panel: Panel, names: list[str]) -> None:
    measure = panel.measure
    values = {entry.name: measure.of(entry) for entry in panel.found.entries}
    ends = {entry.name: max(values[entry.name], *(measure.quartiles(entry) or [0.0])) for entry in panel.found.entries}
    positive = [value for value in values.values() if value > 0]
    logarithmic = bool(positive) and min(values.values()) >= 0 and max(positive) > WIDE * min(positive)
    high = max(ends.values())
    if logarithmic:
        low = min(positive) / 2
        axis.set_xscale("log")
        axis.set_xlim(low, high * (high / low) ** 0.9)
    else:
        low = min(0, *values.values())
        axis.set_xlim(low, high + (high - low) * 0.75 or 1)
    for entry in panel.found.entries:
        row = names.index(entry.name)
        ours = entry.kind == "ours"
        axis.barh(row, values[entry.name], color=COLOURS[entry.kind], height=0.62)
        spread = measure.quartiles(entry)
        if spread:
            axis.plot(spread, [row, row], color=INK, linewidth=1.4, solid_capstyle="butt")
        axis.annotate(
            _label(panel, entry), (max(ends[entry.name], low), row), (4, 0), textcoords="offset points", va="center",
            fontsize=8, color=COLOURS["ours"] if ours else INK, fontweight="bold" if ours else "normal",
        )  # fmt: skip
    for row in set(range(len(names))) - {names.index(name) for name in values}:
        axis.annotate("not here", (low, row), (4, 0), textcoords="offset points", va="center", fontsize=8, alpha=0.8)
    better = "less is better" if measure.lower_is_better else "more is better"
    axis.set_title(f"{panel.title}\n{better}{', logarithmic' if logarithmic else ''}", fontsize=8.5, loc="left")
    axis.minorticks_off()
    axis.tick_params(length=0, labelbottom=False)
    for side in ("top", "right", "bottom"):
        axis.spines[side].set_visible(False)


def _label(panel: Panel, entry: Entry) -> str:
    """Say the value and, beside somebody else's, how many times as good ours is."""
    said = f"{panel.measure.of(entry):,.{panel.measure.digits}f}"
    ours = panel.found.ours_for(entry)
    if entry.kind == "ours" or ours is None or not panel.measure.compared:
        return said
    found = ratio(panel.measure, ours, entry)
    return f"{said}   {times(found.value)} x" if found else said
