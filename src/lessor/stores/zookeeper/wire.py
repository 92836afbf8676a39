"""ZooKeeper's requests beyond those that kazoo has.

Transactions that say what they were refused for, nodes that go when nothing is below them any more, and the end of a
watch. All of them go through kazoo's connection; the rest of its requests are used as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar, NamedTuple

from kazoo.exceptions import (
    EXCEPTIONS,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZookeeperError,
)
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    SetData,
    Sync,
    int_struct,
    multiheader_struct,
    read_string,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import ZnodeStat

EPHEMERAL = 1
SEQUENCE = 2
ANY_VERSION = -1

NODE_ERRORS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
"""Answers rather than trouble: the node is not as it was thought to be."""
_ANSWERS = {error.code for error in NODE_ERRORS}

_BEGIN = Struct("!iBii").pack
"""The header of an operation in a transaction, and the length of its path."""
_END = multiheader_struct.pack(-1, True, -1)
_number = int_struct.pack
_DATA_WATCHES = 2
_CONTAINER = 4
_NOT_THE_CAUSE = (0, -2)
"""The codes of those operations that failed only because another one in the same transaction did."""


class Failure(NamedTuple):
    """Why a transaction did not happen."""

    path: str
    code: int

    @property
    def exists(self) -> bool:
        """Whether the node was there already."""
        return bool(self.code == NodeExistsError.code)

    @property
    def missing(self) -> bool:
        """Whether the node was not there."""
        return bool(self.code == NoNodeError.code)


@dataclass(frozen=True, slots=True)
class Multi:
    """Operations that all happen, at one zxid, or none of them."""

    type: ClassVar[int] = 14
    operations: tuple[Any, ...]

    def serialize(self) -> bytes:
        """Return it as it is sent. There may be hundreds of operations: kazoo would take five times as long for each."""
        parts: list[bytes] = []
        for op in self.operations:
            path = op.path.encode()
            parts += (_BEGIN(op.type, False, -1, len(path)), path)
            if isinstance(op, Create):
                parts += (_number(len(op.data)), op.data, _written(op.acl), _number(op.flags))
            elif isinstance(op, SetData):
                parts += (_number(len(op.data)), op.data, _number(op.version))
            else:
                parts.append(_number(op.version))
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        """Return the results in order: a path, a stat, True or, where all was refused, error codes in a list each."""
        results: list[Any] = []
        while True:
            kind, done, _ = multiheader_struct.unpack_from(data, offset)
            offset += multiheader_struct.size
            if done:
                return results
            if kind == Create.type:
                path, offset = read_string(data, offset)
                results.append(path)
            elif kind == SetData.type:
                results.append(ZnodeStat._make(stat_struct.unpack_from(data, offset)))
                offset += stat_struct.size
            elif kind == -1:
                results.append([int_struct.unpack_from(data, offset)[0]])
                offset += int_struct.size
            else:
                results.append(True)

    def failure(self, results: list[Any]) -> Failure | None:
        """Return which node was not as it was thought to be; None if it happened.

        What else it may be refused for, permissions or a quota, is raised: it would be the same the next time.
        """
        for op, result in zip(self.operations, results, strict=True):
            if isinstance(result, list) and result[0] not in _NOT_THE_CAUSE:
                if result[0] not in _ANSWERS:
                    raise EXCEPTIONS.get(result[0], ZookeeperError)
                return Failure(op.path, result[0])
        return None


@lru_cache
def _written(acl: tuple[Any, ...]) -> bytes:
    entries = [_number(one.perms) + write_string(one.id.scheme) + write_string(one.id.id) for one in acl]
    return b"".join((_number(len(acl)), *entries))


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """Make a node without data that the servers delete when the last node below it has been gone for a minute or so."""

    type: ClassVar[int] = 19
    path: str
    acl: tuple[Any, ...]

    def serialize(self) -> bytes:
        """Return it as it is sent."""
        return b"".join((write_string(self.path), _number(0), _written(self.acl), _number(_CONTAINER)))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> str:
        """Return the path."""
        return str(read_string(data, offset)[0])


@dataclass(frozen=True, slots=True)
class RemoveWatches:
    """Be told no more when this node changes or goes."""

    type: ClassVar[int] = 18
    path: str

    def serialize(self) -> bytes:
        """Return it as it is sent."""
        return bytes(write_string(self.path) + int_struct.pack(_DATA_WATCHES))

    @staticmethod
    def deserialize(_data: bytes, _offset: int) -> bool:
        """Return that it was done."""
        return True


__all__ = [
    "ANY_VERSION",
    "EPHEMERAL",
    "NODE_ERRORS",
    "SEQUENCE",
    "CheckVersion",
    "Create",
    "CreateContainer",
    "Delete",
    "Exists",
    "Failure",
    "GetChildren",
    "GetChildren2",
    "GetData",
    "Multi",
    "RemoveWatches",
    "SetData",
    "Sync",
]
