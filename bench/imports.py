"""How long a program waits for its imports: whole interpreters, minus a bare one."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from time import perf_counter_ns

from bench.place import folder
from bench.progress import rounds
from bench.result import Result

WORKS = {
    "bare": "pass",
    "leasehold": "import leasehold",
    "aio": "import leasehold.client.aio",
    "asyncio": "import asyncio",
    "filelock": "import filelock",
}


def run(*, quick: bool) -> Result:
    count = 5 if quick else 30
    taken: dict[str, list[float]] = {name: [] for name in WORKS}
    with folder() as compiled:
        for code in WORKS.values():
            _start(code, compiled)
        for _ in rounds("imports", count):
            for name, code in WORKS.items():
                taken[name].append(_start(code, compiled))
    bare = statistics.median(taken["bare"])
    net = {name: [ms - bare for ms in values] for name, values in taken.items()}
    result = Result("imports, in fresh interpreters")
    median = {name: statistics.median(values) for name, values in net.items()}
    result.ratio("import_vs_asyncio", "leasehold / asyncio alone", [median["leasehold"] / median["asyncio"]])
    result.ratio("import_vs_filelock", "leasehold / filelock", [median["leasehold"] / median["filelock"]])
    result.absolute("import_ms", "import leasehold", net["leasehold"], "ms", "under 40")
    result.absolute("import_aio_ms", "import leasehold.client.aio", net["aio"], "ms")
    result.absolute("import_asyncio_ms", "import asyncio", net["asyncio"], "ms")
    result.absolute("import_filelock_ms", "import filelock", net["filelock"], "ms")
    result.absolute("interpreter_ms", "the bare interpreter, taken off from each", taken["bare"], "ms")
    return result


def _start(code: str, compiled: str) -> float:
    """Return the milliseconds from start to end. Like an installed program, it finds its modules compiled."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = compiled
    start = perf_counter_ns()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return (perf_counter_ns() - start) / 1e6
