"""Writes what people look at: tables, charts, and the page of the docs, all made from one ``results.json``."""

from __future__ import annotations

import os
import re

from bench import headline
from bench.chart_plan import plan
from bench.results import FILE, Run
from bench.tables import markdown

TABLES = "results.md"
BEGIN = "<!-- made by: python -m bench report -->"
END = "<!-- end of what is made -->"


def write(run: Run, folder: str) -> str:
    """Write numbers, tables and charts into the folder; return a sentence about the charts."""
    os.makedirs(folder, exist_ok=True)
    run.save(os.path.join(folder, FILE))
    with open(os.path.join(folder, TABLES), "w", encoding="utf-8") as file:
        file.write("# Benchmark\n\n" + markdown(run, level=2, charts=chart_files(run)))
    return draw(run, folder)


def draw(run: Run, folder: str) -> str:
    """Draw the charts, where that is possible; return a sentence about them."""
    headline.draw(run, folder)
    try:
        from bench import charts
    except ImportError as missing:
        return f"no charts: {missing.name} isn't installed (pip install --group bench)"
    return f"{charts.draw(run, folder)} charts, as SVG and PNG"


def write_page(page: str, run: Run, folder: str) -> None:
    """Fill the page."""
    filled = fill(page, run, folder)
    with open(page, "w", encoding="utf-8") as file:
        file.write(filled)


def fill(page: str, run: Run, folder: str) -> str:
    """Return the page's text with the run's tables between its marks, and the folder's charts."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    to_folder = os.path.relpath(folder, os.path.dirname(page))
    charts = {name: f"{to_folder}/{chart}" for name, chart in chart_files(run).items()}
    made = f"{BEGIN}\n\n{markdown(run, level=2, charts=charts)}\n{END}"
    filled, count = re.subn(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: made, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{page} has no place for results: {BEGIN} ... {END}")
    return filled


def chart_files(run: Run) -> dict[str, str]:
    """Return the file with the chart of each work that has one."""
    return {name: f"{chart.name}.svg" for chart in plan(run) for name in chart.stands_at}
