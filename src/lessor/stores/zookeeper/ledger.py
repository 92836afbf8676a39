"""What this client itself holds on ZooKeeper: until when, in which session, and how it ended.

The servers end sessions, not leases. So each client keeps the time of its own leases, and deletes the nodes of one
that is not renewed; the servers do that for clients that are gone.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.ops import Loss
    from lessor.stores.zookeeper.session import Session


REMEMBERED = 1000
"""How many endings are remembered."""


@dataclass(slots=True, eq=False)
class Holding:
    """A lease that was granted to this client."""

    resource: str
    lease_id: str
    mark: str
    """The hash of its id."""
    token: int
    session: Session
    session_id: int
    expiry_ns: int
    granted_ns: int
    node: dict[str, Any]
    """What its node says."""
    lock_delay_ns: int = 0
    hold_at_least_ns: int = 0
    notify: str = ""
    parent: Holding | None = None
    """What it stands under, where that is ours too."""
    follows_parent: bool = False
    """It has no time of its own, and lasts as long as its parent."""
    version: int = 0
    """Of the node that has its id: changed by whoever revokes it."""
    renewals: int = 0
    renewed_us: int = 0
    revoked: bool = False
    has_children: bool = False
    children_ended: int = 0
    """How many leases under it somebody else has ended, as far as that was looked into."""
    ended: Loss | None = None
    """How it ended; None while it goes on, or has only run out."""
    closed_until_ns: int = 0
    """Nobody holds it any more, and nobody else gets it before then."""
    pledges: int = 0
    """How many renewals are under way: until they are answered, it must not be ended for lack of them."""
    swept: bool = False
    """Its nodes are gone, or will be without another word: it is not renewed any more."""

    def until_ns(self) -> int:
        """Return when it ends, unless renewed: with its parent at the latest."""
        parent = self.parent
        if parent is None:
            return self.expiry_ns
        bound = parent.until_ns() if parent.ended is None else 0
        return bound if self.follows_parent else min(self.expiry_ns, bound)

    def rides_on(self, other: Holding) -> bool:
        """Whether it lasts as long as that one does, at any depth."""
        return self.follows_parent and self.parent is not None and (self.parent is other or self.parent.rides_on(other))

    def stand_alone(self) -> None:
        """Stay over, as it is, whatever becomes of its parent."""
        self.expiry_ns, self.parent = self.until_ns(), None

    def revoke(self) -> None:
        """Renew it no more: it lasts for as long as was promised, however long its parent goes on."""
        self.expiry_ns, self.follows_parent = self.until_ns(), False
        self.revoked = True

    def free_ns(self) -> int:
        """Return when the resource is free, if nobody does anything."""
        return self.closed_until_ns or self.until_ns() + self.lock_delay_ns

    def alive(self, now: int) -> bool:
        """Whether it is held."""
        return self.ended is None and now < self.until_ns()


class Ledger:
    """All of them, and the last ones that were."""

    def __init__(self) -> None:
        self.by_id: dict[str, Holding] = {}
        self.by_mark: dict[str, Holding] = {}
        self._ended: OrderedDict[str, Loss] = OrderedDict()
        self._lock = new_lock()

    def add(self, holding: Holding) -> None:
        """Remember a grant."""
        self.by_id[holding.lease_id] = holding
        self.by_mark[holding.mark] = holding

    def end(self, holding: Holding, loss: Loss) -> None:
        """Note how it ended, for those who ask later."""
        holding.ended = loss
        self._ended[holding.lease_id] = loss
        if len(self._ended) > REMEMBERED:
            with contextlib.suppress(KeyError):
                self._ended.popitem(last=False)

    def pledge(self, holdings: Sequence[Holding], start: int) -> list[bool]:
        """Announce renewals; return which of them may be sent. Each of these is followed by `redeem`."""
        with self._lock:
            may = [holding.alive(start) and not holding.swept for holding in holdings]
            for holding, allowed in zip(holdings, may, strict=True):
                holding.pledges += allowed
            return may

    def redeem(self, holdings: Sequence[Holding]) -> None:
        """Take note that the renewals have their answers, or will never be believed in."""
        with self._lock:
            for holding in holdings:
                holding.pledges -= 1

    def give_up(self, holding: Holding, now: int) -> bool:
        """Mark a lease that is over as swept; not while a renewal is under way, whose answer may bring it on."""
        with self._lock:
            if holding.pledges == 0 and (holding.ended is not None or holding.free_ns() <= now):
                holding.swept = True
            return holding.swept

    def forget(self, holding: Holding) -> None:
        """Forget one whose nodes are gone."""
        if self.by_id.get(holding.lease_id) is holding:
            del self.by_id[holding.lease_id]
        if self.by_mark.get(holding.mark) is holding:
            del self.by_mark[holding.mark]

    def ended(self, lease_id: str) -> Loss | None:
        """Return how a lease ended, if that was not long ago."""
        return self._ended.get(lease_id)

    def held(self, resource: str, token: int) -> Holding | None:
        """Return the lease with this token, if it is ours."""
        for holding in list(self.by_id.values()):
            if holding.token == token and holding.resource == resource:
                return holding
        return None

    def of_session(self, session_id: int) -> list[Holding]:
        """Return what is held in a session."""
        return [holding for holding in list(self.by_id.values()) if holding.session_id == session_id]

    def all(self) -> list[Holding]:
        """Return all of them."""
        return list(self.by_id.values())
