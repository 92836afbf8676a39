"""What the how-to says about singletons, with the programs that it is about: two of each at once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.testing.conformance.base import until
from tests.docs.markdown_pages import ROOT, blocks
from tests.servers import free_port
from tests.servers.redis import redis_server
from tests.singletons.hosts import Host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(240)

PAGE = ROOT / "docs/how-to/singletons.md"
FILES = {block.text: block.code for block in blocks(PAGE) if block.what == "file"}
LONG = 100.0
"""Seconds within which it is a full minute for certain, on a busy machine too."""


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    path = tmp_path / "reports"
    path.touch()
    return path


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.fixture
def hosts(tmp_path: Path) -> list[Host]:
    return [Host(tmp_path / name, f"sqlite:///{tmp_path}/leases.db") for name in ("a", "b")]


def test_of_two_crons_one_runs_the_job(hosts: list[Host], reports: Path) -> None:
    with hosts[0].cron(FILES["crontab"]), hosts[1].cron(FILES["crontab"]):
        until(lambda: all(host.calls for host in hosts), "the full minute, on both hosts", LONG)
        until(lambda: bool(lines(reports)), "the job")
    assert len(lines(reports)) == 1


@pytest.mark.heavy
def test_of_two_systemd_timers_one_runs_the_job(hosts: list[Host], reports: Path) -> None:
    """Every two seconds here instead of every minute, and however long it takes two of them to start."""
    units = {name: FILES[name].replace("*:*:00", "*:*:0/2") for name in ("report.service", "report.timer")}
    units["report.service"] = units["report.service"].replace("--hold-at-least 30s", "--hold-at-least 10m")
    with hosts[0].systemd(units), hosts[1].systemd(units):
        until(lambda: all(host.calls > 1 for host in hosts), "two turns, on both hosts", LONG)
        until(lambda: bool(lines(reports)), "the job", LONG)
    assert len(lines(reports)) == 1


@contextlib.contextmanager
def program(folder: Path, *words: str, **variables: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of this environment in the folder that has the files of the how-to."""
    for name, code in FILES.items():
        (folder / name).write_text(code)
    place = os.path.dirname(sys.executable)
    environment = {
        **os.environ,
        "PATH": place + os.pathsep + os.environ["PATH"],
        "LESSOR_URL": f"sqlite:///{folder}/leases.db",
        "REPORTS": str(folder / "reports"),
        **{name: str(value) for name, value in variables.items()},
    }
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(
            [f"{place}/{words[0]}", *words[1:]], cwd=folder, env=environment, stderr=log, stdout=log
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


def test_of_two_celery_beats_one_sends_and_the_other_takes_over(tmp_path: Path, reports: Path) -> None:
    def beat(number: int) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        words = ("run", "celery/beat", "--ttl", "3s", "--", "celery", "-A", "jobs", "beat", "-s", f"schedule-{number}")
        return program(tmp_path, "lessor", *words, BROKER_URL=server.url)

    def waiting() -> bool:
        return len(client.contenders("celery/beat")) == 1

    begun = time.monotonic()
    with (
        redis_server() as server,
        Client(f"sqlite:///{tmp_path}/leases.db") as client,
        program(tmp_path, "celery", "-A", "jobs", "worker", "--concurrency", "2", BROKER_URL=server.url),
        beat(1) as first,
    ):
        until(lambda: client.get("celery/beat") is not None, "the first beat", LONG)
        with beat(2):
            until(waiting, "the second beat", LONG)
            until(lambda: bool(lines(reports)), "a report", LONG)
            done = len(lines(reports))
            until(lambda: len(lines(reports)) >= done + 6, "more of them", LONG)
            # From the first beat on: some may have piled up before the worker came to them.
            assert len(lines(reports)) <= time.monotonic() - begun + 2, "more than one a second: both beats send"
            first.kill()
            first.wait()
            until(lambda: not waiting(), "the takeover", LONG)
            done = len(lines(reports))
            until(lambda: len(lines(reports)) >= done + 2, "reports after it", LONG)


def test_of_two_apschedulers_one_runs_the_job(tmp_path: Path, reports: Path) -> None:
    with program(tmp_path, "python", "scheduled.py"), program(tmp_path, "python", "scheduled.py"):
        until(lambda: bool(lines(reports)), "a report", LONG)
        begun = time.monotonic()
        until(lambda: len(lines(reports)) >= 4, "three more", LONG)
        assert time.monotonic() - begun > 5, "more than one every two seconds: both run it"


def test_of_two_fastapi_servers_one_polls_and_the_other_takes_over(tmp_path: Path, reports: Path) -> None:
    def server() -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        return program(tmp_path, "uvicorn", "web:app", "--port", str(free_port()))

    def polling(process: subprocess.Popen[bytes]) -> bool:
        return lines(reports)[-5:] == [str(process.pid)] * 5

    with server() as first, Client(f"sqlite:///{tmp_path}/leases.db") as client:
        until(lambda: polling(first), "the first server's work", LONG)
        with server() as second:
            until(lambda: len(client.contenders("web/poll")) == 1, "the second server", LONG)
            assert set(lines(reports)) == {str(first.pid)}
            first.terminate()
            first.wait(60)
            until(lambda: polling(second), "the second server's work", LONG)
    order = lines(reports)
    assert order == [str(first.pid)] * order.count(str(first.pid)) + [str(second.pid)] * order.count(str(second.pid))
