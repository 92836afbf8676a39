"""Files that can't be used, or not any more: a clear error, and nothing lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Release, Released, Unknown
from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.base import StoreURL
from lessor.stores.sqlite import SqliteStore, file
from lessor.testing.clock import FakeClock
from tests.needs import not_here, run_as_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.ops import Op, Outcome

TTL = 10 * SECOND


def take(store: SqliteStore, resource: str = "r", lease_id: str = "A") -> Outcome:
    return store.apply([Acquire(resource, lease_id, "h-" + lease_id, TTL)], timeout=1)[0]


def failure(outcome: Outcome) -> LessorError:
    assert isinstance(outcome, Unknown), outcome
    return outcome.error


# --- where the file is --------------------------------------------------------------------------------------------


def test_a_folder_that_is_missing_is_not_made(open_store: Callable[..., SqliteStore], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        open_store(str(tmp_path / "typo" / "leases.db"))
    assert not (tmp_path / "typo").exists()


def test_a_folder_is_no_file(open_store: Callable[..., SqliteStore], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        open_store(str(tmp_path))


def test_a_link_to_the_file_is_the_file(open_store: Callable[..., SqliteStore], path: str, tmp_path: Path) -> None:
    """SQLite keeps its log beside the file itself."""
    link = tmp_path / "link.db"
    link.symlink_to(path)
    assert isinstance(take(open_store(str(link))), Granted)
    assert isinstance(take(open_store(), lease_id="B"), Held)
    assert not Path(f"{link}-wake").exists()


def test_a_link_that_leads_to_another_file_is_noticed(
    open_store: Callable[..., SqliteStore], tmp_path: Path, path: str, clock: FakeClock
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    store = open_store(str(link))
    assert isinstance(take(store), Granted)
    clock.advance(1)
    link.unlink()
    link.symlink_to(tmp_path / "other.db")
    assert isinstance(take(open_store(str(link))), Granted)
    assert "replaced by another file" in str(failure(take(store, "other")))


@pytest.mark.parametrize("url", ["sqlite://host/x.db", "sqlite://", "sqlite:///", "sqlite:///a%00b"])
def test_urls_that_name_no_file(url: str) -> None:
    with pytest.raises(ConfigError):
        SqliteStore(StoreURL.parse(url), FakeClock())


ODD = [
    "with space.db",
    "100%.db",
    "a%20b.db",
    "what?.db",
    "number#1.db",
    "ünïcode 日本.db",
    "a&b=c;d.db",
    "it's.db",
    "x" * 200,
]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_one_and_the_same_file_for_everybody(
    open_store: Callable[..., SqliteStore], tmp_path: Path, name: str
) -> None:
    store = open_store(str(tmp_path / name))
    assert isinstance(take(store), Granted)
    assert (tmp_path / name).is_file()
    again = SqliteStore(StoreURL.parse(store.url), FakeClock())
    try:
        assert isinstance(take(again, lease_id="B"), Held)
    finally:
        again.close()
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith(name)) == []


# --- what the file is ---------------------------------------------------------------------------------------------


def test_a_file_that_is_no_database(open_store: Callable[..., SqliteStore], path: str) -> None:
    Path(path).write_text("dear diary, " * 100)
    with pytest.raises(ConfigError, match="not a SQLite database"):
        open_store()
    assert Path(path).read_text().startswith("dear diary")


def test_another_applications_database_is_left_alone(open_store: Callable[..., SqliteStore], path: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE accounts (id INTEGER)")
    db.close()
    before = Path(path).read_bytes()
    with pytest.raises(ConfigError, match="another application's"):
        open_store()
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("pragma", ["application_id", "user_version"])
def test_a_database_that_carries_somebodys_mark_is_left_alone(
    open_store: Callable[..., SqliteStore], path: str, pragma: str
) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA {pragma} = 42")
    db.close()
    with pytest.raises(ConfigError, match="another application's"):
        open_store()


def test_a_newer_schema_asks_for_a_newer_lessor(open_store: Callable[..., SqliteStore], path: str) -> None:
    open_store().close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {file.SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(ConfigError, match=f"schema version {file.SCHEMA_VERSION + 1}.*upgrade"):
        open_store()


def test_an_empty_file_is_made_ours(open_store: Callable[..., SqliteStore], path: str) -> None:
    Path(path).touch()
    assert isinstance(take(open_store()), Granted)


@pytest.mark.parametrize("changed", ["VACUUM INTO '{path}'", "PRAGMA journal_mode = DELETE"])
def test_a_file_without_a_log_gets_one(open_store: Callable[..., SqliteStore], path: str, changed: str) -> None:
    """So is a copy that VACUUM INTO has made."""
    before = open_store(f"{path}-before" if "INTO" in changed else path)
    assert isinstance(take(before), Granted)
    before.close()
    with contextlib.closing(sqlite3.connect(before._path)) as db:
        db.execute(changed.format(path=path))
    store = open_store()
    assert isinstance(take(store, lease_id="B"), Held)
    assert isinstance(take(store, "other"), Granted)


def test_a_corrupt_file_says_so(open_store: Callable[..., SqliteStore], path: str) -> None:
    store = open_store()
    for n in range(200):
        store.apply([Acquire(f"r{n}", "A", "h", TTL, metadata='{"a":"' + "x" * 500 + '"}')], timeout=1)
    store.close()
    data = bytearray(Path(path).read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    Path(path).write_bytes(data)
    with pytest.raises(LessorError, match="corrupt") as caught:  # noqa: PT012 - either may be the first to notice
        store = open_store()
        raise failure(take(store, "r7"))
    assert isinstance(caught.value, StoreUnavailable)
    assert isinstance(caught.value.__cause__, sqlite3.Error)


# --- what becomes of the file -------------------------------------------------------------------------------------


def test_a_deleted_file_is_noticed_and_not_written_to(
    open_store: Callable[..., SqliteStore], path: str, clock: FakeClock
) -> None:
    store = open_store()
    take(store)
    for name in (path, path + "-wal", path + "-shm"):
        os.unlink(name)
    clock.advance(1)
    assert "deleted" in str(failure(take(store, "other")))
    with pytest.raises(StoreUnavailable, match="deleted"):
        store.read(["r"], timeout=1)
    assert not os.path.exists(path)


def test_a_replaced_file_is_noticed(open_store: Callable[..., SqliteStore], path: str, clock: FakeClock) -> None:
    store = open_store()
    take(store)
    for name in (path, path + "-wal", path + "-shm"):
        os.rename(name, name + ".old")
    other = open_store()
    clock.advance(1)
    assert isinstance(take(other, "r", "B"), Granted)
    assert "replaced" in str(failure(take(store, "other")))
    assert other.read(["other"], timeout=1) == [None]


def test_after_a_deleted_file_tokens_go_on_rising(
    open_store: Callable[..., SqliteStore], path: str, clock: FakeClock
) -> None:
    store = open_store()
    before = take(store)
    store.close()
    os.unlink(path)
    clock.advance(0.01)
    after = take(open_store())
    assert isinstance(before, Granted)
    assert isinstance(after, Granted)
    assert after.token > before.token


def test_a_closed_store_says_so(store: SqliteStore) -> None:
    store.close()
    store.close()
    assert "closed" in str(failure(take(store)))
    with pytest.raises(StoreUnavailable, match="closed"):
        store.read(["r"], timeout=1)


# --- the disk -----------------------------------------------------------------------------------------------------


def test_a_disk_made_read_only(
    open_store: Callable[..., SqliteStore], mount: Callable[..., str], clock: FakeClock
) -> None:
    point = mount("size=4m")
    store = open_store(point + "/leases.db")
    assert isinstance(take(store), Granted)
    store.close()
    run_as_root("mount", "-o", "remount,ro", point)
    with pytest.raises(ConfigError, match=r"read-only|can't be opened") as caught:
        raise failure(take(open_store(point + "/leases.db"), "other"))
    assert point in str(caught.value)
    with pytest.raises(ConfigError, match=r"read-only|can't be opened"):
        open_store(point + "/new.db")
    run_as_root("mount", "-o", "remount,rw", point)
    assert isinstance(take(open_store(point + "/leases.db"), "r", "B"), Held)


def test_a_file_that_only_others_may_write_to(
    tmp_path: Path, path: str, open_store: Callable[..., SqliteStore]
) -> None:
    """As another user: root may write everywhere."""
    if os.geteuid() != 0:
        not_here("only root can become somebody else")
    open_store().close()
    os.chmod(path, 0o644)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o005)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                outcome = take(SqliteStore(StoreURL("sqlite", "", "/" + path, {}), FakeClock()))
                code = 0 if isinstance(failure(outcome), ConfigError) else 2
            except ConfigError:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_full_disk_is_an_error_and_loses_nothing(
    open_store: Callable[..., SqliteStore], mount: Callable[..., str], clock: FakeClock
) -> None:
    point = mount("size=1m")
    store = open_store(point + "/leases.db")
    mine = take(store, "mine")
    assert isinstance(mine, Granted)
    filler = os.open(point + "/filler", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space"):  # noqa: PT012 - until it is full
        while True:
            os.write(filler, b"x" * 4096)
    os.close(filler)
    granted = []
    outcomes: list[Outcome] = []
    for n in range(300):
        batch: list[Op] = [Acquire(f"r{n}-{i}", "A", "h", TTL, metadata='{"a":"' + "x" * 300 + '"}') for i in range(2)]
        outcomes = store.apply(batch, timeout=1)
        if any(isinstance(o, Unknown) for o in outcomes):
            break
        granted.append(n)
    error = failure(outcomes[0])
    assert isinstance(error, StoreUnavailable)
    assert point in str(error)
    assert all(isinstance(o, Unknown) for o in outcomes), "all or nothing"
    os.unlink(point + "/filler")
    records = store.read([f"r{n}-1" for n in granted], timeout=1)
    assert None not in records
    assert store.apply([Release("mine", "A")], timeout=1) == [Released(0)]
    assert isinstance(take(store, "after"), Granted)


# --- shared file systems ------------------------------------------------------------------------------------------

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:40 / /mnt/share rw,relatime shared:2 - {kind} server:/export rw,vers=4.2
31 30 8:1 / /mnt/share/local rw - ext4 /dev/sda1 rw
32 22 0:41 / /mnt/with\\040space\\134and\\011tab rw - {kind} //server/x rw
33 22 0:42 / /mnt/twice rw - ext4 /dev/sdb1 rw
34 33 0:43 / /mnt/twice rw - {kind} over rw
"""
SHARED = ["nfs", "nfs4", "cifs", "smb3", "fuse", "fuse.sshfs", "fuse.bindfs", "9p", "virtiofs", "ceph", "glusterfs"]


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/mnt/share/leases.db", True),
        ("/mnt/share", True),
        ("/mnt/shared/leases.db", False),
        ("/mnt/share/local/leases.db", False),
        ("/mnt/share/localx/leases.db", True),
        ("/mnt/with space\\and\ttab/leases.db", True),
        ("/mnt/twice/leases.db", True),
        ("/var/lib/leases.db", False),
        ("/leases.db", False),
    ],
)
def test_the_mount_of_a_path(kind: str, path: str, *, shared: bool) -> None:
    found, point = file.mount_of(path, MOUNTINFO.format(kind=kind))
    assert found == (kind if shared else "ext4")
    assert path == point or path.startswith(point.rstrip("/") + "/")


