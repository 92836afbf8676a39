"""What a test needs and a machine may not have."""

from __future__ import annotations

import os
import subprocess
from typing import NoReturn

import pytest


def not_here(why: str) -> NoReturn:
    """Skip the test, and say why; in the run that must not skip anything, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def run_as_root(*command: str) -> None:
    """Run it, if that is permitted here."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        not_here(f"{' '.join(command)}: {done.stderr.strip()}")
