"""``python -m bench`` measures lessor beside its peers; ``python -m bench report FOLDER`` draws a run again.

Workers import this module again, so it imports nothing that they don't need.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results")


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    return _report(words[1:]) if words[:1] == ["report"] else _measure(words)


def _measure(words: list[str]) -> int:
    from bench.machine import PINS

    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures lessor beside its peers.",
        epilog="'python -m bench report FOLDER' makes tables and charts again from a FOLDER's results.json.",
    )
    add = parser.add_argument
    add(
        "--only",
        metavar="WORK",
        action="append",
        default=[],
        help="a work (redis.sequential), a store (redis), a work on all stores (handover), or a pattern",
    )
    add(
        "--with",
        metavar="NAME",
        action="append",
        default=[],
        dest="names",
        help="only contestants with such a name ('lessor*')",
    )
    add("--quick", action="store_true", help="seconds instead of minutes: shows that it runs, not how fast")
    add(
        "--pin",
        choices=tuple(PINS),
        help="clients and servers on a core each (the default), on the same one, or anywhere",
    )
    add(
        "--out",
        metavar="FOLDER",
        default=RESULTS,
        help="where results.json, tables and charts go (default: bench/results)",
    )
    add("--list", action="store_true", help="list works and contestants, and end")
    options = parser.parse_args(words)
    if options.list:
        return _list()
    from bench.report import write
    from bench.runner import NothingToDo, Runner
    from bench.tables import print_run

    try:
        runner = Runner(only=options.only, names=options.names, quick=options.quick, pin=options.pin)
    except NothingToDo as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no server is left behind
    run = runner.run()
    print_run(run)
    said = write(run, options.out)
    sys.stderr.write(f"\nwritten to {os.path.relpath(options.out)}: results.json, results.md, {said}\n")
    return 0


def _report(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench report", description="Makes tables and charts of a run again."
    )
    parser.add_argument("folder", metavar="FOLDER", help="has a results.json, and gets the rest")
    parser.add_argument(
        "--page", metavar="FILE", help="a Markdown page with a place for the tables, which are put there instead"
    )
    options = parser.parse_args(words)
    from bench.report import draw, write, write_page
    from bench.results import FILE, Run
    from bench.tables import print_run

    run = Run.load(os.path.join(options.folder, FILE))
    print_run(run)
    if options.page:
        write_page(options.page, run, options.folder)
        said = draw(run, options.folder)
    else:
        said = write(run, options.folder)
    sys.stderr.write(f"\n{said}\n")
    return 0


def _list() -> int:
    from bench.contestants import everybody
    from bench.places import STORES
    from bench.works import on_no_store, on_stores

    for store in STORES:
        for work in on_stores(quick=False):
            if store not in work.stores:
                continue
            names = [kind.name for kind in everybody() if kind.store == store and kind.takes_part(work.name)]
            print(f"{store}.{work.name}: {', '.join(names)}")
    for other in on_no_store(quick=False):
        print(f"{other.name}: {other.title}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
