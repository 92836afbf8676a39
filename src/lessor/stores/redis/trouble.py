"""What Redis says when it refuses, as the error that it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from lessor.errors import LessorError
    from lessor.stores.hosts import Node

CLUSTERED: Final = "is part of a Cluster: write redis+cluster:// (or rediss+cluster://) in the URL"
MOVING: Final = "is moving the namespace's slot, and can't serve it until that is done"
REFUSES_LOGIN: Final = "refuses the user name or password: mend the URL"
NEEDS_SETTLING: Final = {
    "NOAUTH": "wants a password, and the URL has none",
    "WRONGPASS": REFUSES_LOGIN,
    "NOPERM": "doesn't permit it to this user: let ACL SETUSER give it what leases need",
    "MOVED": CLUSTERED,
    "CROSSSLOT": CLUSTERED,
    "DENIED": "is in protected mode, and takes local connections only",
}
"""These don't go away by themselves."""

PASSES: Final = {
    "READONLY": "is a replica now, and can't be written to",
    "LOADING": "is loading its data",
    "OOM": "is out of memory (maxmemory)",
    "MASTERDOWN": "is a replica that has lost its master",
    "CLUSTERDOWN": "belongs to a Cluster that is down",
    "cluster is down": "belongs to a Cluster that is down",
    "MISCONF": "can't save to disk, and takes no writes until it can",
    "NOREPLICAS": "has too few replicas to take writes (min-replicas-to-write)",
    "BUSY": "is busy with somebody's script",
    "ASK": MOVING,
    "TRYAGAIN": MOVING,
    "non local key": MOVING,
    "max number of clients": "has as many clients as it takes (maxclients)",
}
LEAVE: Final = ("READONLY", "MASTERDOWN", "LOADING", "CLUSTERDOWN")
"""After these another server may be in charge: connect anew."""

_WORDS: Final = re.compile("|".join(rf"\b{word}\b" for word in (*NEEDS_SETTLING, *PASSES)))


class NoScript(StoreUnavailable):
    """The server doesn't have the script, so it has done nothing."""


class Elsewhere(StoreUnavailable):
    """The server has done nothing, since another one is in charge, and it is known which."""


class Evicting(ConfigError):  # noqa: N818 - it never leaves the store
    """The server may drop leases, so it was not asked for a new one: nothing has happened."""


def explain(text: str, node: Node) -> LessorError:
    """Return the error for what the server answered."""
    if text.startswith("NOSCRIPT"):
        return NoScript("redis", f"{node} doesn't have the script")
    found = _WORDS.search(text[:200])
    if found is None:
        if "AUTH" in text or "password" in text.lower():
            return ConfigError(f"Redis at {node} {REFUSES_LOGIN}")
        return StoreUnavailable("redis", f"{node} answers: {text[:200]}")
    word = found[0]
    if word in NEEDS_SETTLING:
        what = f" ({text[:200]})" if word == "NOPERM" else ""
        return ConfigError(f"Redis at {node} {NEEDS_SETTLING[word]}{what}")
    return StoreUnavailable("redis", f"{node} {PASSES[word]}")


def leads_elsewhere(text: str) -> bool:
    """Whether to connect anew, since another server may be in charge."""
    return text.startswith(LEAVE)
