"""Runs the command line in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lessor import Client
from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BOUND = 60.0
"""Seconds that anything may take on a busy machine."""


def until(condition: Callable[[], Any], what: str, seconds: float = BOUND) -> Any:
    """Return the condition's value once it is true; fail when it isn't within the bound."""
    give_up = SYSTEM.now() + int(seconds * 1e9)
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if SYSTEM.now() >= give_up:
            pytest.fail(f"not within {seconds} s: {what}")
        pause.wait(0.005)


class Cli:
    """Runs ``lessor`` in processes of its own, on a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/leases.db"
        self.environment = {**os.environ, "LESSOR_URL": self.url, "LANG": "C.UTF-8"}
        self.environment.pop("NO_COLOR", None)
        self.lessor = [sys.executable, "-m", "lessor"]
        self.started: list[tuple[subprocess.Popen[str], threading.Timer]] = []

    def __call__(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        options.setdefault("stdin", subprocess.DEVNULL)
        environment = {**self.environment, **options.pop("env", {})}
        command = [*self.lessor, *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=BOUND, check=False, **options
        )

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        command = [*self.lessor, *words]
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen(command, env=self.environment, text=True, start_new_session=True, **options)
        return self.bound(process)

    def bound(self, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
        """See to it that the process ends, so that a test that reads from it fails instead of waiting for ever."""
        timer = threading.Timer(2 * BOUND, process.kill)
        timer.daemon = True
        timer.start()
        self.started.append((process, timer))
        return process

    def client(self, **options: Any) -> Client:
        return Client(self.url, **options)

    def group(self, name: str = "pids") -> list[int]:
        """Return the pids that COMMAND has written into a file, once they are there."""
        path = self.folder / name
        until(lambda: path.exists() and path.read_text().endswith("\n"), f"COMMAND wrote {name}")
        return [int(word) for word in path.read_text().split()]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def guardian_of(pid: int) -> int:
    def name(child: int) -> str:
        with open(f"/proc/{child}/comm", encoding="ascii") as file:
            return file.read().strip()

    found: list[int] = until(
        lambda: [child for child in children_of(pid) if name(child) == "lessor-guard"], "there is a guardian"
    )
    return found[0]


def held_to_the_end(client: Client, pids: list[int]) -> None:
    """Watch the processes end, and that the store never frees the resource before they have."""
    before = client.get("x")
    assert before
    while True:
        record = client.get("x")
        if not any(alive(pid) for pid in pids):  # looked at after the store was asked: what lives now lived then
            return
        assert record, "the resource was free while its command still ran"
        assert record.token == before.token


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=BOUND)
    return process.returncode, out, err
