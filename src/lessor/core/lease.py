"""What a lease is made of: resource names, metadata, tokens, and the record that a store returns of it."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - whatever makes frames of records reads their types
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lessor.errors import ConfigError, InvalidResource

if TYPE_CHECKING:
    from lessor.core import view

MAX_RESOURCE_BYTES: Final = 512
TOKEN_LIMIT: Final = 2**53
"""Tokens stay below it, so that they are exact in Lua, JSON and JavaScript too."""


def check_resource(name: str) -> str:
    """Return the name if it can name a resource; raise `InvalidResource` with the reason if not."""
    given: object = name
    if (
        isinstance(given, str)
        and 0 < len(given) <= MAX_RESOURCE_BYTES // 4
        and "//" not in f"/{given}/"
        and given.isprintable()
    ):
        return given  # most are like that
    return _look_closely(name)


def _look_closely(name: str) -> str:
    if not isinstance(name, str):
        raise InvalidResource(name, f"it is {type(name).__name__}, not str")
    if not name:
        raise InvalidResource(name, "it is empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidResource(name, "it has a lone surrogate, which UTF-8 can't express") from None
    if size > MAX_RESOURCE_BYTES:
        raise InvalidResource(name, f"it has {size} bytes in UTF-8, and {MAX_RESOURCE_BYTES} are the most")
    if name.startswith("/") or name.endswith("/"):
        raise InvalidResource(name, "it starts or ends with '/'")
    if "//" in name:
        raise InvalidResource(name, "it has an empty part ('//')")
    if name.isprintable():
        return name
    for at, char in enumerate(name):
        code = ord(char)
        if code < 0x20 or 0x7F <= code <= 0x9F:
            raise InvalidResource(name, f"it has the control character U+{code:04X} at position {at}")
    return name


def encode_metadata(metadata: Mapping[str, str] | None, *, limit: int) -> str:
    """Return the metadata as the text that stores keep: "" for none."""
    if metadata is not None and not hasattr(metadata, "items"):
        raise ConfigError(f"metadata maps str to str, and this is {type(metadata).__name__}")
    if not metadata:
        return ""
    items: Mapping[Any, Any] = metadata
    for key, value in items.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ConfigError(f"metadata maps str to str, and {key!r} maps to {type(value).__name__}")
    import json  # noqa: PLC0415 - here and below: most leases have no metadata, and imports are to be cheap

    text = json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ConfigError("metadata has a lone surrogate, which UTF-8 can't express") from None
    if size > limit:
        raise ConfigError(f"metadata takes {size} bytes, and {limit} are the most on this store")
    return text


def decode_metadata(text: str) -> dict[str, str]:
    """Turn the text that stores keep back into a mapping."""
    if not text:
        return {}
    import json  # noqa: PLC0415

    return dict(json.loads(text))


def encode_state(state: bytes, *, limit: int) -> str:
    """Return what is handed over as the text that stores keep: "" for nothing."""
    given: object = state
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise ConfigError(f"what is handed over is bytes, not {type(given).__name__}")
    import base64  # noqa: PLC0415 - as above

    text = base64.b64encode(given).decode()
    if len(text) > limit:
        raise ConfigError(f"what is handed over takes {len(text)} bytes in base64, and {limit} are the most here")
    return text


def decode_state(text: str) -> bytes:
    """Turn the text that stores keep back into bytes."""
    if not text:
        return b""
    import base64  # noqa: PLC0415

    return base64.b64decode(text)


class Closed(StrEnum):
    """Why nobody can acquire a resource that nobody holds."""

    HOLD_AT_LEAST = "hold_at_least"
    """Its last holder released it before its ``hold_at_least`` was over."""
    LOCK_DELAY = "lock_delay"
    """Its last lease expired, and the ``lock_delay`` of that lease is not over."""


class Contender(NamedTuple):
    """A waiter in the queue for a resource, as stores keep it. Users get `lessor.core.view.Contender`."""

    holder: str
    since_us: int
    """Since when, in microseconds since 1970."""
    priority: int = 0

    def as_view(self) -> view.Contender:
        """Return it as users see it."""
        from lessor.core import view  # noqa: PLC0415 - here and below: dataclasses take longer to import than all of this

        return view.Contender(self.holder, view.instant(self.since_us), self.priority)


class Record(NamedTuple):
    """A lease as the store sees it. The lease id, which is its secret, is not here. Users get `lessor.core.view.Record`.

    With ``closed`` set it is the last lease on a resource that nobody holds, and that nobody can acquire yet.
    """

    resource: str
    holder: str
    token: int
    ttl_ns: int
    remaining_ns: int
    """How long it lasts unless renewed, when the store answered; where ``closed`` is set, how long nobody can acquire
    the resource. By the store's clock, so an estimate here."""
    granted_us: int
    renewed_us: int
    renewals: int
    metadata: Mapping[str, str] = {}
    parent: tuple[str, int] | None = None
    soft_ns: int = 0
    grace_ns: int = 0
    lock_delay_ns: int = 0
    hold_at_least_ns: int = 0
    revoked: bool = False
    reserved_for: str | None = None
    queue: tuple[Contender, ...] = ()
    version: int = 1
    closed: Closed | None = None
    """Why the resource can't be acquired although nobody holds it; None while the lease is held."""

    def as_view(self) -> view.Record:
        """Return it as users see it."""
        from lessor.core import view  # noqa: PLC0415

        def unless_zero(ns: int) -> float | None:
            return view.seconds(ns) if ns else None

        return view.Record(
            resource=self.resource,
            holder=self.holder,
            token=self.token,
            ttl=view.seconds(self.ttl_ns),
            remaining=view.seconds(self.remaining_ns),
            granted=view.instant(self.granted_us),
            renewed=view.instant(self.renewed_us),
            renewals=self.renewals,
            metadata=self.metadata,
            parent=None if self.parent is None else view.Parent(*self.parent),
            soft=unless_zero(self.soft_ns),
            grace=unless_zero(self.grace_ns),
            lock_delay=unless_zero(self.lock_delay_ns),
            hold_at_least=unless_zero(self.hold_at_least_ns),
            revoked=self.revoked,
            reserved_for=self.reserved_for,
            queue=tuple(waiter.as_view() for waiter in self.queue),
            closed=None if self.closed is None else str(self.closed),
        )
