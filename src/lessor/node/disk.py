"""A node's data folder.

======================  ============================================================================================
``lock``                held while a node runs: two on one folder would both believe that it is theirs
``node.json``           whose folder it is
``mark``                the high-water mark and the longest span, in two slots with checksums: one is always whole
``state``               what a clean shutdown leaves; deleted, and the deletion synced, before the first answer
======================  ============================================================================================

A file is written as a draft, which is synced and renamed; a draft that can't be completed is deleted. Whatever goes wrong
with the disk is a `DiskError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from lessor.core.paxos.acceptor import Durable
from lessor.core.paxos.starting import Snapshot
from lessor.errors import ConfigError, LessorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

_SLOT: Final = struct.Struct(">8sQQQ")
_CHECKSUM: Final = struct.Struct(">I")
_MAGIC: Final = b"lsmark01"
_SLOT_AT: Final = (0, 4096)
_STATE_MAGIC: Final = b"lsstate1"
_OF_THE_DISK: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
"""Errors that say nothing about the folder's name or its permissions."""


class DiskError(LessorError):
    """The data folder can't be read or written: the disk is full, is read-only, or fails."""

    exit_code: Final = 74

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path!r} can't be read or written: {why}")


@contextlib.contextmanager
def _using(path: str) -> Iterator[None]:
    """Say which file it is that the disk has failed for."""
    try:
        yield
    except OSError as error:
        raise DiskError(path, error.strerror or str(error)) from error


class MarkFile:
    """The high-water mark on disk. Written by one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        with _using(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._turn = 0

    @property
    def blank(self) -> bool:
        """Whether nothing was ever written, whole or not."""
        return os.fstat(self._file).st_size == 0

    def read(self) -> Durable | None:
        """Return what was written last; None where there is nothing, or nothing whole."""
        with _using(self._path):
            found = [slot for at in _SLOT_AT if (slot := self._slot(at)) is not None]
        if not found:
            return None
        self._turn, high_water, span_ns = max(found)
        return Durable(high_water, span_ns)

    def write(self, durable: Durable) -> None:
        """Write to the slot that isn't the newest, and sync."""
        turn = self._turn + 1
        body = _SLOT.pack(_MAGIC, turn, durable.high_water, durable.span_ns)
        body += _CHECKSUM.pack(zlib.crc32(body))
        with _using(self._path):
            written = os.pwrite(self._file, body, _SLOT_AT[turn % 2])
            if written != len(body):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            os.fdatasync(self._file)
        self._turn = turn

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _slot(self, at: int) -> tuple[int, int, int] | None:
        data = os.pread(self._file, _SLOT.size + _CHECKSUM.size, at)
        if len(data) < _SLOT.size + _CHECKSUM.size:
            return None
        body = data[: _SLOT.size]
        magic, turn, high_water, span_ns = _SLOT.unpack(body)
        if magic != _MAGIC or _CHECKSUM.unpack(data[_SLOT.size :]) != (zlib.crc32(body),):
            return None
        return turn, high_water, span_ns


class DataFolder:
    """The folder, locked for as long as this is open."""

    def __init__(self, path: str, node: str) -> None:
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno is not None and error.errno in _OF_THE_DISK:
                raise DiskError(path, os.strerror(error.errno)) from error
            raise ConfigError(f"the data folder {path!r} can't be used: {error.strerror}") from error
        self.path = path
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(f"another node runs on the data folder {path!r}") from error
        try:
            self._check_owner(node)
            self.mark = MarkFile(os.path.join(path, "mark"))
            with _using(path):
                self._sync_folder()
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.mark.close()
        os.close(self._lock)

    def read_snapshot(self) -> Snapshot | None:
        """Return what a clean shutdown left; None where there was none, or what is there isn't whole."""
        data = _content(self._state)
        if data is None:
            return None
        body = data[len(_STATE_MAGIC) + _CHECKSUM.size :]
        if data[: len(_STATE_MAGIC)] != _STATE_MAGIC or len(data) < len(_STATE_MAGIC) + _CHECKSUM.size:
            return None
        if _CHECKSUM.unpack_from(data, len(_STATE_MAGIC)) != (zlib.crc32(body),):
            return None
        with contextlib.suppress(msgspec.ValidationError):  # another version's
            return msgspec.msgpack.decode(body, type=Snapshot)
        return None

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Leave this for the next start. It is there as a whole, or not at all."""
        body = msgspec.msgpack.encode(snapshot)
        self._write(self._state, _STATE_MAGIC + _CHECKSUM.pack(zlib.crc32(body)) + body)

    def _write(self, path: str, data: bytes) -> None:
        """Write a file that isn't there yet, as a whole or not at all."""
        draft = path + ".new"
        with _using(path):
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft)
                with open(draft, "xb", opener=_private) as file:  # there may be lease ids in it
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, path)
                self._sync_folder()
            except OSError:
                for left in (draft, path):
                    with contextlib.suppress(OSError):
                        os.unlink(left)
                raise

    def delete_snapshot(self) -> None:
        """Delete it, for good: after a crash it must not be found again."""
        with _using(self._state):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._state)
            self._sync_folder()

    @property
    def _state(self) -> str:
        return os.path.join(self.path, "state")

    def _check_owner(self, node: str) -> None:
        """Refuse the folder of another node: its promises are not ours."""
        path = os.path.join(self.path, "node.json")
        found = _content(path)
        if found is None:
            self._write(path, json.dumps({"id": node, "version": 1}).encode())
            return
        try:
            owner = json.loads(found)["id"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path!r} can't be read: is this a node's data folder?") from error
        if owner != node:
            raise ConfigError(f"the data folder {self.path!r} is that of node {owner!r}, not of {node!r}")

    def _sync_folder(self) -> None:
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _content(path: str) -> bytes | None:
    """Return what is in a file; None where there is no such file."""
    with _using(path):
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None


def _private(path: str, flags: int) -> int:
    """Open a file that nobody else may read."""
    return os.open(path, flags, 0o600)
