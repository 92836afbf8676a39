"""The acceptor of a process, which has only so much memory, and which keeps to itself what nobody wants to hear.

Whoever asks for one lease after the other, and gives none back, must not fill the node until it is killed, and the other
nodes with it. So beyond a bound nobody new is taken in; what is held is renewed and given back as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.core.paxos.acceptor import Acceptor
from lessor.core.paxos.messages import Refused

if TYPE_CHECKING:
    from lessor.core.paxos.acceptor import Config, Durable
    from lessor.core.paxos.messages import Accept, Drop, Prepare, Push, Verdict, Withdraw
    from lessor.core.paxos.slot import Slot

SHARE: Final = 512
"""Characters of metadata and the like that a lease may have. One with more counts for as many leases as have as much."""
WAITER: Final = 512
"""For how many characters somebody counts who waits, and a quarter of that who was given up, until that is looked at again."""


class NodeAcceptor(Acceptor):
    """An acceptor with a bound on what it keeps, and no events while nobody watches."""

    watched = False
    most = 2_000_000
    """Leases that are kept: those that are held, and those that were lately."""
    _more = 0
    """For how many leases those count that have more than their share, besides themselves."""

    def __init__(self, config: Config, durable: Durable, incarnation: int, *, silent_until_ns: int = 0) -> None:
        super().__init__(config, durable, incarnation, silent_until_ns=silent_until_ns)
        self._heavy: dict[str, int] = {}
        """Those that have more than their share, and for how many others they count."""

    @property
    def used(self) -> int:
        """Return for how many leases that counts which is kept."""
        return len(self.slots) + self._more

    @property
    def is_full(self) -> bool:
        """Whether nobody new is taken in."""
        return len(self.slots) + self._more >= self.most

    def accept(self, item: Accept, now: int) -> Verdict:
        """Take a lease in, if there is room."""
        op = item.op
        if self.is_full and self._is_new(item):
            return self._no_room()
        verdict = super().accept(item, now)
        slot = self.slots.get(op.resource)
        if slot is not None and (slot.waiting is not None or self._heavy or len(op.metadata) + len(op.holder) > SHARE):
            self._weigh(slot)
        return verdict

    def prepare(self, item: Prepare, now: int) -> Verdict:
        """Promise to take nobody with a lower number, if there is room for the promise."""
        if item.resource not in self.slots and self.is_full:
            return self._no_room()
        return super().prepare(item, now)

    def drop(self, item: Drop, now: int) -> Verdict:
        """End a lease. There is always room for that."""
        slot = self.slots.get(item.op.resource)
        if slot is None and item.op.abandon and self.is_full:
            item = item._replace(op=item.op._replace(abandon=False))  # nobody is taken in whose number isn't higher
        verdict = super().drop(item, now)
        if slot is not None and (item.op.state or slot.resource in self._heavy):
            self._weigh(slot)
        return verdict

    def withdraw(self, item: Withdraw, now: int) -> Verdict:
        """Undo an attempt that came to nothing."""
        verdict = super().withdraw(item, now)
        if item.resource in self._heavy:
            self._weigh(self.slots[item.resource])
        return verdict

    def close(self, slot: Slot, n: int, lease_id: str) -> None:
        """See to it that nothing this owner has sent so far is taken in any more."""
        if slot.resource in self.slots or not self.is_full:
            super().close(slot, n, lease_id)
        elif n > self.floor:
            self.floor = n  # as if it had been kept, and forgotten
            self.reserve(n)

    def adopt(self, slot: Slot) -> None:
        """Keep a slot that comes from before a shutdown."""
        super().adopt(slot)
        self._weigh(slot)

    def forget(self, slot: Slot) -> None:
        """Forget a slot."""
        super().forget(slot)
        self._more -= self._heavy.pop(slot.resource, 0)

    def _is_new(self, item: Accept) -> bool:
        """Whether more would have to be kept than there is."""
        op = item.op
        slot = self.slots.get(op.resource)
        if slot is None:
            return not item.token  # what the other nodes have is as much as they have room for
        if slot.lease_id == op.lease_id or (slot.waiting is not None and slot.waiting.find(op.lease_id) is not None):
            return False
        return op.queue or len(op.metadata) > SHARE

    def _no_room(self) -> Refused:
        return Refused(
            f"this node keeps {self.most} leases, or fewer with much metadata, and has no room: --max-leases"
        )

    def _weigh(self, slot: Slot) -> None:
        size = len(slot.metadata) + len(slot.holder) + len(slot.state)
        waiting = slot.waiting
        if waiting is not None:
            size += WAITER * len(waiting.queue) + WAITER // 4 * len(waiting.tombstones)
            if waiting.reservation is not None:
                size += len(waiting.reservation.state)
        more = size // SHARE
        before = self._heavy.get(slot.resource, 0)
        if more != before:
            self._more += more - before
            if more:
                self._heavy[slot.resource] = more
            else:
                del self._heavy[slot.resource]

    def _push(self) -> Push | None:
        if self.events and not self.watched:
            self.events = []
        return super()._push()
