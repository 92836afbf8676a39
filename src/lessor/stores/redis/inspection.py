"""Refuses a server on which leases can't be kept, when it is connected to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError, StoreUnavailable
from lessor.stores.redis.trouble import CLUSTERED, explain
from lessor.stores.redis.wire import pack, refusal

if TYPE_CHECKING:
    from lessor.stores.hosts import Node
    from lessor.stores.limit import Limit
    from lessor.stores.redis.address import RedisAddress
    from lessor.stores.redis.wire import Wire

OLDEST: Final = (6, 2)


class Inspection:
    """What the servers of one store have to be like."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._warned = False

    def of(self, wire: Wire, limit: Limit) -> None:
        """Ask the server about itself, and raise the error if it won't do."""
        node = wire.node
        answer = wire.ask(pack("INFO"), limit)
        if refused := refusal(answer):
            if not refused.startswith("NOPERM"):
                raise explain(refused, node)
            self._warn(node)
            return
        facts = dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)
        if facts.get("redis_mode") == "cluster" and self._address.kind != "cluster":
            raise ConfigError(f"Redis at {node} {CLUSTERED}")
        version = facts.get("redis_version", "")
        if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < OLDEST:
            raise ConfigError(f"Redis at {node} has version {version}, and 6.2 is the oldest that works")
        policy = facts.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise ConfigError(
                f"Redis at {node} may drop leases and tokens when memory runs short "
                f"(maxmemory-policy {policy}): set it to noeviction"
            )
        connected = int(facts.get("connected_slaves", 0))
        if connected < self._address.replicas:
            raise StoreUnavailable(
                "redis", f"{node} has {connected} of the {self._address.replicas} replicas that the URL asks for"
            )

    def _warn(self, node: Node) -> None:
        if not self._warned:
            self._warned = True
            import logging  # noqa: PLC0415 - hardly ever needed

            logging.getLogger("lessor").warning(
                "this user may not ask Redis at %s for INFO, so nobody has checked its version, and that its "
                "maxmemory-policy is noeviction",
                node,
            )
