"""etcd's messages, as far as leases need them, in protobuf's wire format. The numbers are those of etcd's ``rpc.proto``.

Requests are put together from parts that are bytes already, since a batch has hundreds of them; answers are taken
apart into dicts, in which what isn't there has its usual value (0, nothing) by not being there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

Schema = dict[int, tuple[str, Any]]
"""By field number: a name, and int, bool, bytes, or the schema of what is inside; that in a list where it may repeat."""

_SMALL: Final = [bytes([n]) for n in range(128)]


# --- requests -------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    if 0 <= value < 128:
        return _SMALL[value]
    if 0 < value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    return _long(value)


@lru_cache(maxsize=4096)
def _long(value: int) -> bytes:
    """Return a large one; the numbers of etcd leases come again and again."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_NUMBERS: Final = [varint(field << 3) for field in range(128)]
_INSIDES: Final = [varint(field << 3 | 2) for field in range(128)]


def number(field: int, value: int) -> bytes:
    """Return a field with a number; nothing for 0."""
    return _NUMBERS[field] + varint(value) if value else b""


def inside(field: int, value: bytes) -> bytes:
    """Return a field with bytes, a text or another message."""
    size = len(value)
    return _INSIDES[field] + (_SMALL[size] if size < 128 else varint(size)) + value


# --- answers --------------------------------------------------------------------------------------------------------

HEADER: Final[Schema] = {3: ("revision", int), 4: ("raft_term", int)}
KEY_VALUE: Final[Schema] = {
    1: ("key", bytes),
    2: ("create_revision", int),
    3: ("mod_revision", int),
    5: ("value", bytes),
    6: ("lease", int),
}
RANGE: Final[Schema] = {1: ("header", HEADER), 2: ("kvs", [KEY_VALUE])}
WITHIN: Final[Schema] = {2: ("succeeded", bool)}
"""A transaction in another one, whose header says the same; a batch has a hundred of them."""
RESPONSE: Final[Schema] = {1: ("range", {2: RANGE[2]}), 4: ("transaction", WITHIN)}
WITHIN[3] = ("responses", [RESPONSE])
TRANSACTION: Final[Schema] = {1: ("header", HEADER), **WITHIN}
LEASE: Final[Schema] = {1: ("header", HEADER), 2: ("id", int), 3: ("ttl", int), 4: ("granted", int)}
NOTHING: Final[Schema] = {}
LOGIN: Final[Schema] = {2: ("token", bytes)}
WATCH: Final[Schema] = {
    1: ("header", HEADER),
    2: ("watch_id", int),
    3: ("created", bool),
    4: ("canceled", bool),
    5: ("compact_revision", int),
    6: ("reason", bytes),
    11: ("events", [{1: ("deleted", bool), 2: ("kv", KEY_VALUE)}]),
}


def decode(schema: Schema, data: bytes) -> dict[str, Any]:
    """Take a message apart."""
    found: dict[str, Any] = {}
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        at += 1
        if key > 127:
            key, at = _varint(data, at - 1)
        value: Any = data[at]
        at += 1
        if value > 127:
            value, at = _varint(data, at - 1)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        elif key & 7:
            raise ValueError(f"a field of kind {key & 7} in an answer of etcd's")
        named = schema.get(key >> 3)
        if named is None:
            continue
        name, kind = named
        if kind is int:
            found[name] = value if value < 2**63 else value - 2**64
        elif type(kind) is list:
            found.setdefault(name, []).append(decode(kind[0], value))
        elif type(kind) is dict:
            found[name] = decode(kind, value)
        else:
            found[name] = kind(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
