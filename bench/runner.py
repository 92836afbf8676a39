"""Runs the selected works on the selected contestants, one store after the other."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from fnmatch import fnmatch
from time import monotonic
from typing import TYPE_CHECKING, Any

from bench.contestants import everybody
from bench.machine import Pinning, describe, load, versions
from bench.places import STORES, open_place
from bench.results import Absent, Found, Run
from bench.show import Show
from bench.worker import Failed
from bench.works import on_no_store, on_stores, selected

if TYPE_CHECKING:
    from bench.contestant import Contestant
    from bench.works.base import Work
    from bench.works.check import Check
    from bench.works.imports import Imports


class NothingToDo(Exception):  # noqa: N818 - as it says
    """No work has such a name."""


class Runner:
    """One run. Patterns select works and contestants; none selects all."""

    def __init__(self, *, only: list[str], names: list[str], quick: bool, pin: str | None) -> None:
        self._contestants: list[type[Contestant]] = [
            kind for kind in everybody() if not names or any(fnmatch(kind.name, name) for name in names)
        ]
        self._works: dict[str, list[Work[Any]]] = {
            store: [
                work
                for work in on_stores(quick=quick)
                if store in work.stores and selected(f"{store}.{work.name}", only)
            ]
            for store in STORES
        }
        self._others: list[Imports | Check] = [work for work in on_no_store(quick=quick) if selected(work.name, only)]
        self._count = sum(len(works) for works in self._works.values()) + len(self._others)
        if self._count == 0:
            raise NothingToDo(f"no work is meant by {', '.join(only)}; see --list")
        self._pinning = Pinning(pin)
        self._show = Show(self._count)
        self._run = Run(
            at=datetime.now(UTC).isoformat(),
            seconds=0.0,
            quick=quick,
            machine=describe(self._pinning),
            servers={},
            versions=versions(self._contestants),
            works=[],
        )

    def run(self) -> Run:
        """Do all, and return it; on an interrupt, return what is there."""
        start = monotonic()
        try:
            self._all()
        except KeyboardInterrupt:
            self._run.machine["interrupted"] = f"after {len(self._run.works)} of {self._count} works"
        self._run.seconds = round(monotonic() - start, 1)
        self._run.machine["load average at the end"] = load()
        return self._run

    def _all(self) -> None:
        for store, works in self._works.items():
            if works:
                self._on_store(store, works)
        with self._pinning.for_clients():
            for work in self._others:
                self._show.begin(work.name)
                self._done(work.run(self._contestants, self._show))

    def _on_store(self, store: str, works: list[Work[Any]]) -> None:
        with ExitStack() as stack:
            try:
                with self._pinning.for_servers():
                    place = stack.enter_context(open_place(store))
            except Failed as failure:
                self._run.servers[store] = str(failure)
                for work in works:
                    self._show.begin(f"{store}.{work.name}")
                    nobody = Absent("everybody", str(failure))
                    self._done(Found(f"{store}.{work.name}", work.title, list(work.measures), [], [nobody]))
                return
            self._run.servers[place.version] = ", ".join(f"{name} {value}" for name, value in place.settings().items())
            stack.enter_context(self._pinning.for_clients())
            for work in works:
                self._show.begin(f"{store}.{work.name}")
                self._done(work.run(store, place, self._contestants, self._show))

    def _done(self, found: Found) -> None:
        self._show.end(found)
        self._run.works.append(found)
