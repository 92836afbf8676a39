"""50 waiters in 5 processes are served in order of arrival, each with one round trip; the dead hold nobody up."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from leasehold import Client
from leasehold.core.claim import REFRESH_NS
from leasehold.testing.conformance.base import until
from tests.patterns.processes import end, hear, report, start, tell, wait_in_line

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

WAITERS = 50
PROCESSES = 5
DEAD = (12, 31)
"""After whom the two queue up that are killed."""
TTL = 5.0
SHOWING_UP = 0.9 * REFRESH_NS / 1e9
"""Seconds after which a waiter that wasn't called asks again, at the least."""


@pytest.mark.parametrize("url", ["sqlite", "redis", "postgresql"], indirect=True)
def test_a_long_queue(url: str, tmp_path: Path) -> None:
    path = tmp_path / "turns"
    living = [start(wait_in_line.__name__, url, TTL, path) for _ in range(PROCESSES)]
    dead = [start(wait_in_line.__name__, url, TTL, path) for _ in DEAD]
    try:
        with Client(url) as client:
            held = client.acquire("job", ttl=60)
            length = 0
            doomed = iter(dead)
            for number in range(WAITERS):
                ways = [living[number % PROCESSES]] + ([next(doomed)] if number in DEAD else [])
                for process in ways:
                    tell(process, number if process in living else f"dead-{number}")
                    hear(process)
                    length += 1
                    until(lambda n=length: len(client.contenders("job")) == n, "the waiter")  # type: ignore[misc]
            for process in dead:
                process.kill()
                process.wait()
            held.release()
            for process in living:
                assert process.stdin is not None
                process.stdin.close()
            asked = [times for process in living for times in hear(process)["asked"]]
            until(lambda: not client.contenders("job"), "the end of the places of the dead")
    finally:
        for process in living + dead:
            end(process)
    turns = [line.split() for line in path.read_text().splitlines()]
    assert [int(number) for number, _ in turns] == list(range(WAITERS))
    gaps = sorted((int(later[1]) - int(earlier[1])) / 1e9 for earlier, later in pairwise(turns))
    assert gaps[-1] < TTL
    wakeups = [sum(later - earlier < SHOWING_UP for earlier, later in pairwise(times)) for times in asked]
    assert len(wakeups) == WAITERS
    assert max(wakeups) <= 1, "somebody asked more than once after it was called"
    report(url, f"{WAITERS} turns, median gap {gaps[len(gaps) // 2] * 1e3:.1f} ms, longest {gaps[-1] * 1e3:.0f} ms; "
                f"{sum(wakeups)} requests after a call")  # fmt: skip
