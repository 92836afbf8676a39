"""``kill -9`` at every step of a fenced write: no older token wins later, nothing newer is lost, nothing is torn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def rounds(folder: Path, order: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.fencing.crash", str(folder), order]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def stale_overwrites(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found if one["token"] == 2 and one["before"] == "new" and one["after older"] == "stale"]


def test_a_write_that_is_killed_at_any_step(tmp_path: Path) -> None:
    found = rounds(tmp_path, "right")
    assert sum(one["killed"] for one in found) >= 30
    assert [one["killed"] for one in found].count(False) == 2  # one write of each kind that no kill came to
    for one in found:
        assert one["before"] in ("old", "new"), one
        assert one["killed"] or one["before"] == "new", one
        assert (one["holder let in"], one["next let in"], one["after all"]) == (True, True, "next"), one
        assert one["left over"] == [], one
        if one["token"] == 2:
            # New data is never without its token, and under the new token nobody older gets in.
            assert one["before"] == "old" or one["seen"] == 2, one
            assert one["older let in"] == (one["seen"] == 1), one
            assert one["after older"] == ("stale" if one["seen"] == 1 else one["before"]), one
    assert stale_overwrites(found) == []
    # There were kills in between: under the new token lies the old data.
    assert any(one["token"] == 2 and one["seen"] == 2 and one["before"] == "old" for one in found)


def test_the_other_order_would_let_an_older_token_win(tmp_path: Path) -> None:
    assert stale_overwrites(rounds(tmp_path, "swapped")) != []
