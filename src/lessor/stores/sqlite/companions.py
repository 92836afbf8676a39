"""The files beside the main one: SQLite's write-ahead log (``-wal``) and the index of it (``-shm``), which also has its locks.

A cleaner of temporary files may delete them under running processes. Those go on in what has no name any more, and the
next process makes new ones: two logs for one file, and two holders. So each connection remembers which files it has open,
and is of no more use once they are not there any more by those names. Then every process starts over with what is there,
so that they share one log again. If a process that has the deleted log open is the first to notice, it saves what is in
it. If a process that comes anew is first, that is lost: a renewal finds that out before it is confirmed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Identity: TypeAlias = "tuple[int, int] | None"
"""Device and inode; None: there is no such file."""

LOG_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")


class LogReplaced(Exception):  # noqa: N818 - no error: it leads to what has to be done first
    """The log or its index, as a connection has it open, is not what is there by that name."""


def identity(path: str) -> Identity:
    """Return what tells this file from another of the same name.

    By stat alone: to open the main file or the index here, and close it again, would drop SQLite's locks on it.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def of(path: str) -> tuple[Identity, Identity]:
    """Return the identities of the log and its index."""
    return identity(path + "-wal"), identity(path + "-shm")


def opened(path: str) -> tuple[Identity, Identity]:
    """Return the companions that a new connection has open, or raise `LogReplaced` if others took their places since."""
    found = of(path)
    if None in found or not _are_open(found):
        raise LogReplaced
    return found


def retire(path: str, db: sqlite3.Connection, mine: tuple[Identity, Identity], seconds: float) -> None:
    """Close a connection whose log was deleted, so that all processes start over with new files.

    Called with SQLite's write lock, which is in the index, where it can be had: so none of those that share it writes,
    and the next one that has the lock finds out too. What the log has is saved if nobody has begun another one.
    """
    log, index = of(path)
    if log is None:
        _save(path, db, seconds)
    if log != mine[0] and index == mine[1]:
        with contextlib.suppress(OSError):
            os.unlink(path + "-shm")  # it tells of a log that isn't there any more
    discard(db)


def _save(path: str, db: sqlite3.Connection, seconds: float) -> None:
    """Write a deleted log back to the main file while a folder stands in its place, so that nobody can open the file."""
    with contextlib.suppress(OSError, sqlite3.Error), _barrier(path + "-wal"):
        if db.in_transaction:
            db.execute("ROLLBACK")
        db.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


@contextlib.contextmanager
def _barrier(folder: str) -> Iterator[None]:
    """Have a folder of that name meanwhile. Locked, so that one that a dead process has left behind can be told."""
    os.mkdir(folder, 0o700)
    with _locked(folder):
        try:
            yield
        finally:
            os.rmdir(folder)  # while it is locked: another process might have swept it away, and made its own


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(folder)):
            raise FileNotFoundError(folder)  # swept away before it was locked
        yield
    finally:
        os.close(descriptor)


def is_barred(path: str) -> bool:
    """Whether a process is about to save a deleted log. One that has died over it is swept away."""
    folder = path + "-wal"
    with contextlib.suppress(OSError), _locked(folder):
        os.rmdir(folder)
        return True
    return os.path.isdir(folder)


def retire_orphan(path: str) -> bool:
    """Remove an index whose log was deleted before we came: the log that was made anew for us is empty, or has a hole.

    Called after SQLite failed to read. False: there is a log, so that wasn't the reason.
    """
    try:
        with open(path + "-wal", "rb") as log:
            if log.read(4) in LOG_MAGIC:
                return False
        os.unlink(path + "-shm")
    except OSError:
        return False
    return True


def discard(db: sqlite3.Connection) -> None:
    """Close a connection without writing its log back: what others have written since would be overwritten."""
    with contextlib.suppress(sqlite3.ProgrammingError):  # it is closed
        db.interrupt()
        db.close()


def _are_open(wanted: Sequence[Identity]) -> bool:
    """Whether this process has these files open."""
    try:
        descriptors = os.listdir("/proc/self/fd")
    except FileNotFoundError:
        return True  # there is no telling
    missing = set(wanted)
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            status = os.fstat(int(descriptor))
            missing.discard((status.st_dev, status.st_ino))
            if not missing:
                return True
    return False
