"""Where is the master now? All in which one server, servers behind Sentinel, and a Cluster differ for leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.redis.trouble import explain
from lessor.stores.redis.wire import Wire, pack, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.stores.hosts import Node
    from lessor.stores.limit import Limit
    from lessor.stores.redis.address import Login, RedisAddress


class Topology(Protocol):
    """Finds the server that decides about the leases of one namespace."""

    question: bytes
    """Asks a server whether it is the one: at the start of a connection, and from time to time on one that listens."""

    def find(self, limit: Limit) -> Node:
        """Return where it is."""
        ...

    def doubt(self) -> bool:
        """Take what was found for outdated; whether another look may find something else."""
        ...

    def examine(self, answer: Any, node: Node) -> None:
        """Raise the error for a server with that answer to the question, if it isn't the one."""
        ...

    def refused(self, text: str, node: Node) -> LessorError:
        """Return the error for a server's refusal: `Elsewhere` where it said who is the one, which is found next."""
        ...


def topology(address: RedisAddress, counter: str) -> Topology:
    """Return what finds the master for the namespace with this token counter."""
    if address.kind == "sentinel":
        from lessor.stores.redis.sentinel import BehindSentinel  # noqa: PLC0415 - who has none of it

        return BehindSentinel(address)
    if address.kind == "cluster":
        from lessor.stores.redis.cluster import InCluster  # noqa: PLC0415 - as above

        return InCluster(address, counter)
    return OneServer(address)


class OneServer:
    """The one that the URL names."""

    question = pack("ROLE")

    def __init__(self, address: RedisAddress) -> None:
        (self._node,) = address.nodes
        self._address = address

    def find(self, limit: Limit) -> Node:  # noqa: ARG002 - it is known
        """Return it."""
        return self._node

    def doubt(self) -> bool:
        """Go on with it: there is no other."""
        return False

    def examine(self, answer: Any, node: Node) -> None:
        """Refuse a replica or a Sentinel."""
        role = role_of(answer, node)
        if role == "sentinel":
            raise ConfigError(
                f"{node} is a Sentinel: write {self._address.scheme}+sentinel://{node}/NAME-OF-THE-MASTER"
            )
        if role == "slave":
            master = f"{answer[1]}:{answer[2]}"
            raise ConfigError(f"Redis at {node} is a replica (of {master}): leases need the master")

    def refused(self, text: str, node: Node) -> LessorError:
        """Nobody else has it."""
        return explain(text, node)


def role_of(answer: Any, node: Node) -> str:
    """Return what a server says that it is; nothing where it may not say."""
    if refused := refusal(answer):
        if refused.startswith("NOPERM"):
            return ""
        raise explain(refused, node)
    return str(answer[0])


class Informants:
    """Servers that know where the master is. They are asked in turn, and the one that knew last is asked first."""

    def __init__(self, nodes: list[Node], login: Login, who: str) -> None:
        self._given = nodes
        self._nodes = list(nodes)
        self._login = login
        self._who = who

    def ask(self, question: bytes, understand: Callable[[Any, Node], Node], limit: Limit) -> Node:
        """Return the master that the first of them names that can be understood."""
        asked = list(self._nodes)
        failures: list[LessorError] = []
        for count, node in enumerate(asked):
            try:
                # One that is silent leaves time for the others.
                master = understand(self._answer(node, question, limit.share(len(asked) - count)), node)
            except LessorError as error:
                failures.append(error)
                continue
            except TimeoutError:
                failures.append(StoreUnavailable("redis", f"no answer within {limit.seconds:g} s"))
                break
            self._nodes = [node, *(other for other in self._nodes if other != node)]
            return master
        if all(isinstance(failure, ConfigError) for failure in failures):
            raise failures[0]
        reasons = "; ".join(dict.fromkeys(getattr(failure, "detail", "") or str(failure) for failure in failures))
        raise StoreUnavailable("redis", f"no {self._who} names the master: {reasons}")

    def learn(self, nodes: list[Node]) -> None:
        """Know these, for when those in the URL have gone."""
        self._nodes = list(dict.fromkeys([*nodes, *self._given]))

    def last(self) -> None:
        """Ask somebody else first the next time: what the first one said was no good."""
        self._nodes = [*self._nodes[1:], *self._nodes[:1]]

    def _answer(self, node: Node, question: bytes, limit: Limit) -> Any:
        wire = Wire(node, self._login, limit)
        with wire.opening(limit):
            answer = wire.ask(question, limit)
        wire.close()
        return answer
