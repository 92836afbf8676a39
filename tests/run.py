"""Runs the tests in phases, one after the other, and prints how long each took: ``python -m tests.run test``.

``test`` is what every change has to pass; ``all`` is what a release has to pass: every case on every store and on
every deployment of it, and the long proofs in full. Each phase runs under `tests.supervisor`, so that the run ends
whatever happens, and leaves no process behind.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

from tests.supervisor import supervise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

MINUTE = 60.0
INTERRUPTED = {2, 128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGHUP}
"""What pytest and the supervisor return after a request to end."""
WORKERS = ("-n", str(4 * (os.cpu_count() or 1)), "--dist", "loadscope")
"""Most tests wait most of the time. `tests.scheduling` says which of them go to the same worker."""


class Phase(NamedTuple):
    """One run of pytest."""

    name: str
    arguments: tuple[str, ...]
    limit: float
    """Seconds."""
    environment: Mapping[str, str] = {}


HERE = "--ignore=tests/variants"
TEST = (Phase("tests", (*WORKERS, "-m", "not (long or chaos)", HERE), 60 * MINUTE),)
VARIANTS = (Phase("variants", (*WORKERS, "tests/variants"), 120 * MINUTE),)
PROOF = (Phase("proof", (*WORKERS, "-m", "heavy or long", HERE), 180 * MINUTE, {"LESSOR_SCALE": "1"}),)
RUNS: dict[str, Sequence[Phase]] = {
    "test": TEST,
    "variants": VARIANTS,
    "proof": PROOF,
    "all": (*TEST, *VARIANTS, *PROOF),
}


class Row(NamedTuple):
    """How a phase went."""

    name: str
    seconds: float
    status: int


def run(phases: Sequence[Phase], *more: str, output: IO[bytes] | None = None) -> list[Row]:
    """Run the phases, up to one that is interrupted."""
    rows = []
    for phase in phases:
        os.environ.update(phase.environment)
        command = [sys.executable, "-m", "pytest", *phase.arguments, *(one.format(phase=phase.name) for one in more)]
        ended = supervise(command, limit=phase.limit, output=output)
        for stray in ended.strays:
            print(f"left behind, and ended: {stray}")  # noqa: T201
        rows.append(Row(phase.name, ended.seconds, ended.status))
        if rows[-1].status in INTERRUPTED:
            break
    return rows


def minutes(seconds: float) -> str:
    """Return them as people read them."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def main() -> bool:
    """Run what the command line names, and return whether it passed."""
    phases = RUNS[sys.argv[1]]
    rows = run(phases, *sys.argv[2:])
    print(f"\n{'phase':<10} {'time':>8}")  # noqa: T201
    for row in rows:
        verdict = "passed" if row.status == 0 else f"failed: status {row.status}"
        print(f"{row.name:<10} {minutes(row.seconds):>8}  {verdict}")  # noqa: T201
    print(f"{'all':<10} {minutes(sum(row.seconds for row in rows)):>8}")  # noqa: T201
    return len(rows) == len(phases) and not any(row.status for row in rows)


if __name__ == "__main__":
    sys.exit(not main())
