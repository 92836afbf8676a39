"""A worker that is going to be restarted: ``python -m tests.crossprocess.restarted``.

Whichever of them holds the lease does the work: units that become due one after the other, each of them once. What it
has done it notes in a checkpoint now and then, as programs do. With ``drain`` it drains on SIGTERM, and hands over to
the first that waits, with its exact place; without, SIGTERM ends it as it ends any program.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lessor import Client, Draining, LeaseLost, drain_on_sigterm
from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from lessor import Lease, Term

JOB = "orders"
EVERY_NS = 10_000_000
"""One unit is due each time."""
CHECKPOINT = 25
THREADS = 3


class Units:
    """The units that are due, from a place on."""

    def __init__(self, folder: Path, begun_ns: int, place: int) -> None:
        self._folder, self._begun_ns = folder, begun_ns
        self._next = self._done_below = place
        self._done: set[int] = set()
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """Return the next unit, if one is due."""
        with self._lock:
            if SYSTEM.host_ns() < self._begun_ns + self._next * EVERY_NS:
                return None
            self._next += 1
            return self._next - 1

    def finish(self, unit: int) -> None:
        """Note that it is done and, now and then, keep that for the next one."""
        with self._lock:
            self._done.add(unit)
            while self._done_below in self._done:
                self._done.remove(self._done_below)
                self._done_below += 1
            if unit % CHECKPOINT == 0:
                scratch = self._folder / f"checkpoint.{os.getpid()}"
                scratch.write_text(str(self._done_below))
                scratch.replace(self._folder / "checkpoint")

    def place(self) -> bytes:
        """Return how far the work has come, once nothing is in flight."""
        assert not self._done
        return str(self._done_below).encode()


class Worker:
    """One process."""

    def __init__(self, url: str, folder: Path, name: str, begun_ns: int, ttl: float) -> None:
        self._ttl = ttl
        self._client = Client(url, holder=name)
        self._folder, self._name, self._begun_ns = folder, name, begun_ns
        self._log = (folder / f"{name}.log").open("a", buffering=1)

    def run(self, *, drain: bool) -> None:
        if drain:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # while it waits; who leads drains
        with self._client:
            for term in self._client.campaign(JOB, self._ttl):
                units = self._begin(term)
                with term:
                    if not drain:
                        self._work(term.lease, units)
                        continue
                    with drain_on_sigterm(term.lease, timeout=20, to=self._heir, state=units.place) as sigterm:
                        self._work(term.lease, units)
                    if sigterm.begun.is_set():
                        return

    def _begin(self, term: Term) -> Units:
        self._note("got", token=term.token)
        inherited = term.lease.inherited
        checkpoint = self._folder / "checkpoint"
        place = inherited or (checkpoint.read_bytes() if checkpoint.exists() else b"")
        return Units(self._folder, self._begun_ns, int(place or b"0"))

    def _heir(self) -> str | None:
        """Name who goes on, now that nothing is in flight; here, so that the time of the end is known."""
        heir = next((contender.holder for contender in self._client.contenders(JOB)), None)
        self._note("gives")
        return heir

    def _work(self, lease: Lease, units: Units) -> None:
        threads = [threading.Thread(target=self._serve, args=(lease, units)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self, lease: Lease, units: Units) -> None:
        try:
            while True:
                with lease.work():
                    unit = units.take()
                    if unit is not None:
                        self._do(unit)
                        units.finish(unit)
                if unit is None:
                    time.sleep(0.002)
        except (Draining, LeaseLost):
            return

    def _do(self, unit: int) -> None:
        """Do what nobody must do a second time."""
        time.sleep(0.004)
        self._note("did", unit=unit)
        time.sleep(0.004)

    def _note(self, what: str, **more: object) -> None:
        self._log.write(json.dumps({"what": what, "at": SYSTEM.host_ns(), "by": self._name, **more}) + "\n")


if __name__ == "__main__":
    its_url, its_folder, its_name, its_start, its_ttl, how = sys.argv[1:]
    Worker(its_url, Path(its_folder), its_name, int(its_start), float(its_ttl)).run(drain=how == "drain")
