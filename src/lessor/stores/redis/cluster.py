"""A Cluster: the keys of a namespace share a slot, and the slot has one master at a time.

While the slot is being moved, the keys are on two servers. ``ASK`` would send a script to the new one, which takes a
record that has yet to arrive for one that doesn't exist, and would grant it again. So it is not followed: until the
slot has moved, requests for what isn't complete are refused, by Redis itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis.crc import key_slot

from lessor.errors import ConfigError, StoreUnavailable
from lessor.stores.hosts import Node
from lessor.stores.redis.topology import Informants
from lessor.stores.redis.trouble import Elsewhere, explain
from lessor.stores.redis.wire import pack, refusal

if TYPE_CHECKING:
    from lessor.errors import LessorError
    from lessor.stores.limit import Limit
    from lessor.stores.redis.address import RedisAddress


class InCluster:
    """Remembers the slot's master, and asks any server of the Cluster when that is in doubt."""

    def __init__(self, address: RedisAddress, counter: str) -> None:
        self.question = pack("EXISTS", counter)  # only the slot's master answers it
        self._slot = key_slot(counter.encode())
        self._plain = address.scheme.partition("+")[0]
        self._servers = Informants(address.nodes, address.login, "server of the Cluster")
        self._master: Node | None = None

    def find(self, limit: Limit) -> Node:
        """Return the slot's master."""
        master = self._master
        if master is None:
            master = self._servers.ask(pack("CLUSTER", "SLOTS"), self._understand, limit)
            self._master = master
        return master

    def doubt(self) -> bool:
        """Ask anew, and another server first."""
        self._master = None
        self._servers.last()
        return True

    def examine(self, answer: Any, node: Node) -> None:
        """Refuse a server without the slot."""
        text = refusal(answer)
        if text and not text.startswith("NOPERM"):
            raise self.refused(text, node)

    def refused(self, text: str, node: Node) -> LessorError:
        """Take the server's word for it where the slot has moved."""
        if not text.startswith("MOVED"):
            return explain(text, node)
        host, _, port = text.split()[2].rpartition(":")
        self._master = Node(host.strip("[]") or node.host, int(port))
        return Elsewhere("redis", f"{node} says that {self._master} has the namespace")

    def _understand(self, answer: Any, asked: Node) -> Node:
        if refused := refusal(answer):
            if "cluster support disabled" in refused:
                raise ConfigError(
                    f"{asked} is not part of a Cluster; for a single server write {self._plain}://{asked}"
                )
            raise explain(refused, asked)
        known, found = [], None
        for first, last, *servers in answer:
            # A server that doesn't know its own name leaves it out: it is where we reached it.
            nodes = [Node(host if host and host != "?" else asked.host, port) for host, port, *_ in servers]
            known += nodes
            if first <= self._slot <= last:
                found = nodes[0]
        self._servers.learn(known)
        if found is None:
            raise StoreUnavailable("redis", f"the Cluster at {asked} has no server for slot {self._slot}")
        return found
