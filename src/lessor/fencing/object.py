"""The guard for an object in S3 or a compatible store, by conditional writes through ``obstore``."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

from lessor.errors import ConfigError, Fenced, StoreUnavailable
from lessor.fencing.stamp import Stamp, check_token, stamp_of

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, ObjectMeta, PutMode, UpdateVersion
    from obstore.store import ObjectStore

    from lessor.fencing.stamp import Bearer

FORMAT: Final = 1
HEAD: Final[GetOptions] = {"range": (0, 4096)}
"""The first line, with room to spare."""
ALL: Final[GetOptions] = {}
CHANGED: Final = (PreconditionError, AlreadyExistsError)
ATTEMPTS: Final = 20
"""How often a write is tried while others of the same holder write too: each failure is the success of another."""


class _Seen(NamedTuple):
    """What an object says of itself."""

    stamp: Stamp
    deleted: bool
    data: bytes
    """What came with it: all that there is only if all was asked for."""
    version: UpdateVersion
    """What names just this version of it."""


class FencedObject:
    """An object that only the newest holder can replace.

    It does not protect the object from programs that write or delete it directly, lifecycle rules included, and it is
    for stores that compare on writing: S3 and what speaks like it, Google, Azure; not for a local folder. A write that
    raises anything but `Fenced`, `LeaseLost` or `ConfigError` may have happened or not, as a whole. Reads need no token.

    The token stands in the object itself, on a first line of its own before the data, which ``read`` takes off. It
    can't stand beside it in the metadata: S3 makes the ETag from the content alone, so when a newer holder wrote the
    very same data, nothing would have changed, and an older one that had looked before would still be let in.

    A write reads that line and the ETag, raises `Fenced` if a newer token has been here, and else replaces the object
    on the condition that its ETag is still the same (``If-Match``; ``If-None-Match: *`` for the first). Every newer
    token changes the ETag. So whoever was stopped between the two, for however long, fails; then it looks again, and is
    refused. ``delete`` leaves that line without data, since a name that is free could be taken by any token.

    It blocks; ``write_async``, ``read_async`` and ``delete_async`` are for asyncio. An object is sent in one piece: 5
    GB at most on S3.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        given: object = path
        if not isinstance(given, str) or not given.strip("/"):
            raise ConfigError(f"{path!r} does not name an object")
        if not callable(getattr(store, "put_async", None)):
            raise ConfigError(f"a guarded object lives in a store of obstore, and this is {type(store).__name__}")
        self.path: Final = path
        self._store = store

    def write(self, bearer: Bearer, data: bytes | str, *, attributes: Attributes | None = None) -> None:
        """Replace the object, or raise `Fenced` if a newer token has been here. Text is written as UTF-8.

        ``attributes`` are those of obstore, ``Content-Type`` for instance.
        """
        self._replace(bearer, _bytes(data), attributes)

    def delete(self, bearer: Bearer) -> None:
        """Delete the data, or raise `Fenced` if a newer token has been here. An object of one line stays."""
        self._replace(bearer, None, None)

    def read(self) -> bytes:
        """Return the data: always that of one whole write. `FileNotFoundError` if there has been none, or a delete."""
        return self._data(self._seen(ALL))

    @property
    def token(self) -> int | None:
        """The newest token that has been here: older ones are refused. None: any may write. It asks the store."""
        seen = self._seen()
        return None if seen is None else seen.stamp.token

    async def write_async(self, bearer: Bearer, data: bytes | str, *, attributes: Attributes | None = None) -> None:
        """Do what ``write`` does."""
        await self._replace_async(bearer, _bytes(data), attributes)

    async def delete_async(self, bearer: Bearer) -> None:
        """Do what ``delete`` does."""
        await self._replace_async(bearer, None, None)

    async def read_async(self) -> bytes:
        """Do what ``read`` does."""
        return self._data(await self._seen_async(ALL))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r}>"

    # --- a write --------------------------------------------------------------------------------------------------

    def _replace(self, bearer: Bearer, data: bytes | None, attributes: Attributes | None) -> None:
        stamp = stamp_of(bearer)
        content = _content(stamp, data)
        for _ in range(ATTEMPTS):
            mode = self._mode(stamp, self._seen())
            try:
                self._store.put(self.path, content, attributes=attributes, mode=mode, use_multipart=False)
            except CHANGED:
                continue
            except NotImplementedError as error:
                raise self._cannot_compare() from error
            return
        raise self._always_changed()

    async def _replace_async(self, bearer: Bearer, data: bytes | None, attributes: Attributes | None) -> None:
        stamp = stamp_of(bearer)
        content = _content(stamp, data)
        for _ in range(ATTEMPTS):
            mode = self._mode(stamp, await self._seen_async())
            try:
                await self._store.put_async(self.path, content, attributes=attributes, mode=mode, use_multipart=False)
            except CHANGED:
                continue
            except NotImplementedError as error:
                raise self._cannot_compare() from error
            return
        raise self._always_changed()

    def _mode(self, stamp: Stamp, seen: _Seen | None) -> PutMode:
        """Return on which condition this stamp may write, or raise `Fenced`."""
        if seen is None:
            return "create"
        if seen.stamp.resource != stamp.resource:
            raise ConfigError(
                f"{self.path} is fenced by {seen.stamp.resource!r}, and this is a token of {stamp.resource!r}: tokens "
                "of two resources can't be compared"
            )
        if stamp.token < seen.stamp.token:
            raise Fenced(stamp.resource, token=stamp.token, newest=seen.stamp.token)
        if not seen.version:
            raise self._cannot_compare()
        return seen.version

    def _cannot_compare(self) -> ConfigError:
        return ConfigError(
            f"{type(self._store).__name__} can't replace an object on condition that it is unchanged, which is what a "
            "guard is made of"
        )

    def _always_changed(self) -> StoreUnavailable:
        return StoreUnavailable(
            type(self._store).__name__, f"{self.path} was changed by others {ATTEMPTS} times in a row", op="write"
        )

    # --- a look ---------------------------------------------------------------------------------------------------

    def _seen(self, options: GetOptions = HEAD) -> _Seen | None:
        try:
            found = self._store.get(self.path, options=options)
            return self._understood(found.meta, bytes(found.bytes()))
        except FileNotFoundError:
            return None
        except GenericError:
            self._refuse_empty(self._store.head(self.path))
            raise

    async def _seen_async(self, options: GetOptions = HEAD) -> _Seen | None:
        try:
            found = await self._store.get_async(self.path, options=options)
            return self._understood(found.meta, bytes(await found.bytes_async()))
        except FileNotFoundError:
            return None
        except GenericError:
            self._refuse_empty(await self._store.head_async(self.path))
            raise

    def _understood(self, meta: ObjectMeta, content: bytes) -> _Seen:
        line, found, data = content.partition(b"\n")
        try:
            head = json.loads(line)
            if not found or head["lessor"] != FORMAT or not isinstance(head["resource"], str):
                raise ConfigError("another format")
            stamp = Stamp(head["resource"], check_token(head["token"]))
        except (ValueError, KeyError, TypeError) as error:
            raise self._not_guarded() from error
        version: UpdateVersion = {}
        for name in ("e_tag", "version"):
            if meta[name] is not None:
                version[name] = meta[name]
        return _Seen(stamp, bool(head.get("deleted")), data, version)

    def _refuse_empty(self, meta: ObjectMeta) -> None:
        """Explain an error that may be due to an object without a single byte, of which there is no range to ask for."""
        if meta["size"] == 0:
            raise self._not_guarded()

    def _not_guarded(self) -> ConfigError:
        # To take it for "no token" would let anybody in.
        return ConfigError(
            f"{self.path} was not written by a guard, so no write can be let in; if no stale write can arrive any more, "
            "delete it"
        )

    def _data(self, seen: _Seen | None) -> bytes:
        if seen is None or seen.deleted:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        return seen.data


def _content(stamp: Stamp, data: bytes | None) -> bytes:
    """Return the object as it is stored; None: it is deleted."""
    head = {"lessor": FORMAT, "resource": stamp.resource, "token": stamp.token}
    if data is None:
        head["deleted"] = True
    return json.dumps(head, ensure_ascii=False).encode() + b"\n" + (data or b"")


def _bytes(data: bytes | str) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if not isinstance(data, bytes):
        raise ConfigError(f"an object takes bytes or str, and this is {type(data).__name__}")
    return data
