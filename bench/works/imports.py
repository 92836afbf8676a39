"""How long a program waits, and how much memory it pays, until it could lock: whole interpreters, minus a bare one."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
from time import perf_counter_ns
from typing import TYPE_CHECKING

from bench.results import Absent, Entry, Found, Measure
from bench.worker import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.contestant import Contestant
    from bench.show import Show

OTHERS = {"import lessor": "import lessor", "import lessor.client.aio": "import lessor.client.aio"}
FLOORS = {"import asyncio": "import asyncio"}
TELL = "; print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"


class Imports:
    name = "imports"
    title = "import, until it could lock"
    measures = (
        Measure("ms", "time", "ms", "ms", digits=1),
        Measure("memory", "memory", "MB", "memory", digits=1),
    )

    def __init__(self, *, quick: bool) -> None:
        self.rounds = 2 if quick else 7

    def run(self, contestants: Sequence[type[Contestant]], show: Show) -> Found:
        codes = {**OTHERS, **FLOORS}
        entries = {name: Entry(name, "ours", "") for name in OTHERS}
        entries |= {name: Entry(name, "floor", "") for name in FLOORS}
        for kind in contestants:
            if kind.ready and kind.takes_part(self.name):
                name = f"{kind.name}, {kind.store}"
                codes[name], entries[name] = kind.ready, Entry(name, kind.kind, kind.store)
        absent = []
        with _interpreters() as start:
            for name in list(codes):
                try:
                    start(codes[name])  # compiles its modules, as an installation would
                except Failed as failure:
                    absent.append(Absent(name, str(failure)))
                    del codes[name], entries[name]
            for number in range(self.rounds):
                bare_ms, bare_mb = start("pass")
                for name in random.sample(sorted(codes), len(codes)):
                    show.step(number + 1, self.rounds, name)
                    ms, mb = start(codes[name])
                    entries[name].add({"ms": [ms - bare_ms], "memory": [mb - bare_mb]})
        return Found(self.name, self.title, list(self.measures), list(entries.values()), absent)


@contextlib.contextmanager
def _interpreters() -> Iterator[_Start]:
    with tempfile.TemporaryDirectory(prefix="lessor-bench-") as folder:
        yield _Start(folder)


class _Start:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environment = {**environment, "PYTHONPYCACHEPREFIX": os.path.join(folder, "compiled")}

    def __call__(self, code: str) -> tuple[float, float]:
        """Return the milliseconds from start to end, and the megabytes at most."""
        command = [sys.executable, "-W", "ignore", "-c", code + TELL]
        begin = perf_counter_ns()
        done = subprocess.run(
            command, env=self._environment, cwd=self._folder, capture_output=True, text=True, check=False
        )
        ms = (perf_counter_ns() - begin) / 1e6
        if done.returncode != 0:
            raise Failed(done.stderr.strip().splitlines()[-1][:160])
        return ms, int(done.stdout.split()[-1]) / 1e3
