"""What a run found out, as it is kept in ``results.json``: every sample, so that tables and charts can be made anew."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = "results.json"
KINDS = ("ours", "peer", "floor")


@dataclass(frozen=True)
class Measure:
    """A column: which samples it is made of, how, and what is good."""

    key: str
    label: str
    unit: str
    series: str
    statistic: str = "median"
    """``median``, ``max``, ``min`` or a percentile such as ``p99``."""
    lower_is_better: bool = True
    digits: int = 1
    compared: bool = True
    """Whether a ratio to somebody else's means something."""

    def of(self, entry: Entry) -> float:
        return self.reduce(entry.samples[self.series])

    def reduce(self, values: Sequence[float]) -> float:
        match self.statistic:
            case "median":
                return statistics.median(values)
            case "max":
                return max(values)
            case "min":
                return min(values)
            case percentile:
                ranked = sorted(values)
                return ranked[min(len(ranked) - 1, int(len(ranked) * int(percentile[1:]) / 100))]

    def quartiles(self, entry: Entry) -> tuple[float, float] | None:
        return quartiles(entry.samples[self.series]) if self.statistic == "median" else None


@dataclass
class Entry:
    """What one contestant reached in one work."""

    name: str
    kind: str
    league: str
    """Ours of the same league is what it is compared with: threads with threads, tasks with tasks."""
    remark: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figures: dict[str, list[float]]) -> None:
        for series, values in figures.items():
            self.samples.setdefault(series, []).extend(float(f"{value:.6g}") for value in values)


@dataclass
class Absent:
    """Who is not in a table, and why."""

    name: str
    why: str


@dataclass
class Found:
    """All of one work."""

    name: str
    title: str
    measures: list[Measure]
    entries: list[Entry]
    absent: list[Absent]

    def __post_init__(self) -> None:
        """Rank them: ours first, floors last, the best first among the peers."""
        best = self.measures[0]
        sign = 1 if best.lower_is_better else -1
        self.entries.sort(key=lambda entry: (KINDS.index(entry.kind), sign * best.of(entry)))

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    def measure(self, key: str) -> Measure:
        return next(measure for measure in self.measures if measure.key == key)

    def ours_for(self, peer: Entry) -> Entry | None:
        """Return which of ours is compared with it."""
        ours = [entry for entry in self.entries if entry.kind == "ours"]
        same = [entry for entry in ours if entry.league == peer.league]
        return next(iter([*same, *ours]), None)


@dataclass
class Run:
    """All works of one run, and where and when it was."""

    at: str
    seconds: float
    quick: bool
    machine: dict[str, str]
    servers: dict[str, str]
    versions: dict[str, str]
    works: list[Found]

    def work(self, name: str) -> Found | None:
        return next((work for work in self.works if work.name == name), None)

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=1)
            file.write("\n")

    @classmethod
    def load(cls, path: str) -> Run:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        return cls(**{**data, "works": [_found(work) for work in data["works"]]})


@dataclass(frozen=True)
class Ratio:
    """A quotient, and its quartiles over the rounds."""

    value: float
    spread: tuple[float, float] | None


def ratio(measure: Measure, ours: Entry, theirs: Entry) -> Ratio | None:
    """Return how many times as good ours is, whichever direction is good."""
    return quotient(measure, theirs, ours) if measure.lower_is_better else quotient(measure, ours, theirs)


def quotient(measure: Measure, upper: Entry, lower: Entry) -> Ratio | None:
    """Divide: from round to round where these were in turns, else the whole. None if either is nothing."""
    above, below = upper.samples[measure.series], lower.samples[measure.series]
    if measure.of(upper) <= 0 or measure.of(lower) <= 0:
        return None
    if measure.statistic == "median" and len(above) == len(below) > 1 and min(below) > 0:
        values = [a / b for a, b in zip(above, below, strict=True)]
        return Ratio(statistics.median(values), quartiles(values))
    return Ratio(measure.of(upper) / measure.of(lower), None)


def quartiles(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 3:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _found(data: dict[str, Any]) -> Found:
    return Found(
        name=data["name"],
        title=data["title"],
        measures=[Measure(**measure) for measure in data["measures"]],
        entries=[Entry(**entry) for entry in data["entries"]],
        absent=[Absent(**absent) for absent in data["absent"]],
    )
