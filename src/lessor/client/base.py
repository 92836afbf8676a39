"""What both clients are made of: a store, the machinery around it, and how leases are to be held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.client.options import TermsBook, check_holder, check_renewal, check_required, positive_ns
from lessor.client.terms import default_url
from lessor.core.ops import Held, Loss
from lessor.core.timing import MAX_TTL_NS, Renewal
from lessor.errors import ConfigError, WouldDeadlock
from lessor.runtime.engine import Engine
from lessor.stores.base import Capability, Store
from lessor.stores.registry import url_of

if TYPE_CHECKING:
    from lessor.core.ops import Outcome
    from lessor.core.timing import Duration
    from lessor.runtime.host import Host
    from lessor.runtime.tenure import Tenure
    from lessor.stores.registry import EngineLike


class BaseClient:
    """Not for use by itself: see `Client` and `AsyncClient`."""

    def __init__(
        self,
        url: str | Store | EngineLike | None = None,
        *,
        holder: str | None = None,
        timeout: Duration = 5.0,
        renewal: Renewal | str = Renewal.THIRD,
        require: Capability | str = Capability.NONE,
    ) -> None:
        seconds = positive_ns(timeout, "the timeout", most=MAX_TTL_NS) / 1e9
        where = default_url() if url is None else url_of(url)
        if not isinstance(where, (str, Store)):
            raise ConfigError(
                f"a client takes a URL, an open store or an SQLAlchemy engine, not {type(where).__name__}"
            )
        strategy = check_renewal(renewal)
        self._engine = self._start(where, check_holder(holder), seconds)
        try:
            check_required(self._engine.store.guarantees, require)
        except ConfigError:
            self._engine.close()
            raise
        self._terms = TermsBook(self._engine.store.guarantees, strategy)

    def _start(self, where: str | Store, holder: str | None, timeout: float) -> Engine:
        return Engine(where, holder=holder, timeout=timeout)

    @property
    def url(self) -> str:
        """The store's URL, without passwords."""
        return self._engine.store.url

    @property
    def holder(self) -> str:
        """The name under which this client holds leases."""
        return self._engine.holder

    @property
    def _host(self) -> Host:
        return self._engine.host

    def drop(self, lease: Tenure) -> None:
        """Stop holding the lease now, and give it back in the background."""
        self._engine.abandon(lease, Loss.RELEASED)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url} holding {len(self._engine.held)}>"

    def _refuse_deadlock(self, owner: object, resource: str, outcome: Outcome) -> None:
        """Raise if this thread or task holds what it is about to wait for without a bound.

        Another thread or task may release the lease, but nothing says that one will. A bounded wait can't hang.
        """
        mine = self._engine.held_by(owner, resource, outcome.token) if isinstance(outcome, Held) else None
        if mine is not None:
            raise WouldDeadlock(mine.resource, holder=mine.holder, token=mine.token, remaining=mine.remaining)
