"""Servers behind Sentinel: the Sentinels say which of them is the master.

A Sentinel that is cut off together with an old master goes on naming it, and that one goes on granting, until it finds
that it lost its replicas (``min-replicas-to-write``, or ``?replicas=``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lessor.errors import ConfigError, StoreUnavailable
from lessor.stores.hosts import Node
from lessor.stores.redis.topology import Informants, role_of
from lessor.stores.redis.trouble import explain
from lessor.stores.redis.wire import pack, refusal

if TYPE_CHECKING:
    from lessor.errors import LessorError
    from lessor.stores.limit import Limit
    from lessor.stores.redis.address import RedisAddress

DOWN: Final = {"s_down", "o_down", "disconnected"}


class BehindSentinel:
    """Asks the Sentinels for each new connection: they may have changed their minds."""

    question = pack("ROLE")

    def __init__(self, address: RedisAddress) -> None:
        self._service = address.service
        self._plain = address.scheme.partition("+")[0]
        self._sentinels = Informants(address.nodes, address.sentinel_login, "Sentinel")

    def find(self, limit: Limit) -> Node:
        """Return the master that a Sentinel names and takes for alive."""
        return self._sentinels.ask(pack("SENTINEL", "MASTER", self._service), self._understand, limit)

    def doubt(self) -> bool:
        """Ask another Sentinel first."""
        self._sentinels.last()
        return True

    def examine(self, answer: Any, node: Node) -> None:
        """Refuse a replica: Sentinel is about to see to that."""
        if role_of(answer, node) not in ("master", ""):
            raise StoreUnavailable("redis", f"{node}, which Sentinel names as the master, is a replica at present")

    def refused(self, text: str, node: Node) -> LessorError:
        """Nobody but Sentinel says who has it."""
        return explain(text, node)

    def _understand(self, answer: Any, sentinel: Node) -> Node:
        refused = refusal(answer)
        if "No such master" in refused:
            raise ConfigError(f"the Sentinel at {sentinel} knows no master named {self._service!r}")
        if "unknown command" in refused:
            raise ConfigError(f"{sentinel} is no Sentinel; for a single server write {self._plain}://{sentinel}")
        if refused:
            raise explain(refused, sentinel)
        facts = dict(zip(answer[::2], answer[1::2], strict=True))
        master = Node(facts["ip"], int(facts["port"]))
        if DOWN.intersection(facts["flags"].split(",")):
            raise StoreUnavailable("redis", f"Sentinel {sentinel} has found the master {master} to be down")
        return master
