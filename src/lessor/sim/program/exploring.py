"""Runs a user's program from one seed, or from many; makes what fails shorter, and tells its story."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lessor.core.clock import SECOND
from lessor.sim.program.faults import STORE, Faults
from lessor.sim.program.world import ProgramWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lessor.sim.checks import Violation
    from lessor.sim.program.faults import Mishap
    from lessor.sim.timeline import Timeline

TOLD = 30
"""Notes before the end that a story has."""
MARKS = {"holds": "#", "writes": "w", "stale write": "!", "pause": "=", "kill": "x", "outage": "|", "cut": "|"}
KEY = "# holds a lease  w writes  ! stale write  = stands still  x dead  | the store can't be reached"


class Run(NamedTuple):
    """What came of one seed."""

    seed: int
    """With the same program, faults and seconds, it gives the same run again."""
    violation: Violation | None
    """What must not be, and was; None: nothing."""
    mishaps: tuple[Mishap, ...]
    """What went wrong."""
    notes: tuple[str, ...]
    """What happened, a line each."""
    seconds: float
    """How long it took, in virtual time."""
    rows: tuple[str, ...]
    """The names of the processes, and the store."""
    timeline: Timeline
    """What there is to draw."""

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return self.violation is None

    def story(self) -> str:
        """Return what happened, for people: the verdict, who held what when, and the last things before the end."""
        verdict = "nothing was violated" if self.violation is None else str(self.violation)
        drawn = self.timeline.text(self.rows, int(self.seconds * SECOND), mark=_mark, key=(KEY,))
        return "\n".join([f"seed {self.seed}: {verdict}", "", *drawn, "", *self.notes[-TOLD:]])

    def svg(self) -> str:
        """Return the timeline as an SVG document."""
        verdict = "" if self.violation is None else str(self.violation)
        return self.timeline.svg(self.rows, int(self.seconds * SECOND), verdict)


class Exploration(NamedTuple):
    """What came of many seeds."""

    runs: int
    """How many there were."""
    failures: tuple[Run, ...]
    """Those with a violation."""
    seconds: float
    """How much virtual time went by in all of them."""


def run(
    program: Callable[[ProgramWorld], None],
    *,
    seed: int = 0,
    faults: Faults | None = None,
    seconds: float = 120.0,
    mishaps: tuple[Mishap, ...] | None = None,
) -> Run:
    """Run a program once, for at most so many virtual seconds. The same seed gives the same run again.

    ``program`` is called with the world, and adds processes to it. ``mishaps`` are what goes wrong, if it is not to be
    drawn. An error of the program itself is raised; what it does wrong with leases is the run's ``violation``.
    """
    world = ProgramWorld(seed, faults or Faults(), seconds)
    program(world)
    struck = world.run(mishaps)
    rows = (*world.processes, STORE)
    return Run(seed, world.violation, struck, tuple(world.notes), world.now / SECOND, rows, world.timeline)


def explore(
    program: Callable[[ProgramWorld], None],
    *,
    seeds: Iterable[int] = range(100),
    faults: Faults | None = None,
    seconds: float = 120.0,
    most: int = 10,
) -> Exploration:
    """Run a program from many seeds, until so many of them have failed. The first failure is made shorter."""
    runs, total = 0, 0.0
    failures: list[Run] = []
    for seed in seeds:
        done = run(program, seed=seed, faults=faults, seconds=seconds)
        runs += 1
        total += done.seconds
        if not done.ok:
            failures.append(done if failures else shorten(program, done, faults=faults, seconds=seconds))
            if len(failures) >= most:
                break
    return Exploration(runs, tuple(failures), total)


def check(
    program: Callable[[ProgramWorld], None],
    *,
    seeds: Iterable[int] = range(100),
    faults: Faults | None = None,
    seconds: float = 120.0,
) -> Exploration:
    """Run a program from many seeds, and raise `AssertionError` with the story of the first that fails."""
    explored = explore(program, seeds=seeds, faults=faults, seconds=seconds, most=1)
    if explored.failures:
        raise AssertionError(explored.failures[0].story())
    return explored


def shorten(program: Callable[[ProgramWorld], None], failed: Run, *, faults: Faults | None, seconds: float) -> Run:
    """Leave out what went wrong and didn't matter, for as long as the same is violated."""
    number = 0
    while number < len(failed.mishaps):
        fewer = failed.mishaps[:number] + failed.mishaps[number + 1 :]
        again = run(program, seed=failed.seed, faults=faults, seconds=seconds, mishaps=fewer)
        if again.violation is not None and again.violation.invariant == failed.violation.invariant:  # type: ignore[union-attr]
            failed = again
        else:
            number += 1
    return failed


def _mark(what: str) -> str:
    return MARKS["holds"] if what.startswith("holds") else MARKS[what]
