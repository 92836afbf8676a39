"""The guard for Redis and Valkey through redis-py: the token is compared in the same call as the write."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache, lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from redis import Redis, RedisCluster
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.exceptions import NoScriptError, ResponseError

from lessor.errors import ConfigError, Fenced
from lessor.fencing.stamp import stamp_of
from lessor.fencing.table import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

    from lessor.fencing.stamp import Bearer, Stamp

    Key: TypeAlias = str | bytes
    Value: TypeAlias = str | bytes | int | float
    Life: TypeAlias = int | timedelta | None

_HERE: Final = os.path.dirname(os.path.abspath(__file__))


def guard(client: Any, bearer: Bearer, table: str) -> FencedRedis | AsyncFencedRedis:
    """Return the guard of a client: see `lessor.fencing.fence`."""
    if table != DEFAULT:
        raise ConfigError("Redis has no tables: the guard's keys start with lessor_fence")
    if isinstance(client, (AsyncRedis, AsyncRedisCluster)):
        return AsyncFencedRedis(client, bearer)
    return FencedRedis(client, bearer)


def create_table(_client: Any, _table: str) -> NoReturn:
    """Say that there is nothing to make."""
    raise ConfigError("Redis has no tables: the guard needs nothing to be made")


class _Call(NamedTuple):
    """A script and what it is called with."""

    stamp: Stamp
    text: str
    sha: str
    words: tuple[Any, ...]
    """The number of keys, the keys, the arguments."""


class _Guarded:
    """What the guards of both kinds of clients have in common: they know what to say."""

    def __init__(self, client: Any, bearer: Bearer) -> None:
        _require_client(client)
        self._client = client
        self._bearer = bearer
        self._in_cluster = isinstance(client, (RedisCluster, AsyncRedisCluster))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    def _call(self, script: str, keys: Sequence[Key], args: Iterable[Value]) -> _Call:
        stamp = stamp_of(self._bearer)
        text, sha = _guarded(script)
        return _Call(stamp, text, sha, (1 + len(keys), self._kept_at(stamp, keys), *keys, stamp.token, *args))

    def _kept_at(self, stamp: Stamp, keys: Sequence[Key]) -> bytes:
        """Return the key of the newest token. In a Cluster it must live where the data does."""
        resource = stamp.resource.encode()
        if not self._in_cluster:
            return b"lessor_fence:" + resource
        encode = self._client.get_encoder().encode
        tags = {_hash_tag(encode(key)) for key in keys}
        if len(tags) != 1:
            raise ConfigError(
                f"on a Cluster, the keys of one call share one hash tag, as in {{report}}:body and {{report}}:index; "
                f"these have {len(tags)}"
            )
        (tag,) = tags
        return b"lessor_fence:{" + tag + b"}:" + resource


class FencedRedis(_Guarded):
    """The guarded writes of one holder: ``fence(client, lease)`` returns it.

    It does not protect keys from writes that go round it, expiry and eviction included; nor from a server that loses
    its data, since it keeps the token beside it. Each call is one script, so nothing comes between the comparison and
    the write. A refused call raises `Fenced` and writes nothing. The newest token is kept without expiry in
    ``lessor_fence:RESOURCE``; on a Cluster in ``lessor_fence:{HASH TAG}:RESOURCE``, one for each hash tag that
    the keys have (the whole key, where it has none), because it must live where they do.
    """

    def set(
        self,
        key: Key,
        value: Value,
        *,
        ex: Life = None,
        px: Life = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
    ) -> bool:
        """Set a key, for ``ex`` seconds or ``px`` milliseconds, either also as `timedelta`. False: ``nx`` or ``xx`` forbade it."""
        options = _set_options(ex=ex, px=px, nx=nx, xx=xx, keepttl=keepttl)
        return self.eval(_lua("set"), [key], [value, *options]) is not None

    def hset(
        self,
        key: Key,
        field: Key | None = None,
        value: Value | None = None,
        mapping: Mapping[Any, Value] | None = None,
    ) -> int:
        """Set fields of a hash, and return how many are new."""
        return int(self.eval(_lua("hset"), [key], _fields(field, value, mapping)))

    def delete(self, *keys: Key) -> int:
        """Delete keys, and return how many there were. The newest token stays."""
        return int(self.eval(_lua("delete"), _some(keys)))

    def eval(self, script: str, keys: Sequence[Key] = (), args: Iterable[Value] = ()) -> Any:
        """Run a script of your own behind the guard; its ``KEYS`` and ``ARGV`` are those given here.

        A script that fails half-way is not undone, as always on Redis, and its token has been seen.
        """
        call = self._call(script, keys, args)
        try:
            try:
                return self._client.evalsha(call.sha, *call.words)
            except NoScriptError:
                return self._client.eval(call.text, *call.words)
        except ResponseError as error:
            _raise_if_refused(error, call.stamp)
            raise


class AsyncFencedRedis(_Guarded):
    """`FencedRedis` for clients of ``redis.asyncio``: each call is awaited."""

    async def set(
        self,
        key: Key,
        value: Value,
        *,
        ex: Life = None,
        px: Life = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
    ) -> bool:
        """Set a key, for ``ex`` seconds or ``px`` milliseconds, either also as `timedelta`. False: ``nx`` or ``xx`` forbade it."""
        options = _set_options(ex=ex, px=px, nx=nx, xx=xx, keepttl=keepttl)
        return await self.eval(_lua("set"), [key], [value, *options]) is not None

    async def hset(
        self,
        key: Key,
        field: Key | None = None,
        value: Value | None = None,
        mapping: Mapping[Any, Value] | None = None,
    ) -> int:
        """Set fields of a hash, and return how many are new."""
        return int(await self.eval(_lua("hset"), [key], _fields(field, value, mapping)))

    async def delete(self, *keys: Key) -> int:
        """Delete keys, and return how many there were. The newest token stays."""
        return int(await self.eval(_lua("delete"), _some(keys)))

    async def eval(self, script: str, keys: Sequence[Key] = (), args: Iterable[Value] = ()) -> Any:
        """Run a script of your own behind the guard: see `FencedRedis.eval`."""
        call = self._call(script, keys, args)
        try:
            try:
                return await self._client.evalsha(call.sha, *call.words)
            except NoScriptError:
                return await self._client.eval(call.text, *call.words)
        except ResponseError as error:
            _raise_if_refused(error, call.stamp)
            raise


# --- the words of a call ------------------------------------------------------------------------------------------


def _set_options(*, ex: Life, px: Life, nx: bool, xx: bool, keepttl: bool) -> list[Value]:
    words: list[Value] = []
    if ex is not None:
        words += ["EX", int(ex.total_seconds()) if isinstance(ex, timedelta) else ex]
    if px is not None:
        words += ["PX", round(px.total_seconds() * 1000) if isinstance(px, timedelta) else px]
    return words + [word for word, given in (("NX", nx), ("XX", xx), ("KEEPTTL", keepttl)) if given]


def _fields(field: Key | None, value: Value | None, mapping: Mapping[Any, Value] | None) -> list[Value]:
    fields = dict(mapping or {})
    if field is not None:
        if value is None:
            raise ConfigError(f"the field {field!r} has no value")
        fields[field] = value
    if not fields:
        raise ConfigError("hset takes a field and its value, or a mapping that isn't empty")
    return [word for pair in fields.items() for word in pair]


def _some(keys: tuple[Key, ...]) -> tuple[Key, ...]:
    if not keys:
        raise ConfigError("there is no key to delete")
    return keys


def _hash_tag(key: bytes) -> bytes:
    """Return the part of a key that decides in which slot of a Cluster it lives."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    tag = key[start + 1 : end] if end > start + 1 else key
    if not tag or b"}" in tag:
        # No other key can be made to live where this one does.
        raise ConfigError(f"{key!r} can't be guarded on a Cluster: give it a hash tag, as in {{report}}:body")
    return tag


