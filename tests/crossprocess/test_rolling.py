"""Three workers under load are restarted one after the other. ``make chaos`` has the long runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crossprocess.rolling import TTL, roll
from tests.measured import kind_of, note
from tests.scale import chaotic

if TYPE_CHECKING:
    from pathlib import Path


LONG = 40.0
"""A TTL that nobody waits for, on any machine."""
HANDING_OVER = pytest.mark.parametrize("url", ["sqlite", "redis", "postgresql", "paxos"], indirect=True)
"""The stores on which a lease can be handed over, and that come with a server here."""


@HANDING_OVER
def test_no_unit_is_lost_or_done_twice_and_nobody_waits_for_the_ttl(url: str, tmp_path: Path) -> None:
    report = roll(url, tmp_path, drain=True, cycles=1, ttl=LONG)
    assert len(report.restarts) == 3
    assert len(report.gaps) == 3
    assert (report.lost, report.twice) == ([], [])
    assert max(report.gaps) < LONG / 2


def test_without_a_drain_work_is_done_twice_and_the_ttl_is_waited_for(tmp_path: Path) -> None:
    report = roll(f"sqlite:///{tmp_path}/leases.db", tmp_path, drain=False, cycles=2, ttl=TTL)
    assert report.twice
    assert max(report.gaps) > TTL / 2


@HANDING_OVER
@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_hundred_restarts(url: str, tmp_path: Path) -> None:
    cycles = chaotic(34)
    report = roll(url, tmp_path, drain=True, cycles=cycles, ttl=TTL)
    note("rolling", kind_of(url), **report.numbers())
    assert len(report.gaps) >= 3 * cycles - 2
    assert (report.lost, report.twice) == ([], [])
    assert report.numbers()["own_p99_ms"] < 100


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_the_same_without_drain(tmp_path: Path) -> None:
    report = roll(f"sqlite:///{tmp_path}/leases.db", tmp_path, drain=False, cycles=chaotic(7), ttl=TTL)
    note("rolling", "sqlite without drain", **report.numbers())
    assert report.lost == []
    assert report.twice
    assert max(report.gaps) > TTL / 2
