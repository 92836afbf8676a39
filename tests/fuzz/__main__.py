"""Look for bytes that a node can't cope with, led by what they reach.

``make fuzz`` looks for two minutes. What is found is left in the working folder, as ``fuzz-found-*``, and
``python -m tests.fuzz FILE`` goes through it again.
"""

from __future__ import annotations

import os
import sys
import tempfile

import atheris

with atheris.instrument_imports(include=["lessor"]):
    from tests.fuzz.harness import one
from tests.fuzz.seeds import seeds


def main(what: str) -> None:
    if os.path.exists(what):
        with open(what, "rb") as file:
            one(file.read())
        return
    with tempfile.TemporaryDirectory(prefix="lessor-fuzz-") as folder:
        for number, seed in enumerate(seeds()):
            with open(os.path.join(folder, f"{number:03}"), "wb") as file:
                file.write(seed)
        limits = [f"-max_total_time={int(what)}", "-max_len=4096", "-timeout=20", "-rss_limit_mb=1024"]
        atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", "-artifact_prefix=fuzz-found-", folder], one)
        atheris.Fuzz()


main(sys.argv[1] if len(sys.argv) > 1 else "120")
