"""The guard for a file: it is replaced as a whole, and the newest token lies beside it."""

from __future__ import annotations

import fcntl
import json
import os
import random
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from lessor.core.timing import to_ns
from lessor.errors import ConfigError, Fenced, StoreUnavailable
from lessor.fencing.stamp import Stamp, check_token, stamp_of
from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.core.timing import Duration
    from lessor.fencing.stamp import Bearer

FORMAT: Final = 1
POLL: Final = 0.01
"""Seconds between two looks at a lock that somebody else has."""
MAX_TOKEN_FILE_BYTES: Final = 4096


class FencedFile:
    """A file that only the newest holder can replace, on one host.

    It does not protect the file from programs that write it directly, from deletion of the files beside it, or from
    hosts that share a network file system: its lock is ``flock``. A write that raises anything but `Fenced`,
    `LeaseLost` or `ConfigError`, or that is killed, may have happened or not, as a whole. Reads need no token.

    Beside ``report.json`` lie ``report.json.fence-token``, the newest token and its resource; ``report.json.fence-lock``,
    which is empty and stays; and, during a write or after a crash, ``report.json.fence-new``. A write takes the lock and

    1. compares the tokens, and raises `Fenced` if a newer one has been here;
    2. writes the data to ``fence-new``, and syncs it;
    3. if the token is newer, replaces ``fence-token`` by it in the same way: written aside, synced, renamed;
    4. syncs the folder: the token is on the disk;
    5. renames ``fence-new`` to the file's own name, and syncs the folder.

    Why this order is safe wherever it breaks off, by ``kill -9`` or by a power failure:

    - *An older token never wins later.* The data of a token is visible only after 5, and its token is on the disk
      after 4. So whenever newer data can be seen, now or after a restart, its token can be too, and refuses older ones.
      The other way round, a crash between the two would leave new data under an old token, and the old holder could
      overwrite it.
    - *Newer data is never lost.* The file is only ever replaced by a rename, under the lock, by somebody whose token
      is not older; and when ``write`` has returned, the rename is on the disk.
    - *Nothing is torn.* Both files change by renaming one that is complete and synced.
    - A break between 3 and 5 leaves the old data under the new token: nobody older may write any more, and the holder,
      who was never told that it had written, or its successor, writes again. ``token`` therefore says who may write,
      and not who wrote.
    - A full disk is found in 2, before anything has changed.
    - The lock goes with its process, and ``fence-new`` is only touched under the lock, so what a crash leaves is in
      nobody's way.

    A holder that is stopped (SIGSTOP) in the middle of a write keeps the lock: the next one waits, up to ``timeout``,
    and then gets `StoreUnavailable`. The replaced file keeps its permissions, but is a new file: owner, hard links and
    extended attributes are not carried over. A path that is a symbolic link means the file that it leads to.

    It blocks: from asyncio, call ``await asyncio.to_thread(file.write, lease, data)``.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: Duration = 10.0) -> None:
        given: object = path
        name = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
        if not isinstance(name, str) or "\0" in name or not os.path.basename(name):
            raise ConfigError(f"{path!r} does not name a file")
        # Two ways to the same file must lead to the same token.
        self.path: Final = os.path.realpath(name)
        self._timeout_ns = to_ns(timeout, "timeout")
        self._folder = os.path.dirname(self.path)
        self._token_path = self.path + ".fence-token"
        self._lock_path = self.path + ".fence-lock"
        self._new_path = self.path + ".fence-new"

    def write(self, bearer: Bearer, data: bytes | str) -> None:
        """Replace the content, or raise `Fenced` if a newer token has been here. Text is written as UTF-8."""
        if isinstance(data, str):
            data = data.encode()
        elif not isinstance(data, bytes):
            raise ConfigError(f"a file takes bytes or str, and this is {type(data).__name__}")
        stamp = stamp_of(bearer)
        with self._locked():
            seen = self._seen()
            self._refuse(stamp, seen)
            try:
                self._prepare(data)
                if seen is None or stamp.token > seen.token:
                    self._remember(stamp)
                # Also when the token was there already: whoever put it there may have been killed before its sync.
                self._sync_folder()
                os.replace(self._new_path, self.path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(self._new_path)
                raise
            self._sync_folder()

    def read(self) -> bytes:
        """Return the content: always that of one whole write. `FileNotFoundError` if there has been none."""
        with open(self.path, "rb") as file:
            return file.read()

    @property
    def token(self) -> int | None:
        """The newest token that has been here: older ones are refused. None: any may write."""
        seen = self._seen()
        return None if seen is None else seen.token

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r}>"

    # --- the steps of a write -------------------------------------------------------------------------------------

    def _refuse(self, stamp: Stamp, seen: Stamp | None) -> None:
        if seen is not None and seen.resource != stamp.resource:
            raise ConfigError(
                f"{self.path} is fenced by {seen.resource!r}, and this is a token of {stamp.resource!r}: tokens of two "
                f"resources can't be compared. If the file has changed hands for good, delete {self._token_path}"
            )
        if seen is not None and stamp.token < seen.token:
            raise Fenced(stamp.resource, token=stamp.token, newest=seen.token)
        if os.path.isdir(self.path):
            raise ConfigError(f"{self.path} is a folder")

    def _prepare(self, data: bytes) -> None:
        try:
            mode = stat.S_IMODE(os.stat(self.path).st_mode)
        except FileNotFoundError:
            mode = None
        _write_synced(self._new_path, data, mode)

    def _remember(self, stamp: Stamp) -> None:
        text = json.dumps({"format": FORMAT, "resource": stamp.resource, "token": stamp.token}, ensure_ascii=False)
        aside = self._token_path + ".new"
        _write_synced(aside, f"{text}\n".encode(), None)
        os.replace(aside, self._token_path)

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _seen(self) -> Stamp | None:
        try:
            with open(self._token_path, "rb") as file:
                raw = file.read(MAX_TOKEN_FILE_BYTES)
        except FileNotFoundError:
            return None
        try:
            content = json.loads(raw)
            if content["format"] != FORMAT or not isinstance(content["resource"], str):
                raise ConfigError("another format")
            return Stamp(content["resource"], check_token(content["token"]))
        except (ValueError, KeyError, TypeError) as error:
            # To take it for "no token" would let anybody in.
            raise ConfigError(
                f"{self._token_path} can't be understood ({error}), so no write can be let in; if no stale write can "
                "arrive any more, delete it"
            ) from error

    # --- the lock -------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._lock()
        try:
            yield
        finally:
            # Closing alone would leave it to a child that another thread has forked meanwhile.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _lock(self) -> int:
        until = SYSTEM.now() + self._timeout_ns
        while True:
            lock = os.open(self._lock_path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                # A way in that doesn't wait, again and again: a blocking one could not be bounded.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(lock):
                    return lock
            except BlockingIOError:
                pass
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)
            if SYSTEM.now() >= until:
                waited = f"{self._timeout_ns / 1e9:g} s"
                raise StoreUnavailable(
                    "file", f"{self._lock_path} was locked by another writer for {waited}", op="write"
                )
            time.sleep(POLL * random.random())

    def _is_current(self, lock: int) -> bool:
        """Whether the file that we have locked is the one that others will find, and has not been deleted."""
        try:
            return os.path.samestat(os.fstat(lock), os.stat(self._lock_path))
        except FileNotFoundError:
            return False


def _write_synced(path: str, data: bytes, mode: int | None) -> None:
    """Make a new file with this content, on the disk when this returns."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # a crash left it: half-written, perhaps with permissions that keep us out
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        if mode is not None:
            os.fchmod(file, mode)
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)
