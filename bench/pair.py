"""Nobody else wants it: acquire and release, against the least that SQLite can do for it, and against a file lock."""

from __future__ import annotations

import os
import sqlite3
from time import perf_counter_ns
from typing import TYPE_CHECKING

from filelock import FileLock

from bench.place import folder, url
from bench.progress import rounds
from bench.result import Result
from leasehold import Client

if TYPE_CHECKING:
    from collections.abc import Callable

UPSERT = (
    "INSERT INTO leases VALUES (?, ?, ?, ?) "
    "ON CONFLICT (resource) DO UPDATE SET holder = excluded.holder, token = excluded.token, expiry = excluded.expiry"
)


def run(*, quick: bool) -> Result:
    count, pairs = (5, 100) if quick else (40, 500)
    taken: dict[str, list[float]] = {"ours": [], "floor": [], "filelock": []}
    with folder() as path, Client(url(path)) as client:
        db = _raw(os.path.join(path, "raw.db"))
        lock = FileLock(os.path.join(path, "lock"))

        def ours() -> None:
            client.acquire("bench/pair", ttl=30).release()

        def floor() -> None:
            db.execute(UPSERT, ("bench/pair", "me", 1, 2))
            db.execute("DELETE FROM leases WHERE resource = ?", ("bench/pair",))

        def peer() -> None:
            lock.acquire()
            lock.release()

        works = {"ours": ours, "floor": floor, "filelock": peer}
        for work in works.values():
            _time(work, pairs)
        for _ in rounds("pair", count):
            for name, work in works.items():
                taken[name].append(_time(work, pairs))
        db.close()
    result = Result("uncontended acquire + release, SQLite, one thread")
    against = list(zip(taken["ours"], taken["floor"], taken["filelock"], strict=True))
    result.ratio("pair_vs_floor", "speed / raw SQLite floor", [f / o for o, f, _ in against], "at least 0.4")
    result.ratio("pair_vs_filelock", "speed / filelock", [p / o for o, _, p in against], "at least 1")
    result.absolute("pair_us", "leasehold", taken["ours"], "µs")
    result.absolute("pair_floor_us", "raw SQLite: upsert + delete", taken["floor"], "µs")
    result.absolute("pair_filelock_us", "filelock", taken["filelock"], "µs")
    return result


def _time(work: Callable[[], None], times: int) -> float:
    """Return the microseconds that one takes."""
    start = perf_counter_ns()
    for _ in range(times):
        work()
    return (perf_counter_ns() - start) / times / 1e3


def _raw(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(
        "CREATE TABLE leases (resource TEXT PRIMARY KEY, holder TEXT, token INTEGER, expiry INTEGER) WITHOUT ROWID"
    )
    return db
