"""The connections of a store: one request, one answer, and none is used again of which that isn't certain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lessor.errors import StoreUnavailable
from lessor.stores.pool import TRUSTED_NS, Pool
from lessor.stores.redis.inspection import LOOK_EVERY_NS, Inspection
from lessor.stores.redis.trouble import Elsewhere, Evicting, leads_elsewhere
from lessor.stores.redis.wire import Wire, refusal, silence

if TYPE_CHECKING:
    from lessor.errors import LessorError
    from lessor.stores.hosts import Node
    from lessor.stores.limit import Limit
    from lessor.stores.redis.address import RedisAddress
    from lessor.stores.redis.topology import Topology

HOPS: Final = 3
"""How many servers are tried for one request, where one leads to the next."""


def to_master(address: RedisAddress, where: Topology, limit: Limit, *, protocol: int = 2) -> Wire:
    """Return a new connection to the server that is in charge now, which was asked whether it is."""
    for hops_left in reversed(range(HOPS)):
        node = where.find(limit)
        try:
            wire = Wire(node, address.login, limit, protocol=protocol)
            with wire.opening(limit):
                where.examine(wire.ask(where.question, limit), node)
        except Elsewhere:
            if not hops_left:
                raise
        except StoreUnavailable:
            if not (where.doubt() and hops_left):
                raise
        else:
            return wire
    raise AssertionError("it returns or raises")


class Connections(Pool[Wire]):
    """Those to the master."""

    def __init__(self, address: RedisAddress, where: Topology) -> None:
        super().__init__("redis", address)
        self._address = address
        self._where = where
        self._inspection = Inspection(address)

    def ask(self, request: bytes, limit: Limit, *, answers: int = 1, urgent: bool = False, grants: bool = False) -> Any:
        """Send a request over some connection, and return the answer, or a list of several.

        Raises errors of ours; of several answers, only the first one's refusal. It is never sent twice: what became
        of one without an answer isn't known here. One that ``grants`` is not sent to a server that evicts keys.
        """
        wire = self._idle_one(urgent=urgent)
        now = limit.began_ns
        if wire is None or (now - wire.used_ns > TRUSTED_NS and wire.pending(0)):
            wire = self._another(wire, limit, urgent=urgent)
        wire.used_ns = now
        try:
            if wire.evicting or now - wire.inspected_ns > LOOK_EVERY_NS:
                self._look_again(wire, limit, grants=grants)
            answer = wire.ask(request, limit)
            if answers > 1:
                answer = [answer, *(wire.receive(limit) for _ in range(answers - 1))]
        except OSError as error:
            self._drop(wire)
            self.renew()
            raise silence(error, wire.node, limit) from None
        except Evicting:
            self._put_back(wire)
            raise
        except BaseException:
            self._drop(wire)
            raise
        self._put_back(wire)
        if type(answer) is list and answers == 1:
            return answer
        if text := refusal(answer if answers == 1 else answer[0]):
            raise self._refused(text, wire.node)
        return answer

    def renew(self) -> None:
        """Close what is idle, since another server may be in charge now."""
        self._where.doubt()
        self._drop_idle()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _look_again(self, wire: Wire, limit: Limit, *, grants: bool) -> None:
        """See whether the server evicts keys by now, or no longer does."""
        self._inspection.again(wire, limit)
        if grants and wire.evicting:
            raise Evicting(wire.evicting)

    def _refused(self, text: str, node: Node) -> LessorError:
        error = self._where.refused(text, node)
        if isinstance(error, Elsewhere):
            self._drop_idle()
        elif leads_elsewhere(text):
            self.renew()
        return error

    def _connect(self, limit: Limit) -> Wire:
        wire = to_master(self._address, self._where, limit)
        with wire.opening(limit):
            self._inspection.of(wire, limit)
        return wire
