"""One worker of the demo: waits for the job, does a few steps of it, hands it on. A process of its own.

Each step is what the world is full of: look whether the job is still ours, work, write. No look can protect the write
that comes after it; between the two a process may sleep for minutes. The ledger's guard, which compares tokens, can.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from lessor.client.sync import Client
from lessor.errors import Fenced, LeaseLost
from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from lessor.client.lease import Lease

JOB = "demo/job"
TTL = 2.0
STEPS = 5
STEP_SECONDS = 0.26
BREATH = 0.03
"""Seconds between a turn and the next place in the queue."""


class Ledger:
    """What the job writes to. It refuses whoever comes with a token older than the newest that it has seen."""

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, "ledger.db")
        self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
        self._db.execute("CREATE TABLE IF NOT EXISTS ledger (line INTEGER PRIMARY KEY, token INTEGER, worker TEXT)")

    def write(self, token: int, worker: str) -> int:
        """Add a line and return its number, or raise `Fenced`. The guard and the write are one statement."""
        write = (
            "INSERT INTO ledger (token, worker) SELECT ?1, ?2 WHERE ?1 >= (SELECT ifnull(max(token), 0) FROM ledger)"
        )
        cursor = self._db.execute(write, (token, worker))
        if cursor.rowcount != 1:
            raise Fenced(JOB, token=token, newest=max(self.tokens()))
        return cursor.lastrowid or 0

    def tokens(self) -> list[int]:
        """Return the token of each line, in the order in which they were written."""
        return [row[0] for row in self._db.execute("SELECT token FROM ledger ORDER BY line")]

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class Worker:
    """Takes its turns until it is told to go."""

    def __init__(self, name: str, folder: str) -> None:
        self._name = name
        self._ledger = Ledger(folder)
        self._client = Client(store_url(folder), holder=name)
        self._never = threading.Event()

    def run(self) -> NoReturn:
        """Work for ever; SIGTERM ends it, and the lease is given back on the way out."""
        with self._client:
            while True:
                self._say("waits")
                try:
                    with self._client.acquire(JOB, ttl=TTL) as lease:
                        self._say("holds", lease)
                        self._turn(lease)
                        self._say("ends", lease)
                except LeaseLost as error:
                    self._say("lost", reason=error.reason)
                self._never.wait(BREATH)

    def _turn(self, lease: Lease) -> None:
        for _ in range(STEPS):
            lease.check()
            self._say("works", lease)
            self._never.wait(STEP_SECONDS)
            try:
                self._ledger.write(lease.token, self._name)
            except Fenced as refusal:
                self._say("refused", lease, newest=refusal.newest)
                lease.check()  # raises, as it should: the time was over
                raise
            self._say("wrote", lease)

    def _say(self, what: str, lease: Lease | None = None, **more: object) -> None:
        now = SYSTEM.host_ns()
        message: dict[str, object] = {"at": now, "what": what, **more}
        if lease is not None:
            message |= {"token": lease.token, "until": now + int(lease.remaining * 1e9)}
        tell(message)


def tell(message: dict[str, object]) -> None:
    """Send one line to the director; short enough to arrive in one piece."""
    os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def store_url(folder: str) -> str:
    """Return the URL of the demo's lease store."""
    path = os.path.join(folder, "leases.db").replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    return "sqlite:///" + path


def main() -> NoReturn:
    """Run as ``python -m lessor.cli.demo_worker NAME FOLDER``."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    name, folder = sys.argv[1:]
    Worker(name, folder).run()


if __name__ == "__main__":
    main()