@pytest.mark.parametrize("kind", SHARED)
def test_a_shared_file_system_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(file, "mount_of", lambda *_: (kind, "/mnt/share"))
    with pytest.raises(ConfigError, match=f"is on {kind} "):
        SqliteStore(StoreURL("sqlite", "", "/" + path, {}), FakeClock())
    assert not os.path.exists(path)


def test_a_mount_point_beyond_ascii() -> None:
    text = MOUNTINFO.format(kind="nfs").replace("/mnt/share ", "/mnt/dépôt ")
    assert file.mount_of("/mnt/dépôt/leases.db", text) == ("nfs", "/mnt/dépôt")


def test_a_mount_point_that_is_no_utf8_disturbs_nobody() -> None:
    text = MOUNTINFO.format(kind="nfs").replace("/mnt/share ", "/mnt/\udcff ")
    assert file.mount_of("/var/leases.db", text) == ("ext4", "/")
    assert file.mount_of("/mnt/\udcff/leases.db", text)[0] == "nfs"


def test_a_real_fuse_mount_is_refused(tmp_path: Path, open_store: Callable[..., SqliteStore]) -> None:
    if shutil.which("bindfs") is None:
        not_here("bindfs is not installed")
    below, point = tmp_path / "below", tmp_path / "fuse"
    below.mkdir()
    point.mkdir()
    run_as_root("bindfs", str(below), str(point))
    try:
        with pytest.raises(ConfigError, match=r"is on fuse(\.bindfs)? \(mounted at"):
            open_store(str(point / "leases.db"))
        link = tmp_path / "link.db"
        link.symlink_to(point / "leases.db")
        with pytest.raises(ConfigError, match="is on fuse"):
            open_store(str(link))
        assert list(below.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)


def test_two_that_make_the_file_at_once_both_get_it(tmp_path: Path) -> None:
    """One is looked at while the other makes it: a look in several steps would take it for somebody else's."""
    path = str(tmp_path / "leases.db")
    first, second = file.connect(path, set(), create=True), file.connect(path, set(), create=True)
    tried: list[str] = []

    def overtake(statement: str) -> None:
        if statement == "PRAGMA user_version":
            tried.append(statement)
            with contextlib.suppress(sqlite3.OperationalError):  # busy, where the first one's look keeps it out
                file.prepare(second, path, FakeClock())

    first.set_trace_callback(overtake)
    file.prepare(first, path, FakeClock())
    first.set_trace_callback(None)
    file.prepare(second, path, FakeClock())
    assert tried
    first.close()
    second.close()
