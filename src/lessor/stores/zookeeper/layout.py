"""Where things are: the names of the nodes, readable for somebody with zkCli.

::

    /lessor/default            what all clients of the namespace must agree on (see `root`)
        leases/RESOURCE           ephemeral: the lease, as JSON
        ids/HASH                  ephemeral: the lease id that holds, or that must never be granted
        queue/RESOURCE            a container: written to when somebody with a priority or a bound joins
        queue/RESOURCE/HASH-0007  ephemeral: a waiter; HASH.5-0007: one with a priority
        sessions/ID               ephemeral: written to whenever leases of that session are renewed
        clients/ADDRESS           ephemeral: written to when a lease of that client is revoked
        children/HASH             how many leases under the one with that id were ended by somebody else
        children/HASH/RESOURCE    ephemeral: what stands under it
        watchers/ADDRESS          ephemeral: somebody who watches
        events/e-0000000012       what happened, while somebody watches

A lease id is a secret, so only a hash of it is ever written.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from urllib.parse import quote, unquote

FOLDERS = ("leases", "ids", "queue", "sessions", "clients", "children", "watchers", "events")
_PLAIN = re.compile(r"[A-Za-z0-9_:@+=,-]+")
_SPECIAL = re.compile(r"[^!-$&-.0-~\u00a1-\ud7ff\uf900-\uffef]")
"""What is written as percent escapes: '/', '%', blanks, and what ZooKeeper doesn't take in a name."""
_SEQUENCE = re.compile(r"-(\d{10})$")
_PRIORITY = re.compile(r"\.(-?\d+)-")
_MARK = 32
"""How long a hash is."""


@lru_cache(maxsize=4096)
def encode(resource: str) -> str:
    """Return the resource as the name of a node."""
    if _PLAIN.fullmatch(resource):
        return resource
    if resource in (".", ".."):
        return resource.replace(".", "%2E")
    return _SPECIAL.sub(lambda found: quote(found[0], safe=""), resource)


def decode(name: str) -> str:
    """Return the resource that a node's name stands for."""
    return unquote(name) if "%" in name else name


def fingerprint(lease_id: str) -> str:
    """Return what may be shown of a lease id: enough to recognise it, and nothing to release it with."""
    return hashlib.sha256(lease_id.encode()).hexdigest()[:_MARK]


def place(mark: str, priority: int) -> str:
    """Return the name of a waiter, which ZooKeeper adds a number to."""
    return f"{mark}.{priority}-" if priority else f"{mark}-"


def mark_of(place: str) -> str:
    """Return whose place in the queue it is."""
    return place[:_MARK]


def priority_of(place: str) -> int:
    """Return the priority that a waiter came with."""
    found = _PRIORITY.search(place)
    return int(found[1]) if found else 0


def sequence(name: str) -> int:
    """Return the number that ZooKeeper gave to a waiter or an event."""
    found = _SEQUENCE.search(name)
    return int(found[1]) if found else -1


class Layout:
    """The paths of one namespace."""

    def __init__(self, chroot: str, namespace: str) -> None:
        self.chroot = chroot
        self.root = f"{chroot}/{namespace}"
        self.leases = f"{self.root}/leases"
        self.events = f"{self.root}/events"
        self.families = f"{self.root}/children"
        self.watchers = f"{self.root}/watchers"

    def lease(self, resource: str) -> str:
        """Return where the lease on a resource is."""
        return f"{self.root}/leases/{encode(resource)}"

    def id(self, mark: str) -> str:
        """Return where the hash of a lease id is."""
        return f"{self.root}/ids/{mark}"

    def queue(self, resource: str) -> str:
        """Return where the waiters for a resource are."""
        return f"{self.root}/queue/{encode(resource)}"

    def session(self, session_id: int) -> str:
        """Return where a session is renewed."""
        return f"{self.root}/sessions/{session_id & (2**64 - 1):016x}"

    def client(self, address: str) -> str:
        """Return where a client is called."""
        return f"{self.root}/clients/{address}"

    def children(self, mark: str) -> str:
        """Return where it says what stands under a lease."""
        return f"{self.families}/{mark}"
