"""A lease that begins when a transaction of the caller's commits.

Until then nobody else gets the resource; but only the database knows whether that transaction ends well. So what comes
back first is a `Grant`, which nothing renews and nobody should rely on, and which is confirmed after the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.claim import Take, held_error
from lessor.core.ops import Granted, Held, Lost, Renew, Renewed, Unknown
from lessor.errors import ConfigError, LeaseLost
from lessor.runtime.engine import forked_error
from lessor.stores.base import Transactional

if TYPE_CHECKING:
    from typing import Any

    from lessor.client.options import Terms
    from lessor.core.claim import Claim
    from lessor.core.ops import Outcome
    from lessor.patterns.options import Options
    from lessor.runtime.engine import Engine


class BaseGrant:
    """What the transaction will grant: see `Grant` and `AsyncGrant`."""

    __slots__ = ("_engine", "_generation", "_inherited", "_lease", "_op", "_terms", "token")

    token: int
    """The fencing token. Writes of the same transaction may carry it already."""

    def __init__(self, engine: Engine, claim: Claim, terms: Terms, outcome: Outcome) -> None:
        op = claim.op
        if isinstance(outcome, Held):
            raise held_error(op.resource, outcome)
        if isinstance(outcome, Unknown):
            raise outcome.error
        assert isinstance(outcome, Granted), f"no answer to a new request: {outcome}"
        self._engine = engine
        self._generation = claim.generation
        self._op = op
        self._terms = terms
        self.token = outcome.token
        self._inherited = outcome.state
        self._lease: Any = None  # of the kind that the face has, once confirmed

    @property
    def resource(self) -> str:
        """The name of what is granted."""
        return self._op.resource

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.resource!r} token={self.token} to be confirmed after the commit>"

    def _renewal(self) -> Renew:
        if self._generation != self._engine.generation:
            raise forked_error(self.resource, self.token)
        return Renew(self._op.resource, self._op.lease_id, self.token, self._op.ttl_ns)

    def _confirmed(self, outcome: Outcome, sent_ns: int) -> Take:
        """Return what was confirmed, and until when it may be relied upon, or raise."""
        if isinstance(outcome, Unknown):
            raise outcome.error
        if isinstance(outcome, Lost):
            raise LeaseLost(self.resource, token=self.token, reason=f"{outcome.reason}, or never committed")
        assert isinstance(outcome, Renewed), f"no answer to a renewal: {outcome}"
        return Take(self.token, sent_ns + self._terms.timing.safe_time(outcome.ttl_ns), self._inherited)


def transactional(engine: Engine) -> Transactional:
    """Return the store, if it can take part in a transaction of the caller's."""
    engine.require_open()
    if not isinstance(engine.store, Transactional):
        raise ConfigError(
            f"{engine.store.guarantees.store} can't grant inside your transaction; postgresql:// can, on a connection "
            "to the same database"
        )
    return engine.store


def check_request(options: Options) -> None:
    """Refuse what is about waiting: a transaction would keep its locks meanwhile."""
    for name in ("priority", "queue_limit"):
        if name in options:
            raise ConfigError(f"{name} is for those who wait, and inside a transaction nobody does")
