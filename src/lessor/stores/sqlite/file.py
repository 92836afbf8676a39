"""The file itself: may it be used, is it ours, is it still the same, and what does SQLite's complaint mean."""

from __future__ import annotations

import os
import re
import sqlite3
from typing import TYPE_CHECKING

from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.scarcity import no_descriptor, shortage
from lessor.stores.sqlite.companions import discard

if TYPE_CHECKING:
    from collections.abc import MutableSet
    from typing import Any

    from lessor.core.clock import Clock
    from lessor.stores.sqlite.companions import Identity

APPLICATION_ID = 0x4C535352  # "LSSR"
SCHEMA_VERSION = 1

SHARED_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs",
    "nfs4", "ocfs2", "orangefs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
})  # fmt: skip
"""There, another host or another kernel may have the file too, and neither locks nor shared memory hold across."""


def mount_of(path: str, mountinfo: str) -> tuple[str, str]:
    """Return the file system type and the mount point of an absolute path, from the text of /proc/self/mountinfo."""
    best = ("", "")
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        if not rest:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields.split()[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[1]):  # the last of equals is the one mounted over the others
            best = (rest.split()[0], point)
    return best


def check_file_system(path: str) -> None:
    """Refuse a path on a network or shared file system."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            kind, point = mount_of(os.path.realpath(path), file.read())
    except OSError as error:
        if shortage(error) is not None:
            raise
        return
    if kind in SHARED_FILE_SYSTEMS or kind.startswith("fuse."):
        raise ConfigError(
            f"{path} is on {kind} (mounted at {point}), which other hosts or kernels may share: SQLite's locks don't "
            "hold there. Put the file on a local disk, or use a server"
        )


def check_folder(path: str) -> None:
    """Refuse a path whose folder isn't there; making it could hide a typing error."""
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise ConfigError(f"{path} is a folder, not a file")
    if not os.path.isdir(folder):
        slashes = "" if os.path.isabs(path) else " (an absolute path takes four slashes: sqlite:////var/lib/x.db)"
        raise ConfigError(f"there is no folder {folder}{slashes}")


class Connection(sqlite3.Connection):
    """A connection that is among those known from before it is opened: a signal handler may fork at any instruction."""

    retired = False
    """Whether it was closed before a fork, or because its log was deleted: its user goes on with another one."""
    companions: tuple[Identity, Identity] = (None, None)
    """What else it has open, besides the main file."""

    def __init__(self, known: MutableSet[Connection], *args: Any, **options: Any) -> None:
        known.add(self)
        super().__init__(*args, **options)


def connect(path: str, known: MutableSet[Connection], *, create: bool) -> Connection:
    """Open a connection with our settings: no waiting inside SQLite, whose busy handler is unfair."""
    db = Connection(
        known,
        f"file:{_uri_quote(path)}?mode={'rwc' if create else 'rw'}",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    try:
        db.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        discard(db)
        raise
    return db


def prepare(db: sqlite3.Connection, path: str, clock: Clock) -> None:
    """Make the file ours where it is new; check that it is ours where it isn't. May raise SQLITE_BUSY."""
    application, version, has_tables = _look(db)
    if (application, version) == (APPLICATION_ID, SCHEMA_VERSION):
        _use_log(db, path)  # a copy that VACUUM INTO has made doesn't, nor a file that a tool has changed
        return
    if application == APPLICATION_ID:
        raise ConfigError(
            f"{path} has schema version {version}, and this lessor knows {SCHEMA_VERSION}: upgrade lessor"
        )
    if application != 0 or version != 0 or has_tables:
        raise ConfigError(f"{path} is another application's database: name a file of its own for the leases")
    # A grant changes one row, and each commit writes whole pages to the log: small ones make it a tenth cheaper.
    db.execute("PRAGMA page_size = 1024")
    _use_log(db, path)
    db.execute("BEGIN IMMEDIATE")
    try:
        overtaken = _has_tables(db)
        if not overtaken:
            for statement in sql("schema.sql").split(";"):
                db.execute(statement)
            boot = clock.host_epoch()
            db.execute("INSERT INTO meta VALUES (1, ?, 0, 0, 0)", (boot,))
            db.execute("INSERT INTO boots VALUES (?, ?)", (boot, clock.wall_us()))
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        rollback(db)
        raise
    if overtaken:
        prepare(db, path, clock)  # somebody else was at it in between: see whose it is


def _use_log(db: sqlite3.Connection, path: str) -> None:
    if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise ConfigError(f"{path} can't use SQLite's write-ahead log on this file system")


def rollback(db: sqlite3.Connection) -> bool:
    """Undo the open transaction, if there is one. False: that failed, and the connection is of no more use."""
    try:
        if db.in_transaction:
            db.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return True


def is_busy(error: sqlite3.Error) -> bool:
    """Whether it only means that somebody else is at it, so that asking again helps."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_passing(error: sqlite3.Error, path: str) -> bool:
    """Whether the file couldn't be opened although it may be, and not for want of a descriptor.

    That is so where another connection removed the log, as the last one does, in the moment in which it was opened.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_CANTOPEN and _may_open(path) and no_descriptor() is None


def is_unreadable(error: sqlite3.Error) -> bool:
    """Whether SQLite can't make sense of what it reads: that is so, too, where an index has lost its log."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def explain(error: sqlite3.Error, path: str) -> LessorError:
    """Return SQLite's complaint as one of ours, with what to do about it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigError(f"{path} is not a SQLite database: name another file for the leases")
    if code == sqlite3.SQLITE_READONLY:
        return ConfigError(f"{path} can't be written to: the file, its folder or the disk is read-only for this user")
    if code == sqlite3.SQLITE_CANTOPEN and _may_open(path):
        why = no_descriptor() or f"{error}, although its permissions allow it: perhaps for want of a file descriptor"
        return StoreUnavailable("sqlite", f"{path} can't be opened ({why})")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return ConfigError(f"{path} can't be opened ({error}): check the permissions of the file and its folder")
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreUnavailable(
            "sqlite", f"{path} is corrupt ({error}). Move it away once no lease in it can be alive; tokens go on rising"
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable("sqlite", f"the disk of {path} is full")
    if is_busy(error):
        return StoreUnavailable("sqlite", f"{path} is locked by another process")
    return StoreUnavailable("sqlite", f"{path}: {error}")


def _may_open(path: str) -> bool:
    """Whether the permissions are such that the file can be opened: then what keeps us from it passes."""
    return os.access(os.path.dirname(path), os.W_OK | os.X_OK) and all(
        os.access(name, os.R_OK | os.W_OK) or not os.path.lexists(name)  # in this order: it may go in between
        for name in (path, path + "-wal", path + "-shm")
    )


def _look(db: sqlite3.Connection) -> tuple[int, int, bool]:
    """Return whose file it is, of which version, and whether anything is in it: all of one moment."""
    db.execute("BEGIN")
    try:
        return _pragma(db, "application_id"), _pragma(db, "user_version"), _has_tables(db)
    finally:
        rollback(db)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _has_tables(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT EXISTS (SELECT 1 FROM sqlite_master)").fetchone()[0])


def sql(name: str) -> str:
    """Return the statements of one of our .sql files, without its comments."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as text:
        return "".join(line.partition("--")[0].rstrip() + "\n" for line in text).strip()


def _uri_quote(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
