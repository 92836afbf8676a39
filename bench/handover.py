"""Somebody waits already: from just before the release in one process to the return of the acquire in the other."""

from __future__ import annotations

import os
import random
from multiprocessing import get_context
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING

from filelock import FileLock

from bench.place import folder, url
from bench.progress import rounds
from bench.result import Result, percentile
from leasehold import Client

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

POLL = 0.05
"""How often filelock looks, by default."""
WARM_UP = 3


def run(*, quick: bool) -> Result:
    count = 20 if quick else 300
    taken: dict[str, list[float]] = {"ours": [], "filelock": []}
    context = get_context("spawn")
    with folder() as path, Client(url(path)) as client:
        lock = FileLock(os.path.join(path, "lock"))
        here, there = context.Pipe()
        taker = context.Process(target=_take, args=(there, path), daemon=True)
        taker.start()
        for number in rounds("handover", count + WARM_UP):
            for kind, latencies in taken.items():
                latency = _hand_over(kind, here, client, lock)
                if number >= WARM_UP:
                    latencies.append(latency)
        here.send(None)
        taker.join()
    ours, theirs = taken["ours"], taken["filelock"]
    result = Result("handover to a waiting process, SQLite")
    p50, p99 = ([percentile(theirs, p) / percentile(ours, p)] for p in (50, 99))
    result.ratio("handover_p50_vs_filelock", "times as fast as filelock, p50", p50, "at least 10", digits=1)
    result.ratio("handover_p99_vs_filelock", "times as fast as filelock, p99", p99, digits=1)
    result.percentiles("handover_ms", "leasehold", ours, "ms")
    result.percentiles("handover_filelock_ms", f"filelock (looks every {POLL * 1000:.0f} ms)", theirs, "ms")
    return result


def _hand_over(kind: str, pipe: Connection, client: Client, lock: FileLock) -> float:
    """Return the milliseconds that it took."""
    # The taker announces itself, then waits; a random time later, to hit its polling anywhere, we let go.
    patience = random.uniform(0.01, 0.01 + POLL)
    if kind == "ours":
        lease = client.acquire("bench/handover", ttl=30)
        _announce(pipe, kind, patience)
        start = perf_counter_ns()
        lease.release()
    else:
        lock.acquire()
        _announce(pipe, kind, patience)
        start = perf_counter_ns()
        lock.release()
    return float(pipe.recv() - start) / 1e6


def _announce(pipe: Connection, kind: str, patience: float) -> None:
    pipe.send(kind)
    pipe.recv()
    sleep(patience)


def _take(pipe: Connection, path: str) -> None:
    """In the other process: wait for it, and say when it came. Both read the host's monotonic clock."""
    lock = FileLock(os.path.join(path, "lock"))
    with Client(url(path)) as client:
        while (kind := pipe.recv()) is not None:
            pipe.send("about to wait")
            if kind == "ours":
                lease = client.acquire("bench/handover", ttl=30)
                got = perf_counter_ns()
                lease.release()
            else:
                lock.acquire()
                got = perf_counter_ns()
                lock.release()
            pipe.send(got)
