"""What rides on a lease, as one acceptor has it: the leases without a TTL of their own under it, at any depth.

There may be ten thousand of them, and a renewal of the one that they ride on is one item. So their owner says what it
believes to ride there as one number, and an acceptor that agrees says just that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.paxos.marks import mark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lessor.core.paxos.acceptor import Acceptor
    from lessor.core.paxos.slot import Slot


def stamp(resource: str, token: int) -> int:
    """Return the number that stands for one lease."""
    return mark(f"{token} {resource}")


def fingerprint(stamps: Iterable[int]) -> int:
    """Return the number that stands for all of them, in whatever order: only the same set has the same."""
    whole = 0
    for one in stamps:
        whole ^= one
    return whole


def riders(acceptor: Acceptor, slot: Slot) -> list[int]:
    """Return the stamps of all that rides on a live lease here, and so lasts as long as it does."""
    found: list[int] = []
    above = [slot]
    while above:
        parent = above.pop()
        if not parent.has_children:
            continue
        for child in acceptor.family(parent.resource, parent.token):
            if child.lease_id is not None and child.ttl_ns == 0 and not child.revoked:
                found.append(child.stamp())
                above.append(child)
    return found


def missing_or_more(acceptor: Acceptor, slot: Slot, believed: int) -> tuple[int, ...] | None:
    """Return what rides on a live lease here; None where that is what its owner believes."""
    found = riders(acceptor, slot)
    return None if fingerprint(found) == believed else tuple(sorted(found))
