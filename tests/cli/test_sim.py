from __future__ import annotations

import multiprocessing
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from lessor.cli.main import main
from lessor.cli.sim import Progress
from lessor.sim.seeds import Failure, Report, run
from lessor.sim.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path


def test_run_counts_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", "--seeds", "5"]) == 0
    told = capsys.readouterr().out
    for word in (
        "leases acquired",
        "renewals",
        "node crashes",
        "partitions",
        "drifted clocks",
        "no invariant was broken",
    ):
        assert word in told


def test_progress_is_told_without_a_terminal_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lessor.cli.sim.EVERY_NS", 0)
    assert main(["sim", "run", "--seeds", "12"]) == 0
    assert capsys.readouterr().err.splitlines() == ["10 of 12 worlds, 0 broken", "12 of 12 worlds, 0 broken"]


def test_a_broken_world_is_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(100)
    failure = Failure(7, "I1", "I1 at 1.0 s: two of them")
    for worlds in (10, 20):
        progress(Report(Tally(worlds=worlds), (failure,)))
    assert capsys.readouterr().err == "seed 7: I1 at 1.0 s: two of them\n"


def test_replay_prints_what_happened_twice_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "replay", "3"]) == 0
    first = capsys.readouterr().out
    assert "holds" in first
    assert main(["sim", "replay", "3"]) == 0
    assert capsys.readouterr().out == first


def test_a_timeline_shows_who_held_what(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "world.svg"
    assert main(["sim", "replay", "3", "--timeline", str(picture)]) == 0
    rows = {line[:2].strip(): line[4:] for line in capsys.readouterr().out.splitlines()}
    assert "1" in rows["c0"] + rows["c1"]
    assert "~" in rows["a"] + rows["b"] + rows["c"]
    drawn = ET.parse(picture)
    titles = [title.text or "" for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert any(" holds x" in title for title in titles)
    assert any("crash" in title for title in titles)


@pytest.mark.parametrize("words", [["run", "--seeds", "0"], ["run", "--jobs", "x"], ["replay"], ["replay", "x"], []])
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    assert main(["sim", *words]) == 64


def test_ctrl_c_in_the_moment_in_which_the_processes_are_started_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = ProcessPoolExecutor.submit
    chunks: list[object] = []

    def press_and_submit(pool: ProcessPoolExecutor, *task: Any) -> Future[Any]:
        if not chunks:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        chunks.append(task)
        return submit(pool, *task)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", press_and_submit)
    with pytest.raises(KeyboardInterrupt):
        run(1000, 2, progress=lambda _: None)
    assert len(chunks) < 100
    assert multiprocessing.active_children() == []
