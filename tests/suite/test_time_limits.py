"""A test that can't finish fails with the stacks of its process, and the run ends and leaves nothing running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANGING = Path(__file__).parent / "hanging.py"
PATIENCE = 100
"""Seconds in which a run of a test or two has ended, however busy the machine is."""


def run(test: str, *arguments: str, limit: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """Run one of the tests that can't finish, and read its output to the end, as a pipe would."""
    command = [sys.executable, "-m", "tests.supervisor", f"--limit={limit}"]
    command += [sys.executable, "-m", "pytest", "-p", "tests.timelimit", "-p", "no:cacheprovider", "--noconftest"]
    command += ["--time-limit=0.2", "-W", "ignore", *arguments, f"{HANGING}::{test}"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def distributed(test: str) -> str:
    """Run it in a worker of xdist; return what was printed."""
    done = run(test, "-p", "xdist", "-n", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"FAILED tests/suite/hanging.py::{test}" in done.stdout
    assert "1 failed" in done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "test",
    [
        "test_loops",
        "test_is_blocked_in_c_with_the_gil_held",
        "test_hangs_in_its_teardown",
        "test_catches_whatever_is_raised",
    ],
)
def test_what_hangs_fails_with_the_stacks_and_ends_the_run(test: str) -> None:
    told = distributed(test)
    assert "Timeout (0:00:00.200000)!" in told
    where = "in endless" if "teardown" in test else f"in {test}"
    assert where in told
    if test == "test_loops":
        assert told.count("Thread 0x") >= 2
        assert "in wait" in told


@pytest.mark.parametrize(
    ("test", "status"),
    [
        ("test_ends_its_process", 3),
        ("test_is_killed", -9),
        ("test_ends_its_process_and_leaves_a_child_with_all_its_pipes", 3),
    ],
)
def test_a_worker_that_dies_fails_its_test_and_ends_the_run(test: str, status: int) -> None:
    assert f"it left no stacks, and the status {status}" in distributed(test)


def test_without_workers_it_is_the_same() -> None:
    done = run("test_loops")
    assert done.returncode == 1
    assert "Timeout (0:00:00.200000)!" in done.stderr
    assert "in test_loops" in done.stderr


def test_a_child_that_a_test_left_behind_does_not_keep_the_reader_of_the_output_waiting() -> None:
    done = run("test_leaves_a_child_that_keeps_the_output_open", "--time-limit=60")
    assert done.returncode == 0
    assert "1 passed" in done.stdout
    assert "left behind, and ended: " in done.stderr


def test_an_interpreter_that_does_not_end_is_ended() -> None:
    done = run("test_leaves_a_thread_that_the_interpreter_waits_for")
    assert done.returncode == 1
    assert "1 passed" in done.stdout
    assert "Timeout (" in done.stderr


def test_a_run_that_takes_too_long_is_ended_with_its_stacks() -> None:
    done = run("test_loops", "--time-limit=3600", limit=15)
    assert done.returncode == 124
    assert "not finished within 15 s" in done.stderr
    assert "Fatal Python error: Aborted" in done.stderr
