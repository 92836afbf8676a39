"""Workers that count in a file under a lease, while somebody kills them: ``python -m tests.crossprocess.storm``.

The file takes a write only with a token at least as new as the newest it has seen. Each worker writes down, in a log
of its own, when it got and gave back the lease and what it counted, so that the test can tell afterwards.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from lessor import Client, Fenced
from lessor.runtime.clock import SYSTEM

RESOURCE = "storm/counter"


def count(folder: Path, worker: str, token: int) -> int:
    """Add one for this worker, unless a newer holder has been here. Whole or not at all, also under kill -9."""
    path = folder / "counter.json"
    counter = json.loads(path.read_text())
    if token < counter["token"]:
        raise Fenced(RESOURCE, token=token, newest=counter["token"])
    counter["counts"][worker] = counter["counts"].get(worker, 0) + 1
    counter["token"] = token
    scratch = folder / f"counter.{os.getpid()}"
    scratch.write_text(json.dumps(counter))
    os.replace(scratch, path)
    return int(counter["counts"][worker])


def work(url: str, folder: Path, worker: str, rounds: int, ttl: float) -> None:
    """Count that many times."""
    with Client(url, holder=worker) as client, (folder / f"{worker}.log").open("a", buffering=1) as log:

        def note(what: str, **more: Any) -> None:
            log.write(json.dumps({"what": what, "at": SYSTEM.host_ns(), "worker": worker, **more}) + "\n")

        for _ in range(rounds):
            note("wants")
            with client.acquire(RESOURCE, ttl=ttl) as lease:
                note("got", token=lease.token)
                reached = count(folder, worker, lease.token)
                note("counted", reached=reached, token=lease.token)
                lease.check()
                note("gives")


class Report(NamedTuple):
    """What happened."""

    rounds: int
    kills: int
    lost_updates: int
    tokens: list[int]
    longest_gap: float
    longest_gap_after_kill: float


def storm(folder: Path, *, workers: int, rounds: int, kills: int, ttl: float, seed: int) -> Report:
    """Let workers count, kill one of them at random now and then and start it again, until all have done their rounds."""
    url = f"sqlite:///{folder}/leases.db"
    (folder / "counter.json").write_text(json.dumps({"counts": {}, "token": 0}))
    dice = random.Random(seed)
    names = [f"worker-{number}" for number in range(workers)]
    running: dict[str, subprocess.Popen[bytes]] = {}
    killed_at: list[tuple[int, str]] = []

    def start(name: str) -> None:
        left = rounds - _done(folder, name)
        command = [sys.executable, "-m", "tests.crossprocess.storm", url, str(folder), name, str(left), str(ttl)]
        running[name] = subprocess.Popen(command, cwd=Path(__file__).parents[2])

    for name in names:
        start(name)
    try:
        while running:
            nap = dice.uniform(0.15, 0.45) if len(killed_at) < kills else 1.0
            with contextlib.suppress(subprocess.TimeoutExpired):
                next(iter(running.values())).wait(nap)
            for name, process in list(running.items()):
                if process.poll() is not None:
                    assert process.returncode == 0, f"{name} ended with {process.returncode}"
                    del running[name]
            if running and len(killed_at) < kills:
                name = dice.choice(sorted(running))
                if len(killed_at) % 2:
                    name = _catch_holder(folder, running) or name
                process = running.pop(name)
                process.kill()
                killed_at.append((SYSTEM.host_ns(), name))
                process.wait()
                start(name)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return _judge(folder, names, killed_at)


def _catch_holder(folder: Path, running: dict[str, subprocess.Popen[bytes]]) -> str | None:
    """Stop one worker after the other until one is caught while it holds the lease; it stays stopped."""
    for _ in range(20):
        for name, process in running.items():
            process.send_signal(signal.SIGSTOP)
            last = _log(folder, name)[-1:]
            if last and last[0]["what"] in {"got", "counted"}:
                return name
            process.send_signal(signal.SIGCONT)
    return None


def _log(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / f"{name}.log"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _done(folder: Path, name: str) -> int:
    return sum(entry["what"] == "counted" for entry in _log(folder, name))


def _judge(folder: Path, names: list[str], killed_at: list[tuple[int, str]]) -> Report:
    counts = json.loads((folder / "counter.json").read_text())["counts"]
    logs = {name: _log(folder, name) for name in names}
    kills = {name: sum(victim == name for _, victim in killed_at) for name in names}
    lost = 0
    for name in names:
        counted = [entry["reached"] for entry in logs[name] if entry["what"] == "counted"]
        # A worker killed between counting and writing that down has counted once more than it says, once a kill.
        lost += max(0, len(counted) - counts[name]) + max(0, counts[name] - len(counted) - kills[name])
        lost += sum(later <= earlier for earlier, later in itertools.pairwise(counted))
    events = sorted((entry for log in logs.values() for entry in log), key=lambda entry: entry["at"])
    grants = [entry for entry in events if entry["what"] == "got"]
    ends = [entry["at"] for entry in events if entry["what"] == "gives"] + [at for at, _ in killed_at]
    gaps = []
    for grant in grants[1:]:
        freed = max((at for at in ends if at <= grant["at"]), default=grant["at"])
        gaps.append((grant["at"] - freed) / 1e9)
    waits = _waits_after_kills(events, killed_at)
    tokens = [entry["token"] for entry in grants]
    return Report(len(grants), len(killed_at), lost, tokens, max(gaps), max(waits, default=0.0))


def _waits_after_kills(events: list[dict[str, Any]], killed_at: list[tuple[int, str]]) -> list[float]:
    """Return, for each kill of a holder, how long it took until somebody held it again."""
    waits = []
    for at, victim in killed_at:
        before = [e for e in events if e["worker"] == victim and e["at"] <= at]
        held = before and before[-1]["what"] in {"got", "counted"}
        after = [e["at"] for e in events if e["what"] == "got" and e["at"] > at]
        if held and after:
            waits.append((after[0] - at) / 1e9)
    return waits


if __name__ == "__main__":
    _, its_url, its_folder, its_name, its_rounds, its_ttl = sys.argv
    work(its_url, Path(its_folder), its_name, int(its_rounds), float(its_ttl))
