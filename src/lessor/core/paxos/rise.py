"""A higher number for a lease that is held, because an acceptor that lacks it demands one.

A majority that has the lease live confirms the number first, aside from whatever else is asked; only then is the lease
handed out under it. Not with the next renewal: by then somebody who waits may have led that acceptor further on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.ops import Renew
from lessor.core.paxos.messages import Ack, Extend
from lessor.core.paxos.steps import Send

if TYPE_CHECKING:
    from lessor.core.paxos.messages import Verdict
    from lessor.core.paxos.proposer import Proposer


class Rise:
    """One lease's number on its way up."""

    __slots__ = ("_confirmed_by", "lease", "n", "number", "sent_ns", "wanted_by")

    def __init__(self, lease: Proposer, number: int, who: str, floor: int, *, now: int, wall_us: int) -> None:
        self.lease = lease
        self.number = number
        """Ties answers to it."""
        self.n = lease.n = lease.ballots.next(wall_us, floor)
        self.sent_ns = now
        self.wanted_by = [who]
        self._confirmed_by: set[str] = set()

    def wants(self, who: str) -> None:
        """Take note of one more who demands a higher number."""
        if who not in self.wanted_by:
            self.wanted_by.append(who)

    def ask(self) -> Send:
        """Ask all to confirm it. That lengthens nothing."""
        op = self.lease.op
        renewal = Renew(op.resource, op.lease_id, self.lease.token, 0)
        return Send(self.number, Extend(renewal, self.n), aside=True)

    def confirmed(self, who: str, verdict: Verdict) -> bool:
        """Count an acceptor that had it live; return whether that makes a majority: the lease is handed out now."""
        if not (isinstance(verdict, Ack) and verdict.extended):
            return False
        self._confirmed_by.add(who)
        if len(self._confirmed_by) != self.lease.majority:
            return False
        self.lease.confirmed_n = max(self.lease.confirmed_n, self.n)
        return True
