"""Waits until replicas have what was granted (``?replicas=N``).

It can't promise exclusion over a failover to a replica that is not among those that acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lessor.core.ops import Acquire, Renew
from lessor.errors import StoreUnavailable
from lessor.stores.redis.wire import pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.ops import Op
    from lessor.stores.redis.address import RedisAddress

MARK_LIFE_MS: Final = 60_000


class Replication:
    """Asks for it in the same sending as the operations, once a batch."""

    ANSWERS: Final = 2

    def __init__(self, address: RedisAddress, prefix: str) -> None:
        self._wanted = address.replicas
        self._patience = address.replica_timeout
        # WAIT counts from the last write of its own connection. A grant that is merely confirmed, since it was made
        # over another connection, writes nothing: so there is always this write, behind all that came before it.
        self._mark = pack("SET", f"{prefix}mark", "", "PX", MARK_LIFE_MS)

    @staticmethod
    def concerns(ops: Sequence[Op]) -> bool:
        """Whether something may come of it that must not be lost. A lost release only makes others wait."""
        return any(type(op) is Acquire or type(op) is Renew for op in ops)

    def request(self, timeout: float) -> bytes:
        """Return what goes behind the operations."""
        return self._mark + pack("WAIT", self._wanted, max(1, int(self._seconds(timeout) * 1000)))

    def shortage(self, answers: Sequence[Any], timeout: float) -> StoreUnavailable | None:
        """Say what is wrong where too few replicas have acknowledged."""
        marked, acknowledged = answers
        count = acknowledged if marked == "OK" and isinstance(acknowledged, int) else 0
        if count >= self._wanted:
            return None
        seconds = self._seconds(timeout)
        return StoreUnavailable("redis", f"{count} of {self._wanted} replicas acknowledged within {seconds:g} s")

    def _seconds(self, timeout: float) -> float:
        """Return how long to wait: at most half of the time, so that some is left to undo the grants."""
        return min(self._patience, timeout / 2)
