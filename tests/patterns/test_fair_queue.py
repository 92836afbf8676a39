"""50 waiters in 5 processes are served in order of arrival, each with one round trip; the dead hold nobody up."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from lessor import Client
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import until
from tests.measured import kind_of, note
from tests.patterns.counted import requests
from tests.patterns.processes import end, hear, start, tell, wait_in_line

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

WAITERS = 50
PROCESSES = 5
DEAD = (12, 31)
"""After whom the two queue up that are killed."""
TTL = 5.0
AT_THAT_VERY_TIME = 2
"""Waiters show up every two seconds, so somebody may do so just before it is called."""


def calls_of(path: Path) -> list[Any]:
    """Return the calls that the processes have sent: when, and what they ask for."""
    return [json.loads(line) for line in path.with_name(path.name + ".asked").read_text().splitlines()]


def wakeups(calls: list[Any], called: int) -> list[int]:
    """Return how often each one asked from its predecessor's release on, in the order of their turns."""
    asked: dict[str, list[int]] = {}
    ends: list[tuple[int, str]] = []
    for at, about in calls:
        for kind, lease_id in about:
            if kind == "Acquire":
                asked.setdefault(lease_id, []).append(at)
            else:
                ends.append((at, lease_id))
    counts = []
    for end_of_turn, lease_id in sorted(ends):
        counts.append(sum(at >= called for at in asked[lease_id]))
        called = end_of_turn
    return counts


@pytest.mark.parametrize("url", ["sqlite", "redis", "postgresql"], indirect=True)
def test_a_long_queue(url: str, tmp_path: Path) -> None:
    path = tmp_path / "turns"
    at_first = requests(url)
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
            before, released = requests(url), SYSTEM.host_ns()
            held.release()
            for process in living:
                assert process.stdin is not None
                process.stdin.close()
            for process in living:
                hear(process)
            after = requests(url)
            until(lambda: not client.contenders("job"), "the end of the places of the dead")
    finally:
        for process in living + dead:
            end(process)

    turns = [line.split() for line in path.read_text().splitlines()]
    assert [int(number) for number, _ in turns] == list(range(WAITERS))
    gaps = sorted((int(later[1]) - int(earlier[1])) / 1e6 for earlier, later in pairwise(turns))
    assert gaps[-1] < 1000 * TTL
    calls = calls_of(path)
    asked = wakeups(calls, released)
    assert len(asked) == WAITERS
    woken = [count for number, count in enumerate(asked) if number - 1 not in DEAD]
    assert min(woken) == 1
    assert sum(woken) <= len(woken) + AT_THAT_VERY_TIME, "they asked more than once after they were called"

    seen = {
        "waiters": WAITERS,
        "in_order": True,
        "gap_p50_ms": gaps[len(gaps) // 2],
        "gap_longest_ms": gaps[-1],
        "woken": len(woken),
        "turns": sum(woken),
    }
    if url.startswith("redis"):
        assert before is not None
        assert after is not None
        seen |= {"sent": 1 + sum(at >= released for at, _ in calls), "counted": after - before}
        assert seen["counted"] == seen["sent"]
    elif url.startswith("postgresql"):
        assert at_first is not None
        seen |= {"sent": 2 + len(calls), "counted": (requests(url) or 0) - at_first}
        assert 0 <= seen["sent"] - seen["counted"] <= len(DEAD), "what the dead were about to send isn't counted"
    else:
        seen["sent"] = 2 + len(calls)
    note("queue", kind_of(url), **seen)
