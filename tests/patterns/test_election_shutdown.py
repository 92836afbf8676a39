from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.testing.conformance.base import Thread, until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/leases.db"


@contextmanager
def candidate(url: str, face: str, mode: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.patterns.election_program", url, face, mode]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("mode", ["campaign", "lease"])
def test_a_leader_that_gets_sigterm_hands_over_is_no_candidate_any_more_and_exits(
    url: str, face: str, mode: str
) -> None:
    with candidate(url, face, mode) as process, Client(url, holder="heir") as heir:
        assert [line(process), line(process)] == ["ready", "leading"]
        waiting = Thread(lambda: heir.acquire("scheduler", 30))
        until(lambda: len(heir.contenders("scheduler")) == 1, "the heir")
        process.terminate()
        lease = waiting.result()
        assert lease.inherited == b"so far"
        assert line(process) == "ended"
        assert process.wait(60) == 0
        assert heir.contenders("scheduler") == []


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("mode", ["campaign", "stop", "lead"])
def test_a_candidate_that_gets_sigterm_leaves_the_queue_and_exits(url: str, face: str, mode: str) -> None:
    with Client(url, holder="leader") as leader, leader.acquire("scheduler", 30), candidate(url, face, mode) as process:
        assert line(process) == "ready"
        until(lambda: len(leader.contenders("scheduler")) == 1, "the candidate")
        process.terminate()
        if mode == "lead":
            assert line(process) == "the wait was cancelled"
        assert line(process) == "ended"
        assert process.wait(60) == 0
        assert leader.contenders("scheduler") == []


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_signal_handler_may_stop_the_campaign_of_a_leader(url: str, face: str) -> None:
    with candidate(url, face, "stop") as process, Client(url) as other:
        assert [line(process), line(process)] == ["ready", "leading"]
        process.terminate()
        assert line(process) == "ended"
        assert process.wait(60) == 0
        assert other.leader("scheduler") is None
