"""The data folder: one whole mark is always there, and nothing that a crash must not find."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lessor.core.paxos.acceptor import Config, Durable
from lessor.core.paxos.messages import Accept, Look, Request
from lessor.core.paxos.starting import shut_down, start
from lessor.errors import ConfigError
from lessor.node.disk import DataFolder, MarkFile
from lessor.node.process import init
from lessor.node.scribe import Scribe
from lessor.testing.conformance.base import until
from tests.core.paxos.cluster import acceptor as new_acceptor
from tests.core.paxos.cluster import ask, asking

if TYPE_CHECKING:
    from pathlib import Path


def damage(path: str, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"?")


def test_the_mark_that_was_written_last_is_read(tmp_path: Path) -> None:
    mark = MarkFile(str(tmp_path / "mark"))
    assert mark.read() is None
    for n in range(5):
        mark.write(Durable(n, 10 * n))
        assert MarkFile(str(tmp_path / "mark")).read() == Durable(n, 10 * n)


def test_a_torn_write_leaves_the_mark_before_it(tmp_path: Path) -> None:
    path = str(tmp_path / "mark")
    for n, torn_at in ((1, 4096), (2, 0)):
        mark = MarkFile(path)
        mark.read()
        mark.write(Durable(n, 0))
        mark.write(Durable(n + 10, 0))
        newest = next(at for at in (0, 4096) if (n + 10).to_bytes(8) in os.pread(mark._file, 40, at))
        damage(path, newest + 20)
        assert MarkFile(path).read() == Durable(n, 0), torn_at


def test_two_damaged_slots_are_no_mark(tmp_path: Path) -> None:
    path = str(tmp_path / "mark")
    mark = MarkFile(path)
    mark.write(Durable(1, 0))
    mark.write(Durable(2, 0))
    damage(path, 20)
    damage(path, 4096 + 20)
    assert MarkFile(path).read() is None


def test_a_mark_that_was_cut_short_is_none(tmp_path: Path) -> None:
    path = str(tmp_path / "mark")
    MarkFile(path).write(Durable(1, 0))
    os.truncate(path, 4096 + 10)
    assert MarkFile(path).read() is None


def test_a_clean_shutdown_leaves_what_is_held_and_a_start_deletes_it(tmp_path: Path) -> None:
    before = new_acceptor("a")
    ask(before, Accept(asking("me", metadata='{"why":"because"}'), 1000), 10)
    with DataFolder(str(tmp_path), "a") as folder:
        snapshot = shut_down(before, 20)
        assert snapshot is not None
        folder.write_snapshot(snapshot)
        found = folder.read_snapshot()
        assert found == snapshot
        after = start(Config("a"), 2, 500, durable=Durable(1000, 0), snapshot=found).acceptor
        reply = after.handle(Request(1, (Look("job"),)), 500, 0).reply
        assert reply is not None
        assert reply.verdicts[0].records[0].metadata == {"why": "because"}  # type: ignore[union-attr]
        folder.delete_snapshot()
        assert folder.read_snapshot() is None


@pytest.mark.parametrize("at", [0, 9, 30])
def test_a_damaged_shutdown_file_is_none(tmp_path: Path, at: int) -> None:
    before = new_acceptor("a")
    ask(before, Accept(asking("me"), 1000), 10)
    with DataFolder(str(tmp_path), "a") as folder:
        snapshot = shut_down(before, 20)
        assert snapshot is not None
        folder.write_snapshot(snapshot)
        damage(str(tmp_path / "state"), at)
        assert folder.read_snapshot() is None


def test_two_nodes_on_one_folder_are_refused(tmp_path: Path) -> None:
    with DataFolder(str(tmp_path), "a"), pytest.raises(ConfigError, match="another node runs"):
        DataFolder(str(tmp_path), "a")


def test_another_nodes_folder_is_refused(tmp_path: Path) -> None:
    with DataFolder(str(tmp_path), "a"):
        pass
    with pytest.raises(ConfigError, match="is that of node 'a'"):
        DataFolder(str(tmp_path), "b")


def test_a_folder_in_use_is_not_prepared_for_a_new_cluster(tmp_path: Path) -> None:
    init(str(tmp_path), "a")
    with pytest.raises(ConfigError, match="in use already"):
        init(str(tmp_path), "a")


def test_nor_is_one_whose_mark_is_damaged(tmp_path: Path) -> None:
    """Nobody knows what was promised by it."""
    init(str(tmp_path), "a")
    with DataFolder(str(tmp_path), "a") as folder:
        folder.mark.read()
        folder.mark.write(Durable(5, 0))
    for at in (20, 4096 + 20):
        damage(str(tmp_path / "mark"), at)
    with pytest.raises(ConfigError, match="is damaged"):
        init(str(tmp_path), "a")


def test_the_scribe_writes_the_highest_of_all_that_waits(tmp_path: Path) -> None:
    mark = MarkFile(str(tmp_path / "mark"))
    done: list[Durable] = []
    scribe = Scribe(mark, done.append, lambda error: pytest.fail(str(error)))
    for n in range(100):
        scribe.write(Durable(n, 100 - n))
    until(lambda: bool(done) and done[-1].high_water == 99, "the last write")
    scribe.close()
    assert MarkFile(str(tmp_path / "mark")).read() == done[-1]
    assert max(durable.span_ns for durable in done) == 100
    mark.close()


def test_what_was_written_is_never_lowered_by_who_asks_for_less(tmp_path: Path) -> None:
    """As a grant of a short TTL does that comes while the mark of a long one is being synced."""
    mark = MarkFile(str(tmp_path / "mark"))
    done: list[Durable] = []
    scribe = Scribe(mark, done.append, lambda error: pytest.fail(str(error)))
    scribe.write(Durable(5000, 60))
    until(lambda: bool(done), "the first write")
    scribe.write(Durable(200, 5))
    until(lambda: len(done) == 2, "the second write")
    scribe.close()
    mark.close()
    assert MarkFile(str(tmp_path / "mark")).read() == Durable(5000, 60)