# --- scripts and answers ------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _guarded(script: str) -> tuple[str, str]:
    """Return a script with the guard before it, and the name under which a server keeps it."""
    if script.startswith("#!"):
        raise ConfigError("a guarded script can't start with #!: the guard stands before it")
    text = f"{_lua('guard')}\n{script}"
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


@cache
def _lua(name: str) -> str:
    with open(os.path.join(_HERE, "lua", f"{name}.lua"), encoding="utf-8") as file:
        return file.read()


def _raise_if_refused(error: ResponseError, stamp: Stamp) -> None:
    word, _, newest = str(error).partition(" ")
    if word == "FENCED":
        raise Fenced(stamp.resource, token=stamp.token, newest=int(newest)) from None
    if word == "TAMPERED":
        raise ConfigError(f"the key with the newest token of {stamp.resource!r} has been tampered with") from None


def _require_client(client: Any) -> None:
    if any("Pipeline" in cls.__name__ for cls in type(client).__mro__):
        raise ConfigError(
            "a pipeline answers only after everything has been sent, so a guard can't refuse in it: hand in the client, "
            "and put what belongs together into one script with eval()"
        )
    if not isinstance(client, (Redis, RedisCluster, AsyncRedis, AsyncRedisCluster)):
        raise ConfigError(f"a guard takes a client of redis-py, and this is {type(client).__name__}")
