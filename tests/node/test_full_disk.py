"""A node whose disk is full, is read-only or fails: it says so, leaves nothing behind, and promises nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from lessor.core.ops import Acquire, Unknown
from lessor.core.paxos.acceptor import Durable
from lessor.core.paxos.starting import Snapshot
from lessor.node.disk import DataFolder, DiskError
from lessor.node.scribe import Scribe
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, new_id, ns, taken
from tests.servers.paxos import PaxosNode, paxos_cluster
from tests.servers.small_disk import SmallDisk, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FULL = "No space left on device"
DISK = 74


@pytest.fixture
def disk() -> Iterator[tuple[PaxosNode, SmallDisk]]:
    """A node that has not been prepared yet, on a small disk."""
    with tempfile.TemporaryDirectory(prefix="lessor-disk-") as folder:
        node = PaxosNode(folder, "a", "--max-ttl", "1s")
        with small_disk(node.data) as small:
            node.inside = small.inside
            try:
                yield node, small
            finally:
                node.end()


def prepare(node: PaxosNode) -> tuple[int, str]:
    """Run it with --init; return how that ended, and what it said."""
    done = subprocess.run([*node.command([]), "--init"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stderr


def served(node: PaxosNode) -> None:
    assert prepare(node)[0] == 0
    node.launch([])
    node.wait()


def hold(node: PaxosNode) -> None:
    """Take a lease, so that there is something to save."""
    with contextlib.closing(open_store(f"paxos://{node.place}", SYSTEM)) as store:
        taken(store, "job", 1)


# --- a full disk --------------------------------------------------------------------------------------------------


def test_a_node_that_is_told_to_stop_says_that_nothing_was_saved_and_what_that_means(
    disk: tuple[PaxosNode, SmallDisk],
) -> None:
    node, small = disk
    served(node)
    hold(node)
    small.fill()
    assert node.shut_down() == DISK
    said = node.log()
    assert FULL in said
    assert '"clean": false' in said
    assert "the next start is silent at first, as after a crash" in said
    assert "internal error" not in said
    assert sorted(os.listdir(small.here)) == ["filler", "lock", "mark", "node.json"]
    small.empty()
    node.launch([])
    node.wait("silent", "serving")
    assert '"state": "silent"' in node.log()
    node.wait()
    assert node.shut_down() == 0
    assert "state" in os.listdir(small.here)


def test_a_folder_on_a_full_disk_is_not_prepared_and_can_be_later(disk: tuple[PaxosNode, SmallDisk]) -> None:
    node, small = disk
    small.fill()
    code, said = prepare(node)
    assert code == DISK
    assert FULL in said
    assert "internal error" not in said
    assert not {"node.json", "node.json.new"} & set(os.listdir(small.here))
    small.empty()
    served(node)


def test_a_node_does_not_start_on_a_read_only_disk(disk: tuple[PaxosNode, SmallDisk]) -> None:
    node, small = disk
    served(node)
    hold(node)
    assert node.shut_down() == 0
    small.remount("ro")
    node.launch([])
    assert node.exit_code() == DISK
    assert "Read-only file system" in node.log()
    small.remount("rw")
    assert "state" in os.listdir(small.here), "what the clean shutdown left is lost"
    node.launch([])
    node.wait()
    assert '"state": "silent"' not in node.log()


def test_a_node_that_cannot_write_its_mark_answers_nothing_and_stops() -> None:
    """Nothing may be written beyond the first page of any file, where the mark's next slot is."""
    with paxos_cluster(1) as cluster, contextlib.closing(open_store(cluster.url, SYSTEM)) as store:
        (node,) = cluster.nodes
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        longest = Acquire("job", new_id(), "h", ns(60))  # of all leases so far: that has to be on the disk first
        (outcome,) = store.apply([longest], timeout=1)
        assert isinstance(outcome, Unknown)
        assert node.exit_code() == DISK
        said = node.log()
        assert "the disk failed" in said
        assert "mark' can't be read or written: File too large" in said
        assert '"clean": false' in said
        assert not os.path.exists(f"{node.data}/state")


# --- one that fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_sync_that_fails_at_the_start_is_an_error_of_the_disk(call: str) -> None:
    with paxos_cluster(1) as cluster:
        (node,) = cluster.nodes
        node.kill()
        program = (
            "import errno, os\n"
            "def broken(_): raise OSError(errno.EIO, os.strerror(errno.EIO))\n"
            f"os.{call} = broken\n"
            "from lessor.runtime.clock import SYSTEM\n"
            "SYSTEM.__class__.wall_us = lambda self: 1 << 51\n"  # so that the mark has to be written
            "from lessor.cli.main import main\n"
            "raise SystemExit(main())"
        )
        words = node.command(cluster.nodes)[3:]
        ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, timeout=60, check=False)
        assert ended.returncode == DISK
        assert b"Input/output error" in ended.stderr


def test_a_state_that_cannot_be_synced_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with DataFolder(str(tmp_path), "a") as folder:
        folder.mark.write(Durable(7, 7))
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(DiskError, match=r"state' can't be read or written: Input/output error"):
            folder.write_snapshot(Snapshot(7, ()))
        assert sorted(os.listdir(tmp_path)) == ["lock", "mark", "node.json"]


def test_a_state_that_cannot_be_deleted_keeps_the_node_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with DataFolder(str(tmp_path), "a") as folder:
        folder.write_snapshot(Snapshot(7, ()))
        monkeypatch.setattr(os, "unlink", broken)
        with pytest.raises(DiskError, match="Input/output error"):
            folder.delete_snapshot()


def test_a_mark_that_cannot_be_written_just_before_the_end_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No callback is run any more by then."""

    def full(_descriptor: int, _data: bytes, _at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    told: list[DiskError] = []
    with DataFolder(str(tmp_path), "a") as folder:
        scribe = Scribe(folder.mark, lambda _: None, told.append)
        scribe.write(Durable(7, 7))
        scribe.close()
        assert scribe.error is not None
        assert [scribe.error] == told
        assert FULL in str(scribe.error)
