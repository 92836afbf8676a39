"""Short runs with real servers: that they work, and that what they say is there. How fast anything is, no test says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.contestant import Blocking
from bench.places import open_place
from bench.report import fill
from bench.results import Run
from bench.show import Show
from bench.works.throughput import Throughput
from lessor.testing.conformance.base import until
from tests.needs import not_here

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs/benchmarks"
PAGE = ROOT / "docs/explanation/benchmarks.md"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)


def measured(folder: Path) -> Run:
    """Read what a run has written, unless the machine has no such server."""
    run = Run.load(str(folder / "results.json"))
    for work in run.works:
        for absent in work.absent:
            if absent.name == "everybody":
                not_here(absent.why)
    return run


class Uninstalled(Blocking):
    name = "uninstalled"
    store = "sqlite"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import no_such_package_anywhere  # type: ignore[import-not-found]

        self.package = no_such_package_anywhere

    def acquire(self, resource: str) -> Callable[[], object]:
        raise NotImplementedError


class Breaking(Blocking):
    name = "breaking"
    store = "sqlite"

    def acquire(self, resource: str) -> Callable[[], object]:
        raise OSError("the disk is full\nand more")


def test_a_run_that_is_told_to_end_leaves_no_server_behind(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bench",
        "--quick",
        "--only",
        "redis",
        "--with",
        "lessor",
        "--out",
        str(tmp_path),
    ]
    children: set[int] = set()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:

        def has_a_server() -> bool:
            if run.poll() is not None:
                measured(tmp_path)
            children.update(map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()))
            return any(b"redis-server" in command_of(child) for child in children)

        try:
            until(has_a_server, "the server", 60)
            run.terminate()
            assert run.wait(60) == 0
            assert "interrupted" in Run.load(str(tmp_path / "results.json")).machine
            until(lambda: not any(map(command_of, children)), "the end of them all")
        finally:
            run.kill()
            for child in filter(command_of, children):
                os.kill(child, signal.SIGKILL)


def command_of(process: int) -> bytes:
    """Return what runs there; nothing where it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_quick_run_on_redis_prints_ratios_then_absolutes_then_goals(tmp_path: Path) -> None:
    works = ("--only", "redis.sequential", "--only", "redis.handover")
    done = bench("--quick", *works, "--with", "lessor", "--with", "redis-py Lock", "--out", str(tmp_path))
    run = measured(tmp_path)
    assert [work.name for work in run.works] == ["redis.sequential", "redis.handover"]
    for work in run.works:
        assert {entry.name for entry in work.entries} == {"lessor", "redis-py Lock"}, work.absent
    lines = done.stdout.splitlines()
    assert lines.index("RATIOS") < lines.index("ABSOLUTES") < lines.index("GOALS")
    assert any("speed / redis-py Lock" in line and "at least 1.8" in line for line in lines)
    assert any("lessor / redis-py Lock" in line and " x" in line for line in lines)
    assert "pinning: " in done.stdout
    assert "redis.handover" in done.stderr
    assert "| lessor / redis-py Lock |" in (tmp_path / "results.md").read_text()


@pytest.mark.long
def test_every_work_can_be_done(tmp_path: Path) -> None:
    bench("--quick", "--only", "sqlite", "--only", "check", "--with", "lessor", "--out", str(tmp_path))
    run = measured(tmp_path)
    assert len(run.works) == 9
    for work in run.works:
        assert work.entries, (work.name, work.absent)
        for entry in work.entries:
            assert all(entry.samples[measure.series] for measure in work.measures), (work.name, entry)


@pytest.mark.long
@pytest.mark.parametrize(
    ("store", "peer"), [("etcd", "aetcd Lock"), ("etcd", "etcdctl lock"), ("zookeeper", "kazoo Lock")]
)
def test_works_on_etcd_and_zookeeper_count_by_the_servers_own_numbers(tmp_path: Path, store: str, peer: str) -> None:
    if peer == "aetcd Lock" and find_spec("aetcd") is None:
        pytest.skip("aetcd is the benchmark's own, and not installed for the tests")
    works = ("--only", f"{store}.handover", "--only", f"{store}.holding1000", "--only", f"{store}.tries")
    bench("--quick", *works, "--with", "lessor", "--with", peer, "--out", str(tmp_path))
    handover, holding, tries = measured(tmp_path).works
    assert {entry.name for entry in handover.entries} == {"lessor", peer}, handover.absent
    ours = {work.name: entry for work in (holding, tries) for entry in work.entries if entry.name == "lessor"}
    assert ours[f"{store}.holding1000"].samples["lost"] == [0]
    traces = ours[f"{store}.tries"].samples
    assert traces["keys"] == traces["leases"] == traces["watches"] == [0]


def test_a_report_makes_tables_and_charts_from_the_numbers_alone(tmp_path: Path) -> None:
    run = Run.load(str(DOCS / "results.json"))
    run.works = [work for work in run.works if work.name in {"redis.sequential", "redis.handover"}]
    run.save(str(tmp_path / "results.json"))
    done = bench("report", str(tmp_path))
    assert "RATIOS" in done.stdout
    if find_spec("matplotlib") is None:
        assert "no charts: matplotlib isn't installed" in done.stderr
    else:
        drawn = {path.name for path in tmp_path.iterdir() if path.suffix in {".svg", ".png"}}
        names = ("redis-throughput", "redis-handover")
        assert drawn == {f"{name}.{ending}" for name in names for ending in ("svg", "png")}


@pytest.mark.long
def test_postgresql_is_started_with_its_data_on_the_disk(tmp_path: Path) -> None:
    names = ("--with", "raw psycopg", "--with", "pg_advisory_lock")
    done = bench("--quick", "--only", "postgresql.sequential", *names, "--pin", "none", "--out", str(tmp_path))
    (work,) = measured(tmp_path).works
    assert "fsync on, synchronous_commit on" in " ".join(done.stdout.split())
    assert {entry.name for entry in work.entries} == {"raw psycopg", "pg_advisory_lock"}, work.absent


@pytest.mark.parametrize(
    ("contestant", "why"),
    [
        (Uninstalled, "can't be imported: No module named 'no_such_package_anywhere'"),
        (Breaking, "OSError: the disk is full"),
    ],
)
def test_who_can_not_take_part_is_named_with_the_reason(contestant: type[Blocking], why: str) -> None:
    with open_place("sqlite") as place:
        found = Throughput(1, quick=True).run("sqlite", place, [contestant], Show(1))
    assert found.entries == []
    assert [(absent.name, absent.why) for absent in found.absent] == [(contestant.name, why)]


def test_no_such_work_is_an_error() -> None:
    command = [sys.executable, "-m", "bench", "--only", "redis.nonsense"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "no work is meant by redis.nonsense" in done.stderr


def test_the_page_of_the_docs_shows_the_numbers_that_are_kept() -> None:
    run = Run.load(str(DOCS / "results.json"))
    assert not run.quick
    assert fill(str(PAGE), run, str(DOCS)) == PAGE.read_text(encoding="utf-8")
