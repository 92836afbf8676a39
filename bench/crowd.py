"""Ten thousand leases held by one process: what it costs to keep them."""

from __future__ import annotations

import os
from multiprocessing import get_context
from time import perf_counter, process_time, sleep
from typing import NamedTuple

from bench.place import folder, url
from bench.progress import rounds
from bench.result import Result, Row
from leasehold import Client, State

TTL = 10


class Held(NamedTuple):
    leases: int
    still: int
    in_jeopardy: int
    seconds: float
    cpu: float
    acquire_us: float
    threads_one: int
    threads_all: int


def run(*, quick: bool) -> Result:
    leases, seconds = (1_000, 5) if quick else (10_000, 30)
    with get_context("spawn").Pool(1) as pool:  # a process of its own: its CPU time is theirs alone
        held = pool.apply_async(_hold, (leases, seconds))
        for _ in rounds("crowd", seconds):
            held.wait(1.0)
        found = held.get()
    load = found.cpu / found.seconds
    result = Result(f"{found.leases:,} leases held by one process, TTL {TTL} s, SQLite, {found.seconds:.0f} s")
    result.ratio("crowd_load", "of one core", [load], "under 0.25", digits=3)
    result.numbers.update(
        crowd_leases=found.leases,
        crowd_still_held=found.still,
        crowd_threads=found.threads_all,
        crowd_acquire_us=found.acquire_us,
    )
    renewals = found.leases / (TTL / 3)
    result.absolutes += [
        Row("CPU time", f"{found.cpu:.2f} s"),
        Row("CPU time a renewal (about)", f"{load / renewals * 1e6:.1f} µs"),
        Row("still held at the end", f"{found.still:,}", f"all {found.leases:,}"),
        Row("of these, in jeopardy", f"{found.in_jeopardy:,}", "0"),
        Row("threads with one lease", f"{found.threads_one}"),
        Row("threads with all", f"{found.threads_all}", "constant"),
        Row("to acquire one, while the crowd grows", f"{found.acquire_us:.1f} µs"),
    ]
    return result


def _hold(count: int, seconds: float) -> Held:
    with folder() as path, Client(url(path)) as client:
        leases = [client.acquire("bench/crowd/0", ttl=TTL)]
        threads_one = _threads()
        start = perf_counter()
        leases += [client.acquire(f"bench/crowd/{number}", ttl=TTL) for number in range(1, count)]
        acquire_us = (perf_counter() - start) / count * 1e6
        wall, cpu = perf_counter(), process_time()
        sleep(seconds)
        wall, cpu = perf_counter() - wall, process_time() - cpu
        threads_all = _threads()
        states = [lease.state for lease in leases]
    lost, shaky = states.count(State.LOST), states.count(State.JEOPARDY)
    return Held(count, count - lost, shaky, wall, cpu, acquire_us, threads_one, threads_all)


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))
