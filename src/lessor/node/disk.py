"""A node's data folder.

======================  ============================================================================================
``lock``                held while a node runs: two on one folder would both believe that it is theirs
``node.json``           whose folder it is
``mark``                the high-water mark and the longest span, in two slots with checksums: one is always whole
``state``               what a clean shutdown leaves; deleted, and the deletion synced, before the first answer
======================  ============================================================================================
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
from lessor.errors import ConfigError

if TYPE_CHECKING:
    from typing import Self

_SLOT: Final = struct.Struct(">8sQQQ")
_CHECKSUM: Final = struct.Struct(">I")
_MAGIC: Final = b"lsmark01"
_SLOT_AT: Final = (0, 4096)
_STATE_MAGIC: Final = b"lsstate1"


class MarkFile:
    """The high-water mark on disk. Written by one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._turn = 0

    @property
    def blank(self) -> bool:
        """Whether nothing was ever written, whole or not."""
        return os.fstat(self._file).st_size == 0

    def read(self) -> Durable | None:
        """Return what was written last; None where there is nothing, or nothing whole."""
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
        written = os.pwrite(self._file, body, _SLOT_AT[turn % 2])
        if written != len(body):
            raise OSError(errno.ENOSPC, "the high-water mark can't be written as a whole", self._path)
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
        try:
            with open(self._state, "rb") as file:
                data = file.read()
        except FileNotFoundError:
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
        draft = self._state + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        with open(draft, "xb", opener=_private) as file:  # there are lease ids in it
            file.write(_STATE_MAGIC + _CHECKSUM.pack(zlib.crc32(body)) + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self._state)
        self._sync_folder()

    def delete_snapshot(self) -> None:
        """Delete it, for good: after a crash it must not be found again."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._state)
        self._sync_folder()

    @property
    def _state(self) -> str:
        return os.path.join(self.path, "state")

    def _check_owner(self, node: str) -> None:
        """Refuse the folder of another node: its promises are not ours."""
        path = os.path.join(self.path, "node.json")
        try:
            with open(path, encoding="utf-8") as file:
                owner = json.load(file)["id"]
        except FileNotFoundError:
            with open(path, "x", encoding="utf-8") as file:
                json.dump({"id": node, "version": 1}, file)
                file.flush()
                os.fsync(file.fileno())
            return
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


def _private(path: str, flags: int) -> int:
    """Open a file that nobody else may read."""
    return os.open(path, flags, 0o600)
