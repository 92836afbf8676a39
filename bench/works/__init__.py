"""All works, in the order in which they are done and shown."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from bench.works.check import Check
from bench.works.contention import Contention
from bench.works.handover import Handover
from bench.works.holding import Holding
from bench.works.imports import Imports
from bench.works.renewing import Renewing
from bench.works.takeover import Takeover
from bench.works.throughput import Throughput
from bench.works.tries import Tries

if TYPE_CHECKING:
    from bench.works.base import Work


def on_stores(*, quick: bool) -> list[Work[Any]]:
    return [
        *(Throughput(callers, quick=quick) for callers in (1, 16, 64, 256)),
        Handover(quick=quick),
        Contention(quick=quick),
        Takeover(quick=quick),
        *(Holding(leases, quick=quick) for leases in (1_000, 10_000)),
        Renewing(quick=quick),
        Tries(quick=quick),
    ]


def on_no_store(*, quick: bool) -> list[Imports | Check]:
    return [Imports(quick=quick), Check(quick=quick)]


def selected(name: str, patterns: list[str]) -> bool:
    """Whether one of the patterns means this work: by its name, its store, or what it does on any store."""
    return not patterns or any(fnmatch(part, pattern) for part in (name, *name.split(".")) for pattern in patterns)
