"""Goes through many seeds, in several processes, and says what happened."""

from __future__ import annotations

import multiprocessing
import signal
from typing import TYPE_CHECKING, NamedTuple

from leasehold.sim.checks import Violation
from leasehold.sim.plan import draw
from leasehold.sim.tally import Tally
from leasehold.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK = 10
"""Seeds that a process takes at a time."""


class Failure(NamedTuple):
    """A seed whose world broke an invariant."""

    seed: int
    invariant: str
    what: str


class Report(NamedTuple):
    """What came of some seeds."""

    tally: Tally
    failures: tuple[Failure, ...]


def run_seeds(first: int, last: int) -> Report:
    """Live through the worlds of these seeds, the last one not included."""
    tally = Tally()
    failures = []
    for seed in range(first, last):
        world = World(draw(seed))
        try:
            world.run()
        except Violation as violation:
            failures.append(Failure(seed, violation.invariant, str(violation)))
        tally += world.tally
    return Report(tally, tuple(failures))


def run(seeds: int, jobs: int, *, first: int = 0, progress: Callable[[Report], None]) -> Report:
    """Live through as many worlds; after each chunk, ``progress`` hears the sum so far."""
    chunks = [(start, min(start + CHUNK, first + seeds)) for start in range(first, first + seeds, CHUNK)]
    total = Report(Tally(), ())
    for report in _reports(chunks, jobs):
        total = Report(total.tally + report.tally, total.failures + report.failures)
        progress(total)
    return total


def _reports(chunks: list[tuple[int, int]], jobs: int) -> Iterator[Report]:
    if jobs == 1:
        yield from (run_seeds(*chunk) for chunk in chunks)
        return
    before = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # as they do from here on: Ctrl-C is for us, who then end them
    try:
        # Spawned, since a fork copies whatever the caller's threads hold.
        pool = multiprocessing.get_context("spawn").Pool(jobs)
    finally:
        signal.signal(signal.SIGINT, before)
    with pool:
        yield from pool.imap_unordered(_run_chunk, chunks)


def _run_chunk(chunk: tuple[int, int]) -> Report:
    return run_seeds(*chunk)
