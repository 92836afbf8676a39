"""An election among processes that are killed, stopped and made to resign at random; and what can be told afterwards."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lessor import Client
from lessor.fencing import create_table
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import until
from tests.crossprocess.candidates import ELECTION
from tests.crossprocess.stalls import Stalls

if TYPE_CHECKING:
    from lessor import Leader

FACES = ("sync", "async", "sync", "async", "sync")
KINDS = ("kill", "stop", "resign")


class Report(NamedTuple):
    """What happened."""

    terms: int
    overlaps: list[str]
    """Two leaders at one instant, by their own validity."""
    out_of_order: int
    """Writes with an older token that were taken after one with a newer token."""
    writes: int
    refused: int
    leaderless: dict[str, list[float]]
    """Seconds without a leader, for each kind of end."""
    held_up: dict[str, list[float]]
    """Seconds of these for which the machine gave us no processor."""

    def own(self, kind: str) -> list[float]:
        """Return the seconds without a leader that are not the machine's doing."""
        return [time - stall for time, stall in zip(self.leaderless[kind], self.held_up[kind], strict=True)]

    def numbers(self) -> dict[str, Any]:
        """Return what the table of elections tells."""
        at = {kind: sorted(1000 * seconds for seconds in times) for kind, times in self.leaderless.items()}
        told: dict[str, Any] = {
            "rounds": sum(map(len, at.values())),
            "overlaps": len(self.overlaps),
            "writes": self.writes,
            "refused": self.refused,
            "stale": self.out_of_order,
        }
        for kind, name in (("kill", "kills"), ("stop", "pauses"), ("resign", "resignations")):
            told[name] = len(at.get(kind, ()))
        if "kill" in at:
            told |= {"kill_longest_ms": at["kill"][-1], "kill_own_ms": 1000 * max(self.own("kill"))}
        if "stop" in at:
            told["stop_longest_ms"] = at["stop"][-1]
        if "resign" in at:
            times = at["resign"]
            told |= {"resign_p50_ms": statistics.median(times), "resign_p99_ms": times[int(0.99 * len(times))]}
        return told


class Field:
    """The candidates, as somebody sees them who may kill them."""

    def __init__(self, url: str, folder: Path, ttl: float) -> None:
        self._url, self._folder, self._ttl = url, folder, ttl
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._serials = itertools.count()
        with contextlib.closing(self.writes(folder)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE writes (number INTEGER PRIMARY KEY, token INTEGER, at INTEGER)")
            create_table(db)

    @staticmethod
    def writes(folder: Path) -> sqlite3.Connection:
        """Open what the leaders write to."""
        return sqlite3.connect(folder / "writes.db", isolation_level=None)

    def start(self, face: str) -> None:
        name = f"{face}-{next(self._serials)}"
        words = [self._url, str(self._folder), name, face, str(self._ttl)]
        command = [sys.executable, "-m", "tests.crossprocess.candidates", *words]
        self._running[name] = subprocess.Popen(command, cwd=Path(__file__).parents[2])

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def signal(self, name: str, signum: signal.Signals) -> None:
        self._running[name].send_signal(signum)

    def leader_after(self, client: Client, token: int) -> Leader:
        """Wait for a leader with a newer token, that knows itself that it leads."""
        seen: list[Leader] = []

        def leads() -> bool:
            for name, process in self._running.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}"
            leader = client.leader(ELECTION)
            if leader is not None and leader.token > token and self._knows(leader):
                seen.append(leader)
            return bool(seen)

        until(leads, "the election of a leader", 60)
        return seen[0]

    def _knows(self, leader: Leader) -> bool:
        log = self._folder / f"{leader.holder}.log"
        return log.exists() and f'"token": {leader.token},' in log.read_text().replace("}", ",")

    def end(self) -> None:
        for name in list(self._running):
            self.kill(name)


def hold_election(url: str, folder: Path, *, rounds: int, ttl: float, seed: int) -> Report:
    """Let five candidates stand, and end the leader's term that many times, in one of three ways."""
    dice = random.Random(seed)
    field = Field(url, folder, ttl)
    ends: list[tuple[str, int, int]] = []
    with Client(url) as client, Stalls() as stalls:
        token = 0
        try:
            for face in FACES:
                field.start(face)
            for number in range(rounds + 1):
                leader = field.leader_after(client, token)
                name, token = leader.holder, leader.token
                time.sleep(dice.uniform(0.05, 0.25))
                if number == rounds:
                    break
                kind = dice.choice(KINDS)
                ends.append((kind, token, SYSTEM.host_ns()))
                if kind == "kill":
                    field.kill(name)
                    field.start(name.partition("-")[0])
                elif kind == "resign":
                    field.signal(name, signal.SIGUSR1)
                else:
                    field.signal(name, signal.SIGSTOP)
                    time.sleep(ttl * dice.uniform(1.2, 1.7))  # and no longer: it may hold the lock of a SQLite file
                    field.signal(name, signal.SIGCONT)
        finally:
            field.end()
    return judge(folder, ends, stalls)


def judge(folder: Path, ends: list[tuple[str, int, int]], stalls: Stalls) -> Report:
    """Tell what happened from what the candidates wrote; ``ends``: how, with which token and when terms were ended."""
    notes = [
        json.loads(line)
        for path in folder.glob("*.log")
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]
    terms = _terms(notes)
    with contextlib.closing(Field.writes(folder)) as db:
        tokens = [token for (token,) in db.execute("SELECT token FROM writes ORDER BY number")]
    gaps = _gaps(terms, ends)
    return Report(
        terms=len(terms),
        overlaps=[f"{one} and {other}" for one, other in itertools.pairwise(terms) if other["from"] < one["until"]],
        out_of_order=sum(later < earlier for earlier, later in itertools.pairwise(tokens)),
        writes=len(tokens),
        refused=sum(note["what"] == "refused" for note in notes),
        leaderless={kind: [(end - start) / 1e9 for start, end in times] for kind, times in gaps.items()},
        held_up={kind: [stalls.between(start, end) for start, end in times] for kind, times in gaps.items()},
    )


def _terms(notes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return since when and until when each leader believed in itself, in the order of their elections."""
    terms: dict[int, dict[str, Any]] = {}
    for note in sorted(notes, key=lambda note: note["at"]):
        if note["what"] == "elected":
            terms[note["token"]] = {"token": note["token"], "by": note["by"], "from": note["at"], "until": note["at"]}
        elif note["what"] == "believes":
            terms[note["token"]]["until"] = max(terms[note["token"]]["until"], note["until"])
        elif note["what"] == "resigns":
            terms[note["token"]]["until"] = terms[note["token"]]["resigned"] = note["at"]
    return sorted(terms.values(), key=lambda term: int(term["from"]))


def _gaps(terms: list[dict[str, Any]], ends: list[tuple[str, int, int]]) -> dict[str, list[tuple[int, int]]]:
    """Return, for each kind of end, from when to when there was no leader."""
    times: dict[str, list[tuple[int, int]]] = {kind: [] for kind, _, _ in ends}
    for kind, token, at in ends:
        ended = next((term["resigned"] for term in terms if term["token"] == token and "resigned" in term), at)
        times[kind].append((ended, min(term["from"] for term in terms if term["token"] > token)))
    return times
