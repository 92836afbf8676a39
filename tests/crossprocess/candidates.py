"""Candidates of an election, each a process of its own: ``python -m tests.crossprocess.candidates``.

Each writes down, in a log of its own and by the host's clock, since when and until when it believed that it leads.
While it leads it writes to a database, through a guard, and without looking whether it still leads: keeping a deposed
leader out is the guard's business here. SIGUSR1 makes a leader resign.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from lessor import AsyncClient, Client, Fenced
from lessor.fencing import fence
from lessor.runtime.clock import SYSTEM

ELECTION = "scheduler"
EVERY = 0.005


class Candidate:
    """What it does while it leads, the same for both faces."""

    def __init__(self, folder: Path, name: str) -> None:
        self._log = (folder / f"{name}.log").open("a", buffering=1)
        self._name = name
        self._db = sqlite3.connect(folder / "writes.db", timeout=30, isolation_level=None)
        self._db.execute("PRAGMA synchronous = OFF")
        self._until = 0
        self.asked_to_resign = False
        signal.signal(signal.SIGUSR1, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked_to_resign = True

    def note(self, what: str, term: Any, **more: Any) -> None:
        """Write down what happened, and when."""
        self._log.write(
            json.dumps({"what": what, "at": SYSTEM.host_ns(), "by": self._name, "token": term.token, **more}) + "\n"
        )

    def begin(self, term: Any) -> None:
        """Lead."""
        self.asked_to_resign = False
        self._until = 0
        self.note("elected", term)

    def lead(self, term: Any) -> None:
        """Do a bit of a leader's work."""
        left = term.lease.remaining
        until = SYSTEM.host_ns() + int(left * 1e9)  # by the host's clock, and rather too late than too early
        if left > 0 and abs(until - self._until) > 1_000_000:
            self._until = until
            self.note("believes", term, until=until)
        self.write(term)

    def write(self, term: Any) -> bool:
        """Write, without a look at the lease; whether the guard took it."""
        try:
            with fence(self._db, (term.resource, term.token)):
                self._db.execute("INSERT INTO writes (token, at) VALUES (?, ?)", (term.token, SYSTEM.host_ns()))
        except Fenced:
            self.note("refused", term)
            return False
        return True

    def is_succeeded(self, term: Any) -> bool:
        """Whether somebody with a newer token has written."""
        newest = self._db.execute("SELECT max(token) FROM writes").fetchone()[0]
        return bool(newest > term.token)

    def tempt(self, term: Any) -> None:
        """Write as a leader that was deposed, and see to it that this was refused."""
        assert not self.write(term), "the guard took a write of a deposed leader"


def in_threads(url: str, ttl: float, candidate: Candidate, name: str) -> None:
    with Client(url, holder=name) as client:
        for term in client.campaign(ELECTION, ttl):
            candidate.begin(term)
            with term:
                while not candidate.asked_to_resign:
                    candidate.lead(term)
                    term.check()
                    time.sleep(EVERY)
                candidate.note("resigns", term)
                term.resign()
            if not term.went_well:
                while not candidate.is_succeeded(term):
                    time.sleep(EVERY)
                candidate.tempt(term)


async def in_tasks(url: str, ttl: float, candidate: Candidate, name: str) -> None:
    async with AsyncClient(url, holder=name) as client:
        async for term in client.campaign(ELECTION, ttl):
            candidate.begin(term)
            async with term:
                while not candidate.asked_to_resign:
                    candidate.lead(term)
                    await asyncio.sleep(EVERY)
                candidate.note("resigns", term)
                await term.resign()
            if not term.went_well:
                while not candidate.is_succeeded(term):  # noqa: ASYNC110 - in another process
                    await asyncio.sleep(EVERY)
                candidate.tempt(term)


def main(url: str, folder: str, name: str, face: str, ttl: str) -> None:
    candidate = Candidate(Path(folder), name)
    with contextlib.suppress(KeyboardInterrupt):
        if face == "sync":
            in_threads(url, float(ttl), candidate, name)
        else:
            asyncio.run(in_tasks(url, float(ttl), candidate, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
