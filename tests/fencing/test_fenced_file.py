from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lessor import Client, ConfigError, Fenced, LessorError, StoreUnavailable
from lessor.fencing import FencedFile
from tests.fencing.bearers import bad_bearers


@pytest.fixture
def file(tmp_path: Path) -> FencedFile:
    return FencedFile(tmp_path / "report.txt")


def test_older_is_refused_equal_passes_newer_is_remembered(file: FencedFile) -> None:
    file.write(("job", 5), "first")
    file.write(("job", 5), b"second")
    with pytest.raises(Fenced) as refused:
        file.write(("job", 4), "stale")
    assert (refused.value.resource, refused.value.token, refused.value.newest) == ("job", 4, 5)
    assert (file.read(), file.token) == (b"second", 5)
    file.write(("job", 6), "dünn")
    assert (file.read(), file.token) == ("dünn".encode(), 6)


def test_it_remembers_for_other_objects_and_other_ways_to_the_file(file: FencedFile, tmp_path: Path) -> None:
    file.write(("job", 5), "x")
    (tmp_path / "link").symlink_to("report.txt")
    for path in (tmp_path / "report.txt", tmp_path / "link", str(tmp_path / "." / "report.txt")):
        with pytest.raises(Fenced):
            FencedFile(path).write(("job", 4), "stale")
    FencedFile(tmp_path / "link").write(("job", 6), "y")
    assert (tmp_path / "link").is_symlink()
    assert (file.read(), file.token) == (b"y", 6)


def test_a_lease_writes_until_it_is_released(file: FencedFile) -> None:
    with Client("memory://fenced-file") as leases:
        with leases.acquire("job", ttl=30) as lease:
            file.write(lease, "mine")
        with pytest.raises(LessorError, match="released"):
            file.write(lease, "late")
    assert file.read() == b"mine"


def test_a_file_that_was_there_before_and_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("before")
    file = FencedFile(path)
    assert (file.read(), file.token) == (b"before", None)
    file.write(("job", 1), "")
    assert file.read() == b""
    with pytest.raises(FileNotFoundError):
        FencedFile(tmp_path / "new").read()


def test_tokens_of_two_resources_are_not_compared(file: FencedFile) -> None:
    file.write(("a", 1), "x")
    with pytest.raises(ConfigError, match="fenced by 'a'"):
        file.write(("b", 2), "y")
    assert (file.read(), file.token) == (b"x", 1)


@bad_bearers
def test_what_can_not_be_a_stamp_changes_nothing(
    file: FencedFile, bearer: Any, error: type[LessorError], text: str
) -> None:
    file.write(("job", 5), "x")
    with pytest.raises(error, match=text):
        file.write(bearer, "y")
    assert (file.read(), file.token) == (b"x", 5)


@pytest.mark.parametrize("data", [None, 3, ["x"], bytearray(b"x")])
def test_what_is_neither_bytes_nor_text_changes_nothing(file: FencedFile, data: Any) -> None:
    with pytest.raises(ConfigError, match="bytes or str"):
        file.write(("job", 1), data)
    assert file.token is None


@pytest.mark.parametrize("path", ["", "folder/", None, 3, b"report", "nul\0"])
def test_what_does_not_name_a_file(path: Any) -> None:
    with pytest.raises(ConfigError, match="does not name a file"):
        FencedFile(path)


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    file = FencedFile(tmp_path / "report")
    with pytest.raises(ConfigError, match="is a folder"):
        file.write(("job", 1), "x")
    assert file.token is None


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FencedFile(tmp_path / "no" / "report").write(("job", 1), "x")


@pytest.mark.parametrize(
    "content", [b"", b"7", b"{}", b"[]", b"\xff", b'{"format": 2, "resource": "job", "token": 1}',
                b'{"format": 1, "resource": "job", "token": "1"}', b'{"format": 1, "resource": "job", "token": 1'],
)  # fmt: skip
def test_a_token_that_can_not_be_understood_lets_nobody_in(file: FencedFile, content: bytes) -> None:
    file.write(("job", 5), "x")
    Path(file.path + ".fence-token").write_bytes(content)
    with pytest.raises(ConfigError, match="can't be understood"):
        file.write(("job", 6), "y")
    with pytest.raises(ConfigError, match="can't be understood"):
        _ = file.token
    assert file.read() == b"x"


def test_the_longest_resource_name(file: FencedFile) -> None:
    name = "\U0001f512" * 128
    file.write((name, 1), "x")
    file.write((name, 2), "y")
    assert file.token == 2


def test_permissions_are_kept(file: FencedFile) -> None:
    file.write(("job", 1), "x")
    os.chmod(file.path, 0o400)
    file.write(("job", 2), "y")
    file.write(("job", 2), "z")
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o400
    assert file.read() == b"z"


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.parametrize("token", [5, 6])
def test_a_disk_that_fails_loses_nothing(
    file: FencedFile, step: str, token: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file.write(("job", 5), "before")
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, step, fail)
        with pytest.raises(OSError, match="No space left"):
            file.write(("job", token), "after")
    assert (file.read(), file.token) == (b"before", 5)
    assert not Path(file.path + ".fence-new").exists()
    file.write(("job", token), "after")
    assert file.read() == b"after"


def test_the_order_of_the_steps_is_the_one_that_survives_a_power_failure(
    file: FencedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write(("job", 1), "old")
    steps: list[str] = []
    opened: dict[int, str] = {}
    real_open, real_fsync, real_replace = os.open, os.fsync, os.replace

    def note_open(path: Any, *rest: Any) -> int:
        number = real_open(path, *rest)
        opened[number] = os.path.basename(path) if os.path.isfile(path) else "folder"
        return number

    def note_fsync(number: int) -> None:
        steps.append(f"sync {opened[number]}")
        real_fsync(number)

    def note_replace(source: str, target: str) -> None:
        steps.append(f"rename to {os.path.basename(target)}")
        real_replace(source, target)

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    file.write(("job", 2), "new")
    assert steps == [
        "sync report.txt.fence-new",
        "sync report.txt.fence-token.new",
        "rename to report.txt.fence-token",
        "sync folder",
        "rename to report.txt",
        "sync folder",
    ]
    steps.clear()
    file.write(("job", 2), "again")
    assert steps == ["sync report.txt.fence-new", "sync folder", "rename to report.txt", "sync folder"]


def test_a_writer_that_keeps_the_lock_is_not_waited_for_without_end(file: FencedFile, tmp_path: Path) -> None:
    file.write(("job", 1), "x")
    with open(file.path + ".fence-lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="locked by another writer"):
            FencedFile(file.path, timeout=0).write(("job", 2), "y")
        assert file.read() == b"x"  # reads need no lock
    file.write(("job", 2), "y")


def test_a_lock_file_that_is_deleted_meanwhile_locks_nobody_out_or_in(file: FencedFile) -> None:
    file.write(("job", 1), "x")
    with open(file.path + ".fence-lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(file.write, ("job", 2), "y")
            os.unlink(held.name)  # whoever waits for this one finds that it isn't the one any more
            writing.result(60)
    assert file.read() == b"y"


def test_no_stale_write_among_threads(file: FencedFile) -> None:
    start = threading.Barrier(4)

    def write(token: int) -> None:
        start.wait(60)
        for number in range(10):
            try:
                file.write(("job", token), f"{token} {number}")
            except Fenced:
                return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert (file.read(), file.token) == (b"3 9", 3)
