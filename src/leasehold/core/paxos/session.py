"""What the renewal of a parent says about the leases that stand under it.

A session is a lease with children that last as long as it does. Renewing it renews them all, in one item of a request;
but what a majority said about the session is not yet a majority for a child, since other acceptors may hold the child.
So each child has a bound for each acceptor, and its deadline is the one that a majority of them supports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold.core.paxos.ballots import majority

if TYPE_CHECKING:
    from collections.abc import Iterable


class Bound(NamedTuple):
    """Until when one acceptor keeps others out of a child, as far as the child's owner knows."""

    incarnation: int
    until_ns: int


class Session:
    """The children of one lease, and who keeps them."""

    def __init__(self, acceptors: int) -> None:
        self.majority = majority(acceptors)
        self._children: dict[tuple[str, int], dict[str, Bound]] = {}

    def acked(self, child: tuple[str, int], who: str, incarnation: int, until_ns: int) -> None:
        """Take note that this acceptor took the child itself in. ``until_ns`` counts from before that was sent."""
        self._children.setdefault(child, {})[who] = Bound(incarnation, until_ns)

    def forget(self, child: tuple[str, int]) -> None:
        """Let go of a child that was given back, or is lost."""
        self._children.pop(child, None)

    def renewed(
        self, who: str, incarnation: int, held: Iterable[tuple[str, int]], until_ns: int, now: int
    ) -> list[tuple[str, int]]:
        """Take in one acceptor's answer to the renewal of the session; return the children to send to it again."""
        there = set(held)
        missing = []
        for child, bounds in self._children.items():
            bound = bounds.get(who)
            if child in there and bound is not None and self.counts(bound, incarnation, now):
                bounds[who] = Bound(incarnation, max(until_ns, bound.until_ns))
            else:
                missing.append(child)
        return missing

    def counts(self, bound: Bound, incarnation: int, now: int) -> bool:
        """Whether this acceptor has kept the child without a gap: it has not restarted, and its time has not run out."""
        return bound.incarnation == incarnation and now < bound.until_ns

    def deadline(self, child: tuple[str, int]) -> int:
        """Return until when a majority keeps others out of the child."""
        bounds = sorted((bound.until_ns for bound in self._children.get(child, {}).values()), reverse=True)
        return bounds[self.majority - 1] if len(bounds) >= self.majority else 0
