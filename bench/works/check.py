"""``lease.check()``, which belongs before every write, so it has to cost next to nothing."""

from __future__ import annotations

import random
import time
from timeit import Timer
from typing import TYPE_CHECKING

from bench.results import Entry, Found, Measure

if TYPE_CHECKING:
    from bench.show import Show

TIMES = 20_000


class Check:
    name = "check"
    title = "asking whether it is still ours"
    measures = (Measure("ns", "one call", "ns", "ns", digits=0),)

    def __init__(self, *, quick: bool) -> None:
        self.rounds = 5 if quick else 60

    def run(self, _: object, show: Show) -> Found:
        from lessor import Client

        with Client("memory://") as client, client.acquire("bench/check", ttl=60) as lease:
            read, boot, raw = time.clock_gettime_ns, time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC_RAW
            timers = {
                "lease.check()": Timer("check()", globals={"check": lease.check}),
                "lease.require(1.0)": Timer("require(1.0)", globals={"require": lease.require}),
                "two clock reads": Timer("read(boot); read(raw)", globals={"read": read, "boot": boot, "raw": raw}),
            }
            entries = {name: Entry(name, "floor" if "clock" in name else "ours", "") for name in timers}
            for number in range(self.rounds):
                for name in random.sample(sorted(timers), len(timers)):
                    show.step(number + 1, self.rounds, name)
                    entries[name].add({"ns": [timers[name].timeit(TIMES) / TIMES * 1e9]})
        return Found(self.name, self.title, list(self.measures), list(entries.values()), [])
