"""Repeats ``make test`` beside a busy loop on each processor: ``python -m tests.soak ROUNDS``, or ``make soak``.

It shows that no result depends on the machine's load. Each round that ended is a line in ``.soak/rounds.jsonl``; after
a stop, the next start goes on with the rounds that are missing. Rounds of another commit don't count. The output of a
round that failed is kept beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from tests.run import INTERRUPTED, TEST, minutes, run

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(".soak")
ROUNDS = FOLDER / "rounds.jsonl"
# It ends by itself when its parent does, however that ends.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6):\n        pass\n"


def soak(rounds: int, more: Sequence[str]) -> bool:
    """Run the rounds that are missing, print all, and return whether all passed."""
    FOLDER.mkdir(exist_ok=True)
    commit = _commit()
    done = _rounds(commit)
    for number in range(len(done) + 1, rounds + 1):
        print(f"round {number} of {rounds} ...", flush=True)  # noqa: T201
        one = _round(number, more)
        if one is None:
            print("stopped; the next start goes on here")  # noqa: T201
            break
        one["commit"] = commit
        with ROUNDS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")
        done.append(one)
        print(_line(one), flush=True)  # noqa: T201
    print(f"\n{'round':>5} {'time':>6} {'passed':>7} {'failed':>7}")  # noqa: T201
    for one in done:
        print(_line(one))  # noqa: T201
        for name in one["failures"]:
            print(f"      {name}")  # noqa: T201
    return len(done) >= rounds and not any(one["status"] for one in done)


def _round(number: int, more: Sequence[str]) -> dict[str, Any] | None:
    """Run the tests once; return how it went, or nothing if it was stopped."""
    log = FOLDER / f"round-{number}.log"
    reports = str(FOLDER / "{phase}.xml")
    start = time.time()
    with log.open("wb") as output:
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
        try:
            rows = run(TEST, "-q", f"--junitxml={reports}", *more, output=output)
        finally:
            for loop in busy:
                loop.kill()
                loop.wait()
    if any(row.status in INTERRUPTED for row in rows):
        return None
    results = [
        ET.parse(reports.format(phase=row.name)) for row in rows if Path(reports.format(phase=row.name)).exists()
    ]
    failures = [
        f"{case.get('classname')}::{case.get('name')}"
        for result in results
        for case in result.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    status = next((row.status for row in rows if row.status), 0)
    if status == 0:
        log.unlink()
    return {
        "round": number,
        "started": time.strftime("%Y-%m-%d %H:%M", time.localtime(start)),
        "seconds": round(sum(row.seconds for row in rows)),
        "passed": sum(len([*result.iter("testcase")]) for result in results) - len(failures),
        "failures": failures,
        "status": status,
    }


def _rounds(commit: str) -> list[dict[str, Any]]:
    if not ROUNDS.exists():
        return []
    rounds = map(json.loads, ROUNDS.read_text(encoding="utf-8").splitlines())
    return [one for one in rounds if one["commit"] == commit]


def _commit() -> str:
    """Return which code it is: the commit, and a mark if there are changes beyond it."""
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    return git.stdout.strip()


def _line(one: dict[str, Any]) -> str:
    verdict = "" if one["status"] == 0 else f"  status {one['status']}, see {FOLDER}/round-{one['round']}.log"
    return f"{one['round']:>5} {minutes(one['seconds']):>6} {one['passed']:>7} {len(one['failures']):>7}{verdict}"


if __name__ == "__main__":
    sys.exit(not soak(int(sys.argv[1]), sys.argv[2:]))
