"""A soak goes on where it was stopped, and tells what failed in which round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests import soak
from tests.run import Row

if TYPE_CHECKING:
    from pathlib import Path

PASSED = '<testsuite><testcase classname="a" name="x"/></testsuite>'
FAILED = '<testsuite><testcase classname="a" name="x"><failure/></testcase></testsuite>'


@pytest.fixture
def statuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the next rounds return, each in place of a run of the tests."""
    statuses: list[int] = []

    def run(_phases: Any, *_more: str, output: Any) -> list[Row]:
        status = statuses.pop(0)
        (soak.FOLDER / "tests.xml").write_text(PASSED if status == 0 else FAILED)
        output.write(b"what it printed")
        return [Row("tests", 400.0, status)]

    monkeypatch.setattr(soak, "FOLDER", tmp_path)
    monkeypatch.setattr(soak, "ROUNDS", tmp_path / "rounds.jsonl")
    monkeypatch.setattr(soak, "run", run)
    monkeypatch.setattr(soak, "_commit", lambda: "this")
    return statuses


def test_a_stopped_soak_goes_on_where_it_was(statuses: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    statuses += [0, 0, 2]
    assert not soak.soak(3, [])
    assert "stopped" in capsys.readouterr().out
    statuses.append(0)
    assert soak.soak(3, [])
    told = capsys.readouterr().out
    assert "round 3 of 3" in told
    assert "round 2 of 3" not in told
    assert told.count("   6:40       1       0") == 4  # the new round at its end, and all three in the table


def test_a_round_that_failed_is_named_and_its_output_kept(
    statuses: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses += [1, 0]
    assert not soak.soak(2, [])
    told = capsys.readouterr().out
    assert "a::x" in told
    assert "status 1" in told
    assert [path.name for path in tmp_path.glob("*.log")] == ["round-1.log"]


def test_rounds_of_another_commit_do_not_count(
    statuses: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses += [0, 0]
    assert soak.soak(1, [])
    monkeypatch.setattr(soak, "_commit", lambda: "another")
    assert soak.soak(1, [])
    assert statuses == []
