"""``lessor sim``: the protocol in thousands of worlds that go wrong, or one of them in full."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lessor.cli import codes
from lessor.cli.screen import Screen
from lessor.core.clock import SECOND
from lessor.errors import ConfigError
from lessor.runtime.clock import SYSTEM
from lessor.sim.checks import Violation
from lessor.sim.plan import draw
from lessor.sim.seeds import run
from lessor.sim.shrink import shrink
from lessor.sim.world import World

if TYPE_CHECKING:
    import argparse

    from lessor.sim.plan import Plan
    from lessor.sim.seeds import Report

SHOWN = 10
"""Failing seeds that are named one by one."""
EVERY_NS = 10 * SECOND
"""Between two lines about the progress, where there is no terminal."""


def sim(args: argparse.Namespace) -> int:
    """Do one or the other."""
    return _run(args) if args.deed == "run" else _replay(args)


class Progress:
    """Says how far it is: on a terminal in one line, elsewhere in a line now and then."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._live = sys.stderr.isatty()
        self._due_ns = SYSTEM.now() + EVERY_NS
        self._over = "\r" if self._live else ""
        self._named = 0

    def __call__(self, report: Report) -> None:
        """Say it, if it is time to; and at once which world was broken."""
        for failure in report.failures[self._named : SHOWN]:
            sys.stderr.write(f"{self._over}seed {failure.seed}: {failure.what}\n")
        self._named = len(report.failures)
        if self._live or SYSTEM.now() >= self._due_ns:
            self._due_ns = SYSTEM.now() + EVERY_NS
            line = f"{report.tally.worlds:,} of {self._seeds:,} worlds, {len(report.failures)} broken"
            sys.stderr.write(self._over + line + ("" if self._live else "\n"))
            sys.stderr.flush()

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            sys.stderr.write("\n")


def _run(args: argparse.Namespace) -> int:
    progress = Progress(args.seeds)
    report = run(args.seeds, args.jobs, first=args.first, progress=progress)
    progress.end()
    screen = Screen()
    for line in report.tally.lines():
        screen.line(line)
    for failure in sorted(report.failures)[:SHOWN]:
        screen.line(f"seed {failure.seed}: {failure.what}")
    if report.failures:
        screen.line(f"{len(report.failures)} of {args.seeds} worlds broke an invariant: lessor sim replay SEED")
        return codes.NOTHING
    screen.line("no invariant was broken")
    return 0


def _replay(args: argparse.Namespace) -> int:
    plan = draw(args.seed)
    if args.shrink:
        plan = shrink(plan)
    world = World(plan, tracing=True)
    broken = None
    try:
        world.run()
    except Violation as violation:
        broken = violation
    screen = Screen()
    assert world.timeline is not None
    rows = (*plan.nodes, *plan.clients)
    if args.timeline:
        picture = world.timeline.svg(rows, world.now, str(broken) if broken else "")
        try:
            Path(args.timeline).write_text(picture, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{args.timeline} can't be written: {error.strerror}") from error
    else:
        for line in world.trace or ():
            screen.line(line)
    for line in (*_setting(plan), *world.timeline.text(rows, world.now)):
        screen.line(line)
    screen.line(str(broken) if broken else "no invariant was broken")
    return codes.NOTHING if broken else 0


def _setting(plan: Plan) -> list[str]:
    """Return what kind of world it is."""
    kind = f"nodes {', '.join(plan.nodes)}; clients {', '.join(plan.clients)}; TTL {plan.ttl_ns / 1e9:g} s"
    network = (
        f"loss {plan.loss:g}, copies {plan.copies:g}, straying {plan.straying:g}, delay {plan.delay_ns / 1e6:g} ms"
    )
    return [f"seed {plan.seed}: {kind}", network]
