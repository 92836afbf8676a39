"""What a work found out: ratios, which travel from one computer to another, and absolutes, which don't."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Row(NamedTuple):
    what: str
    value: str
    goal: str = ""
    spread: str = ""


@dataclass
class Result:
    title: str
    ratios: list[Row] = field(default_factory=list)
    absolutes: list[Row] = field(default_factory=list)
    numbers: dict[str, float | int | list[float]] = field(default_factory=dict)
    """The same, unrounded, for programs that compare runs."""

    def ratio(self, key: str, what: str, values: Sequence[float], goal: str = "", *, digits: int = 2) -> None:
        """Add a ratio that was taken once a round: the median counts, and the quartiles say how far to trust it."""
        middle = statistics.median(values)
        self.numbers[key] = middle
        self.ratios.append(Row(what, f"{middle:.{digits}f}", goal, spread(values, digits)))

    def absolute(
        self, key: str, what: str, values: Sequence[float], unit: str, goal: str = "", *, digits: int = 1
    ) -> None:
        """Add a measurement that was taken once a round."""
        middle = statistics.median(values)
        self.numbers[key] = middle
        self.absolutes.append(Row(what, f"{middle:,.{digits}f} {unit}", goal, spread(values, digits)))

    def percentiles(self, key: str, what: str, values: Sequence[float], unit: str, *, digits: int = 2) -> None:
        """Add the middle and the tail of many single measurements."""
        p50, p99 = percentile(values, 50), percentile(values, 99)
        self.numbers[key + "_p50"], self.numbers[key + "_p99"] = p50, p99
        self.numbers[key + "_samples"] = list(values)
        self.absolutes.append(Row(what + ", p50", f"{p50:,.{digits}f} {unit}"))
        self.absolutes.append(Row(what + ", p99", f"{p99:,.{digits}f} {unit}"))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many per cent don't exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]


def spread(values: Sequence[float], digits: int) -> str:
    if len(values) < 4:
        return ""
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:,.{digits}f} to {high:,.{digits}f}"
