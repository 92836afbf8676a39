"""The real protocol, in some worlds; `make sim` goes through many more."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from lessor.sim.clock import SimClock
from lessor.sim.seeds import run, run_seeds
from lessor.sim.world import simulate

TRACE = """
import hashlib, sys
from lessor.sim.world import simulate
text = "\\n".join(line for seed in (3, 4) for line in simulate(seed, tracing=True).trace or ())
sys.stdout.write(hashlib.sha256(text.encode()).hexdigest())
"""


def test_no_invariant_is_broken_and_much_has_happened() -> None:
    report = run_seeds(0, 100)
    assert report.failures == ()
    tally = report.tally
    assert tally.worlds == 100
    for number in (tally.acquisitions, tally.renewals, tally.crashes, tally.partitions, tally.drifted, tally.carried):
        assert number > 30
    for number in (tally.lost_disks, tally.shutdowns, tally.jumps, tally.stops, tally.deaths, tally.fenced):
        assert number > 2


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    here = "\n".join(line for seed in (3, 4) for line in simulate(seed, tracing=True).trace or ())
    assert len(here) > 10_000
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        there = subprocess.run(
            [sys.executable, "-c", TRACE], env=environment, capture_output=True, check=True, text=True
        )
        assert there.stdout == hashlib.sha256(here.encode()).hexdigest()


def test_several_processes_come_to_the_same_sum() -> None:
    told: list[int] = []
    together = run(12, 2, first=7, progress=lambda report: told.append(report.tally.worlds))
    assert together == run(12, 1, first=7, progress=lambda _: None)
    assert told[-1] == 12


def test_a_clock_shows_a_time_when_it_says_so() -> None:
    for rate in (0.995, 1.0, 1.005, 1.0031):
        clock = SimClock(rate, 123)
        for shown in (123, 124, 10**9, 10**12 + 7):
            true = clock.when(shown)
            assert clock.at(true) >= shown
            assert clock.at(true - 1) <= shown
        clock.jump(10**9, -500)
        assert clock.at(10**9) == SimClock(rate, 123).at(10**9) - 500
