from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.cli.processes import BOUND, Cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path)
    yield cli
    for process, timer in cli.started:
        timer.cancel()
        timer.join()
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate(timeout=BOUND)
