"""Goes through many seeds, in several processes, and says what happened."""

from __future__ import annotations

import signal
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

from lessor.sim.checks import Violation
from lessor.sim.plan import draw
from lessor.sim.tally import Tally
from lessor.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK = 10
"""Seeds that a process takes at a time."""
LOOK = 0.1
"""Seconds between two looks for a Ctrl-C."""


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
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed must be named
            failures.append(Failure(seed, "", f"{type(error).__name__}: {error}"))
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
    waiting = iter(chunks)
    # Spawned, since a fork copies whatever the caller's threads hold. One that dies ends it all, and says so.
    with _uninterrupted() as interrupted, ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running = {pool.submit(run_seeds, *chunk) for chunk in islice(waiting, 2 * jobs)}
        while running and not interrupted():
            done, running = wait(running, LOOK, return_when=FIRST_COMPLETED)
            running |= {pool.submit(run_seeds, *chunk) for chunk in islice(waiting, len(done))}
            yield from [one.result() for one in done]
        pool.shutdown(cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[Callable[[], bool]]:
    """Hold a Ctrl-C back until the end of the block; yield a function that tells whether there was one.

    The pool can't be interrupted anywhere without harm. Its processes inherit the mask, so that a Ctrl-C, which the
    terminal sends to all of them, is for this one only. Ignoring the signal meanwhile would lose it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield lambda: signal.SIGINT in signal.sigpending()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
