"""Which keys a namespace has, and how requests name them. A key's name and value are readable with ``etcdctl``.

====================================================  ================================================================
``/lessor/NAMESPACE/lease/RESOURCE``               who holds it, on the holder's etcd lease; or how that ended
``/lessor/NAMESPACE/wait/RESOURCE//queue/ID``      a waiter, on an etcd lease of its own; the oldest key is first
``/lessor/NAMESPACE/wait/RESOURCE//ranked/ID``     a waiter with a priority other than 0
``/lessor/NAMESPACE/wait/RESOURCE//kept/for``      a successor, for whom the free resource is kept, and its state
``/lessor/NAMESPACE/wait/RESOURCE//closed/WHY``    while it lives, nobody gets the resource: ``hold``, ``delay``
``/lessor/NAMESPACE/wait/RESOURCE//grace/ID``      a holder that may come back after its expiry, if nobody else came
``/lessor/NAMESPACE/wait/RESOURCE//never/ID``      an id that was given up, and is never granted
``/lessor/NAMESPACE/under/PARENT//RESOURCE``       a lease that stands under another one
``/lessor/NAMESPACE/notice/CLIENT//ID``            a word to one client
``/lessor/NAMESPACE/offset``                       what is added to revisions to make tokens; usually there is none
====================================================  ================================================================

No resource has ``//`` in its name, so none of these is mistaken for another.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lessor.stores.etcd.messages import inside, number, varint

if TYPE_CHECKING:
    from collections.abc import Iterable

HELD: Final = "held"


class KV(NamedTuple):
    """A key with its value."""

    key: str
    value: dict[str, Any]
    created: int
    """The revision in which it came to be."""
    modified: int
    """The revision of its last write."""
    lease: int
    """The etcd lease that it goes with; 0 for none."""

    @property
    def held(self) -> bool:
        """Whether it says that somebody holds the resource."""
        return self.value.get("state") == HELD

    @property
    def token(self) -> int:
        """The grant's token: the revision of the grant's own write, which any later write has to note."""
        token: int = self.value.get("token") or self.modified + self.value.get("plus", 0)
        return token


class Layout:
    """The keys of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.root = f"/lessor/{namespace}/"
        self.leases = f"{self.root}lease/"
        self.waits = f"{self.root}wait/"
        self.offset = f"{self.root}offset"

    def lease(self, resource: str) -> str:
        """Return the key of the lease itself."""
        return self.leases + resource

    def wait(self, resource: str) -> str:
        """Return what the keys of its waiters, and of what else keeps others out, start with."""
        return f"{self.waits}{resource}//"

    def waiter(self, resource: str, lease_id: str, priority: int = 0) -> str:
        """Return the key of a place in the queue."""
        return f"{self.waits}{resource}//{'ranked' if priority else 'queue'}/{lease_id}"

    def ranked(self, resource: str) -> str:
        """Return what the keys of waiters with a priority start with."""
        return f"{self.waits}{resource}//ranked/"

    def kept(self, resource: str) -> str:
        """Return the key of whom a handover is for."""
        return f"{self.waits}{resource}//kept/for"

    def never(self, resource: str, lease_id: str) -> str:
        """Return the key of an id that was given up."""
        return f"{self.waits}{resource}//never/{lease_id}"

    def grace(self, resource: str, lease_id: str) -> str:
        """Return the key of a holder that may come back after its expiry."""
        return f"{self.waits}{resource}//grace/{lease_id}"

    def closed(self, resource: str, why: str) -> str:
        """Return the key that keeps everybody out."""
        return f"{self.waits}{resource}//closed/{why}"

    def under(self, parent: str) -> str:
        """Return what the keys of its children start with."""
        return f"{self.root}under/{parent}//"

    def notice(self, address: str) -> str:
        """Return what the keys of the words to one client start with."""
        return f"{self.root}notice/{address}//"


# --- parts of requests ----------------------------------------------------------------------------------------------

EQUAL, GREATER, LESS = 0, 1, 2
CREATED, MODIFIED = 1, 2
ASCENDING, BY_CREATION = 1, 2
_IS_MODIFIED = number(1, EQUAL) + number(2, MODIFIED)
_AT_REVISION = varint(6 << 3)
_OLDEST_FIRST = number(5, ASCENDING) + number(6, BY_CREATION)


_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Made once: `json.dumps` makes an encoder for each value."""


def past(prefix: bytes) -> bytes:
    """Return the end of the range of keys that start so."""
    return prefix[:-1] + bytes([prefix[-1] + 1])  # no byte of UTF-8 is the highest one


def put(key: str, value: dict[str, Any] | int, lease: int = 0) -> bytes:
    """Write a key."""
    return inside(2, inside(1, key.encode()) + inside(2, _text(value).encode()) + number(3, lease))


def get(key: str) -> bytes:
    """Read a key."""
    return inside(1, inside(1, key.encode()))


def get_all(prefix: str, limit: int = 0) -> bytes:
    """Read the keys that start so, the oldest first."""
    start = prefix.encode()
    return inside(1, inside(1, start) + inside(2, past(start)) + number(3, limit) + _OLDEST_FIRST)


def delete(key: str) -> bytes:
    """Delete a key."""
    return inside(3, inside(1, key.encode()))


def unchanged(key: str, modified: int) -> bytes:
    """Demand that this was its last write; 0: that there is no such key."""
    return _IS_MODIFIED + inside(3, key.encode()) + _AT_REVISION + varint(modified)


def exists(key: str) -> bytes:
    """Demand that there is such a key."""
    return number(1, GREATER) + number(2, CREATED) + inside(3, key.encode()) + varint(5 << 3) + varint(0)


def none_under(prefix: str) -> bytes:
    """Demand that no key starts so."""
    return unchanged(prefix, 0) + inside(64, past(prefix.encode()))


def none_since(prefix: str, created: int) -> bytes:
    """Demand that no key that starts so came to be after that revision."""
    what = number(1, LESS) + number(2, CREATED) + inside(3, prefix.encode()) + varint(5 << 3) + varint(created + 1)
    return what + inside(64, past(prefix.encode()))


def transaction(compare: Iterable[bytes], success: Iterable[bytes], failure: Iterable[bytes]) -> bytes:
    """If all that is demanded holds, do this, else that."""
    return b"".join(
        [
            *(inside(1, demand) for demand in compare),
            *(inside(2, request) for request in success),
            *(inside(3, request) for request in failure),
        ]
    )


def within(part: bytes) -> bytes:
    """Make a transaction part of another one."""
    return inside(4, part)


def found(response: dict[str, Any]) -> list[KV]:
    """Return what a range in a transaction's answer has."""
    return [parse(kv) for kv in response["range"].get("kvs", ())]


def parse(kv: dict[str, Any]) -> KV:
    """Return a key as etcd shows it."""
    value = json.loads(kv["value"]) if kv.get("value") else {}
    return KV(
        kv["key"].decode(),
        value if isinstance(value, dict) else {"is": value},
        kv.get("create_revision", 0),
        kv["mod_revision"],
        kv.get("lease", 0),
    )
