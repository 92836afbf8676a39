"""Looks whether leases can be kept on a server: when it is connected to, and now and then after that."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lessor.core.clock import SECOND
from lessor.errors import ConfigError, StoreUnavailable
from lessor.stores.redis.trouble import CLUSTERED, explain
from lessor.stores.redis.wire import pack, refusal

if TYPE_CHECKING:
    from lessor.stores.hosts import Node
    from lessor.stores.limit import Limit
    from lessor.stores.redis.address import RedisAddress
    from lessor.stores.redis.wire import Wire

OLDEST: Final = (6, 2)
LOOK_EVERY_NS: Final = 5 * SECOND
"""How old a look at the settings may be: an operator may have changed them since."""
NO_EVICTION: Final = "noeviction"


class Inspection:
    """What the servers of one store have to be like."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._warned = ""
        """What the last warning was about: it is not repeated."""

    def of(self, wire: Wire, limit: Limit) -> None:
        """Ask the server about itself, and raise the error if it won't do."""
        facts = self._facts(wire, pack("INFO"), limit)
        if not facts:
            return
        node = wire.node
        if facts.get("redis_mode") == "cluster" and self._address.kind != "cluster":
            raise ConfigError(f"Redis at {node} {CLUSTERED}")
        version = facts.get("redis_version", "")
        if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < OLDEST:
            raise ConfigError(f"Redis at {node} has version {version}, and 6.2 is the oldest that works")
        connected = int(facts.get("connected_slaves", 0))
        if connected < self._address.replicas:
            raise StoreUnavailable(
                "redis", f"{node} has {connected} of the {self._address.replicas} replicas that the URL asks for"
            )
        self._judge(wire, facts)

    def again(self, wire: Wire, limit: Limit) -> None:
        """Look at what may have changed since: whether the server evicts keys."""
        if facts := self._facts(wire, pack("INFO", "memory"), limit):
            self._judge(wire, facts)

    def _facts(self, wire: Wire, question: bytes, limit: Limit) -> dict[str, str]:
        """Return what the server says about itself; nothing where this user may not ask."""
        answer = wire.ask(question, limit)
        wire.inspected_ns = limit.began_ns
        if refused := refusal(answer):
            if not refused.startswith("NOPERM"):
                raise explain(refused, wire.node)
            self._warn(
                "this user may not ask Redis at %s for INFO, so nothing has checked its version, and that its "
                "maxmemory-policy is noeviction",
                wire.node,
            )
            return {}
        return dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)

    def _judge(self, wire: Wire, facts: dict[str, str]) -> None:
        """Take note of the policy. It refuses new grants only: not to renew would take for certain what it may take."""
        policy = facts.get("maxmemory_policy", NO_EVICTION)
        node = wire.node
        wire.evicting = ""
        if policy == NO_EVICTION:
            self._warned = ""
        elif self._address.accepts_eviction:
            self._warn(
                "Redis at %s may drop leases and tokens when memory runs short (maxmemory-policy %s), which "
                "eviction=accept allows: two clients may then hold the same lease",
                node,
                policy,
            )
        else:
            wire.evicting = (
                f"Redis at {node} may drop leases and tokens when memory runs short (maxmemory-policy {policy}): set "
                "it to noeviction, or accept that with ?eviction=accept"
            )
            self._warn(
                "Redis at %s may drop leases and tokens when memory runs short (maxmemory-policy %s): no lease is "
                "granted; those that are held are renewed, and may get lost",
                node,
                policy,
            )

    def _warn(self, text: str, node: Node, *values: str) -> None:
        if self._warned != text:
            self._warned = text
            logging.getLogger("lessor").warning(text, node, *values)
