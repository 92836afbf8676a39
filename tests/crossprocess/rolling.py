"""Restarts three workers under load, one after the other, and tells what that did to the work."""

from __future__ import annotations

import collections
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lessor import Client
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import until
from tests.crossprocess.restarted import JOB
from tests.crossprocess.stalls import Stalls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lessor import Leader

TTL = 2.0
"""Seconds, where it is waited for."""
WORKERS = ("worker 1", "worker 2", "worker 3")


class Hold(NamedTuple):
    """A time of holding the lease, by the host's clock."""

    by: str
    start: int
    end: int


class Report(NamedTuple):
    """What happened."""

    begun: int
    holds: list[Hold]
    restarts: list[tuple[str, int]]
    done: list[tuple[int, int, str]]
    """When, which unit, and by whom."""
    lost: list[int]
    twice: list[int]
    stalls: Stalls

    @property
    def gaps(self) -> list[float]:
        """Seconds without a holder, from one to the next."""
        return [(later.start - earlier.end) / 1e9 for earlier, later in itertools.pairwise(self.holds)]

    @property
    def own_gaps(self) -> list[float]:
        """The same without the time for which the machine gave us no processor."""
        pairs = itertools.pairwise(self.holds)
        held_up = [self.stalls.between(earlier.end, later.start) for earlier, later in pairs]
        return [gap - stall for gap, stall in zip(self.gaps, held_up, strict=True)]

    def numbers(self) -> dict[str, Any]:
        """Return what the table of restarts tells."""
        gaps, own = (sorted(1000 * gap for gap in some) for some in (self.gaps, self.own_gaps))
        most = min(len(gaps) - 1, int(0.99 * len(gaps)))
        return {
            "restarts": len(self.restarts),
            "done": len(self.done),
            "lost": len(self.lost),
            "twice": len(self.twice),
            "gap_p50_ms": gaps[len(gaps) // 2],
            "gap_p99_ms": gaps[most],
            "gap_longest_ms": gaps[-1],
            "own_p99_ms": own[most],
        }


def roll(url: str, folder: Path, *, drain: bool, cycles: int, ttl: float, pause: float = 0.2) -> Report:
    """Restart each worker so many times."""
    begun = SYSTEM.host_ns()
    running: dict[str, subprocess.Popen[bytes]] = {}
    restarts: list[tuple[str, int]] = []

    def start(name: str) -> None:
        words = [url, str(folder), name, str(begun), str(ttl), "drain" if drain else "plain"]
        command = [sys.executable, "-m", "tests.crossprocess.restarted", *words]
        running[name] = subprocess.Popen(command, cwd=Path(__file__).parents[2])

    def stop(name: str) -> None:
        restarts.append((name, SYSTEM.host_ns()))
        process = running.pop(name)
        process.terminate()
        code = process.wait(60)
        assert not drain or code == 0, f"{name} ended with {code}"

    with Client(url) as client, Stalls() as stalls:

        def there(names: set[str], token: int) -> bool:
            """Whether one of them works, with a newer token, and the others wait."""
            leader, waiting = client.leader(JOB), {contender.holder for contender in client.contenders(JOB)}
            if leader is None or leader.token <= token or leader.holder in waiting:
                return False
            return {leader.holder, *waiting} == names

        def wait_for(names: Iterable[str], token: int = 0) -> Leader:
            until(lambda: there({*names}, token), "one that works, and others that wait", 60)
            time.sleep(pause)
            leader = client.leader(JOB)
            assert leader is not None
            return leader

        try:
            for name in WORKERS:  # in this order, so that each restart is one of who works
                start(name)
                leader = wait_for(running)
            for name in WORKERS * cycles:
                stop(name)
                start(name)
                leader = wait_for(WORKERS, leader.token if leader.holder == name else 0)
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait(60)
    return _judge(folder, begun, restarts, stalls)


def _judge(folder: Path, begun: int, restarts: list[tuple[str, int]], stalls: Stalls) -> Report:
    notes: list[dict[str, Any]] = [
        json.loads(line)
        for path in folder.glob("*.log")
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]
    notes.sort(key=lambda note: int(note["at"]))
    done = [(note["at"], note["unit"], note["by"]) for note in notes if note["what"] == "did"]
    counts = collections.Counter(unit for _, unit, _ in done)
    return Report(
        begun=begun,
        holds=_holds(notes, restarts),
        restarts=restarts,
        done=done,
        lost=[unit for unit in range(max(counts)) if unit not in counts],
        twice=[unit for unit, count in counts.items() if count > 1],
        stalls=stalls,
    )


def _holds(notes: list[dict[str, Any]], restarts: list[tuple[str, int]]) -> list[Hold]:
    """Return who held it when: until it said that it gives it away or, killed, until it was killed."""
    holds = []
    last = notes[-1]["at"]
    for note in notes:
        if note["what"] == "got":
            gave = [n["at"] for n in notes if n["what"] == "gives" and n["by"] == note["by"] and n["at"] > note["at"]]
            killed = [at for name, at in restarts if name == note["by"] and at > note["at"]]
            holds.append(Hold(note["by"], note["at"], min([*(gave or killed)[:1], last])))
    return holds
