"""A holder stopped beyond its TTL and resumed: refused by each guard, and not refused without."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import Client, Fenced
from leasehold.fencing import Fence
from tests.fencing.holder import RESOURCE, WRITE

if TYPE_CHECKING:
    from leasehold import Lease


class Place:
    """What is written to, as the test sees it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = str(folder / "place")
        self.fence = Fence()
        self.memory = "nothing"
        if kind == "file":
            Path(self.path).write_text("nothing")
        elif kind != "memory":
            with closing(sqlite3.connect(self.path)) as connection, connection:
                connection.execute("CREATE TABLE doc (body TEXT)")
                connection.execute("INSERT INTO doc VALUES ('nothing')")

    @property
    def body(self) -> str:
        if self.kind == "memory":
            return self.memory
        if self.kind == "file":
            return Path(self.path).read_text()
        with closing(sqlite3.connect(self.path)) as connection:
            return str(connection.execute("SELECT body FROM doc").fetchone()[0])

    def write(self, lease: Lease, body: str) -> None:
        """Write as the newer holder, through the guard."""
        if self.kind == "memory":
            with self.fence.guard(lease):
                self.memory = body
        else:
            WRITE[self.kind](self.path, lease, body, guarded=True)

    def serve(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do the write that another process asks for, as the owner of the memory."""
        try:
            if request["guarded"]:
                with self.fence.guard((request["resource"], request["token"])):
                    self.memory = request["body"]
            else:
                self.memory = request["body"]
        except Fenced as refused:
            return {"refused": str(refused)}
        return {"refused": None}


@pytest.mark.parametrize("kind", sorted(WRITE))
def test_a_holder_that_comes_back_is_refused_and_without_the_guard_overwrites(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    place = Place(kind, tmp_path)
    command = [sys.executable, "-m", "tests.fencing.holder", url, kind, place.path]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stopped:
        assert stopped.stdin is not None
        assert stopped.stdout is not None

        def answer() -> dict[str, Any]:
            assert stopped.stdin is not None
            assert stopped.stdout is not None
            while True:
                said: dict[str, Any] = json.loads(stopped.stdout.readline())
                if "body" not in said:
                    return said
                stopped.stdin.write(json.dumps(place.serve(said)) + "\n")
                stopped.stdin.flush()

        def go_on() -> None:
            assert stopped.stdin is not None
            stopped.stdin.write("\n")
            stopped.stdin.flush()

        try:
            old_token = answer()["token"]
            assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
            with Client(url, holder="newer") as leases:
                lease = leases.acquire(RESOURCE, ttl=30, wait=30)  # comes when the stopped one's time is over
                assert lease.token > old_token
                place.write(lease, "newer")
                os.kill(stopped.pid, signal.SIGCONT)

                refused = answer()
                assert refused["refused"] in ("Fenced", "LeaseholdError")
                assert f"token {old_token} is refused: token {lease.token}" in refused["text"]
                assert place.body == "newer"

                go_on()
                assert answer()["refused"] == "LeaseLost"
                assert place.body == "newer"

                go_on()
                assert answer()["refused"] is None
                assert place.body == "stale"  # that is what the guard is for
                lease.check()
            go_on()
            assert stopped.wait(20) == 0
        finally:
            stopped.kill()
