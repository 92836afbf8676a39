"""``python -m bench.install``: installs the peers; one that can't be installed here doesn't keep the others away."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def main() -> None:
    if _pip("--group", f"{PROJECT}:bench"):
        return
    for package in tomllib.loads(PROJECT.read_text(encoding="utf-8"))["dependency-groups"]["bench"]:
        if not _pip(package):
            sys.stderr.write(f"{package} can't be installed here; the benchmark goes without it\n")


def _pip(*words: str) -> bool:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    main()
