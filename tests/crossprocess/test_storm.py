"""8 processes, 1,000 rounds each, on one resource of the embedded store, with kill -9 at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crossprocess.storm import storm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.heavy


TTL = 1.0


@pytest.mark.timeout(300)
def test_no_update_is_lost_and_nobody_waits_long(tmp_path: Path) -> None:
    report = storm(tmp_path, workers=8, rounds=1000, kills=20, ttl=TTL, seed=7)
    assert report.kills == 20
    assert report.rounds >= 8000
    assert report.lost_updates == 0
    assert report.tokens == sorted(set(report.tokens)), "tokens don't increase strictly"
    assert report.longest_gap_after_kill <= TTL + 0.2
    assert report.longest_gap <= TTL + 0.2
