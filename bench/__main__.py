"""``python -m bench [--only NAME] [--quick]``: run the works and print ratios first, absolutes second."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from bench.table import heading, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.result import Result

WORKS = ("pair", "handover", "check", "imports", "crowd", "callers")
RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures leasehold beside its peers.")
    parser.add_argument("--only", metavar="NAME", action="append", choices=WORKS, help=f"one of {', '.join(WORKS)}")
    parser.add_argument("--quick", action="store_true", help="a few rounds only: shows that it runs, not how fast")
    parser.add_argument("--results", metavar="FOLDER", default=RESULTS, help="where the numbers go, as JSON")
    options = parser.parse_args(argv)
    results: dict[str, Result] = {}
    for name in options.only or WORKS:
        results[name] = import_module(f"bench.{name}").run(quick=options.quick)
    report(results, quick=options.quick)
    save(results, options.results, quick=options.quick)
    return 0


def report(results: dict[str, Result], *, quick: bool) -> None:
    cores = len(os.sched_getaffinity(0))
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, filelock {version('filelock')}"
    print(f"{versions}, {platform.system()}.")
    print(f"Ours and the peers' ran in turns, in one run, on the same {cores} cores and the same file system.")
    if quick:
        print("A quick run: too short for its numbers to mean much.")
    heading("Ratios")
    table(("", "ratio", "goal", "quartiles"), [(r.title, r.ratios) for r in results.values()])
    heading("Absolutes")
    table(("", "median", "goal", "quartiles"), [(r.title, r.absolutes) for r in results.values()])


def save(results: dict[str, Result], folder: str, *, quick: bool) -> None:
    os.makedirs(folder, exist_ok=True)
    at = datetime.now(UTC)
    path = os.path.join(folder, f"{at:%Y%m%dT%H%M%SZ}.json")
    with open(path, "w", encoding="utf-8") as file:
        found = {name: asdict(result) for name, result in results.items()}
        json.dump({"at": at.isoformat(), "quick": quick, "works": found}, file, indent=1)
    sys.stderr.write(f"written to {os.path.relpath(path)}\n")


if __name__ == "__main__":
    raise SystemExit(main())
