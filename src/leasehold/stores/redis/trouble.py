"""What Redis says when it refuses, as the error that it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from leasehold.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from leasehold.errors import LeaseholdError
    from leasehold.stores.redis.address import RedisAddress

NEEDS_SETTLING: Final = {
    "NOAUTH": "wants a password, and the URL has none",
    "WRONGPASS": "refuses the user name or password",
    "NOPERM": "doesn't permit it to this user",
    "MOVED": "is part of a Cluster, which is not supported yet",
    "ASK": "is part of a Cluster, which is not supported yet",
    "CROSSSLOT": "is part of a Cluster, which is not supported yet",
    "DENIED": "is in protected mode, and takes local connections only",
}
"""These don't go away by themselves."""

PASSES: Final = {
    "READONLY": "is a replica now, and can't be written to",
    "LOADING": "is loading its data",
    "OOM": "is out of memory (maxmemory)",
    "MASTERDOWN": "is a replica that has lost its master",
    "CLUSTERDOWN": "belongs to a Cluster that is down",
    "MISCONF": "can't save to disk, and takes no writes until it can",
    "NOREPLICAS": "has too few replicas to take writes (min-replicas-to-write)",
    "BUSY": "is busy with somebody's script",
    "TRYAGAIN": "is moving keys",
    "max number of clients": "has as many clients as it takes (maxclients)",
}
LEAVE: Final = ("READONLY", "MASTERDOWN", "LOADING")
"""After these another server may answer at the same address: connect anew."""

_WORDS: Final = re.compile("|".join(rf"\b{word}\b" for word in (*NEEDS_SETTLING, *PASSES)))


def explain(text: str, address: RedisAddress) -> LeaseholdError:
    """Return the error for what the server answered."""
    found = _WORDS.search(text[:200])
    if found is None:
        if "AUTH" in text or "password" in text.lower():
            return ConfigError(f"Redis at {address} refuses the user name or password")
        return StoreUnavailable("redis", f"{address} answers: {text[:200]}")
    word = found[0]
    if word in NEEDS_SETTLING:
        what = f": {text[:200]}" if word == "NOPERM" else ""
        return ConfigError(f"Redis at {address} {NEEDS_SETTLING[word]}{what}")
    return StoreUnavailable("redis", f"{address} {PASSES[word]}")


def leads_elsewhere(text: str) -> bool:
    """Whether to connect anew, since another server may be in charge."""
    return text.startswith(LEAVE)
