"""Five candidates on each store, and their leaders killed, stopped beyond the TTL, or made to resign.

The short runs are for every day; ``make chaos`` has the long ones, which are about time, too.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from typing import TYPE_CHECKING

import pytest

from tests.crossprocess.election import Field, hold_election, judge
from tests.crossprocess.stalls import Stalls
from tests.measured import kind_of, note
from tests.scale import chaotic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crossprocess.election import Report

TTL = 1.0
LATE = 0.2
COARSE = {"etcd": 1.5, "zookeeper": 1.5}
"""Seconds that a server may add that looks for what has expired now and then."""
SOON = 0.01
BY_SEVERAL_WRITES = {"etcd": 0.05, "zookeeper": 0.05}
"""Where a change of the leader takes several writes, each on the disk of a majority."""


def check(report: Report, rounds: int) -> None:
    assert report.terms > rounds
    assert report.overlaps == [], "two holders at once"
    assert report.out_of_order == 0
    assert report.writes > 0


def test_there_is_never_more_than_one_leader_and_always_another(url: str, tmp_path: Path) -> None:
    check(hold_election(url, tmp_path, rounds=5, ttl=TTL, seed=3), 5)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("url", ["sqlite", "redis", "postgresql", "paxos", "etcd", "zookeeper"], indirect=True)
def test_hundreds_of_rounds(url: str, tmp_path: Path) -> None:
    store = kind_of(url)
    began, rounds = time.monotonic(), chaotic(50 if store in COARSE else 200)
    report = hold_election(url, tmp_path, rounds=rounds, ttl=TTL, seed=11)
    note("election", store, **report.numbers(), minutes=(time.monotonic() - began) / 60)
    check(report, rounds)
    assert report.writes > report.terms
    assert report.refused >= len(report.leaderless["stop"]) - 1  # the last one may not have come to it
    assert max(report.own("kill")) <= TTL + LATE + COARSE.get(store, 0)
    assert statistics.median(report.own("resign")) < BY_SEVERAL_WRITES.get(store, SOON)


def test_two_leaders_at_once_and_a_late_write_would_be_seen(tmp_path: Path) -> None:
    Field("memory://", tmp_path, TTL)
    notes = [
        {"what": "elected", "at": 100, "by": "a", "token": 1},
        {"what": "believes", "at": 110, "by": "a", "token": 1, "until": 300},
        {"what": "elected", "at": 299, "by": "b", "token": 2},
    ]
    (tmp_path / "a.log").write_text("".join(json.dumps(note) + "\n" for note in notes))
    with contextlib.closing(Field.writes(tmp_path)) as db:
        db.executemany("INSERT INTO writes (token, at) VALUES (?, 0)", [(1,), (2,), (1,)])
    report = judge(tmp_path, [("kill", 1, 200)], Stalls())
    assert len(report.overlaps) == 1
    assert report.out_of_order == 1
    assert report.leaderless == {"kill": [99e-9]}
