"""Thousands of leases held by one process: what it costs the process and the server to keep them."""

from __future__ import annotations

import contextlib
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from bench.results import Measure
from bench.worker import Worker
from bench.works.base import Figures, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Contestant
    from bench.places import Place


class Seat(NamedTuple):
    place: Place
    contestant: type[Contestant]


class Holding(Work[Seat]):
    ttl = 10.0
    measures = (
        Measure("client", "CPU of the client", "s a minute", "client", digits=2),
        Measure("server", "CPU of the server", "s a minute", "server", digits=2),
        Measure("requests", "requests", "a second", "requests", digits=0),
        Measure("threads", "threads", "", "threads", digits=0, compared=False),
        Measure("memory", "memory", "MB", "memory", digits=1, compared=False),
        Measure("lost", "lost", "", "lost", digits=0, compared=False),
    )

    def __init__(self, leases: int, *, quick: bool) -> None:
        super().__init__(quick=quick)
        self.name = f"holding{leases}"
        self.leases = leases // 50 if quick else leases
        self.title = f"{self.leases:,} leases held by one process, TTL {self.ttl:g} s"

    @property
    def rounds(self) -> int:
        return 1

    @property
    def seconds(self) -> float:
        return 0.5 if self.quick else 15.0

    @contextlib.contextmanager
    def field(self, place: Place, contestant: type[Contestant]) -> Iterator[Seat]:
        yield Seat(place, contestant)

    def round(self, field: Seat) -> Figures:
        place, contestant = field
        place.clear()
        with Worker(contestant, place.url, self.ttl) as worker:
            memory = worker.ask("hold_many", self.leases, patience=300.0)
            start = perf_counter()
            with place.window() as server:
                client, threads = worker.ask("rest", self.seconds)
            seconds = perf_counter() - start
            lost = worker.ask("lost")
            records = place.records()
            worker.kill()  # to release thousands is not what is measured
        if records is not None:
            lost = max(lost, self.leases - records)
        return {
            "client": [client / seconds * 60],
            "server": [server.cpu_seconds / seconds * 60],
            "requests": [server.requests / seconds],
            "threads": [threads],
            "memory": [memory / 1e6],
            "lost": [lost],
        }
