"""``lease.check()``, which belongs before every write, so it has to cost next to nothing."""

from __future__ import annotations

import time
from timeit import Timer

from bench.place import folder, url
from bench.progress import rounds
from bench.result import Result, Row
from leasehold import Client

TIMES = 20_000


def run(*, quick: bool) -> Result:
    count = 10 if quick else 60
    taken: dict[str, list[float]] = {"check": [], "require": [], "two reads": []}
    with folder() as path, Client(url(path)) as client, client.acquire("bench/check", ttl=60) as lease:
        read, boot, raw = time.clock_gettime_ns, time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC_RAW
        timers = {
            "check": Timer("check()", globals={"check": lease.check}),
            "require": Timer("require(1.0)", globals={"require": lease.require}),
            "two reads": Timer("read(boot); read(raw)", globals={"read": read, "boot": boot, "raw": raw}),
        }
        for _ in rounds("check", count):
            for name, timer in timers.items():
                taken[name].append(timer.timeit(TIMES) / TIMES * 1e9)
    result = Result("asking whether it is still ours")
    slower = [c / r for c, r in zip(taken["check"], taken["two reads"], strict=True)]
    result.ratio("check_vs_reads", "check() / two bare clock reads", slower)
    result.absolute("check_ns", "lease.check()", taken["check"], "ns", "under 400", digits=0)
    result.absolutes.append(Row("  in the fastest round", f"{min(taken['check']):.0f} ns"))
    result.absolute("require_ns", "lease.require(1.0)", taken["require"], "ns", digits=0)
    result.absolute("reads_ns", "two bare clock reads", taken["two reads"], "ns", digits=0)
    return result
