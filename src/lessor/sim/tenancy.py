"""One lease as a simulated client has it: the real proposer, the real holder's state machine, and its plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core import holder
from lessor.core.holder import Confirmed, State

if TYPE_CHECKING:
    from lessor.core.holder import Holder, HolderEvent
    from lessor.core.paxos.proposer import Proposer
    from lessor.core.timing import Timing


class Tenancy:
    """From the first request for a resource to its end."""

    __slots__ = (
        "belief",
        "failures",
        "give_up_ns",
        "parent",
        "proposer",
        "release_ns",
        "resource",
        "sent_ns",
        "timing",
        "waiting",
    )

    def __init__(self, proposer: Proposer, timing: Timing, give_up_ns: int, parent: Tenancy | None = None) -> None:
        self.proposer = proposer
        self.resource = proposer.op.resource
        self.timing = timing
        self.give_up_ns = give_up_ns
        """When to stop trying to get it."""
        self.parent = parent
        """What it stands under: a session, or another one that rides on it."""
        self.belief: Holder | None = None
        """None: not held yet."""
        self.failures = 0
        self.sent_ns: dict[int, int] = {}
        """By attempt: when it was sent, in true time."""
        self.waiting = 0
        """Which wait it is in, so that a call wakes it once; 0: it does not wait."""

    @property
    def owner(self) -> str:
        """Its lease id."""
        return self.proposer.op.lease_id

    @property
    def root(self) -> Tenancy:
        """Return what it rides on, or itself."""
        return self if self.parent is None else self.parent.root

    def won(self, deadline_ns: int, grace_ns: int) -> None:
        """Begin to believe."""
        self.belief = holder.granted(deadline_ns, grace_ns)

    def step(self, event: HolderEvent, now: int) -> None:
        """Take in what happened."""
        assert self.belief is not None
        self.belief, _ = holder.step(self.belief, event, now)

    def confirmed(self, deadline_ns: int, now: int) -> None:
        """Believe for longer, if not too late."""
        self.step(Confirmed(deadline_ns), now)

    def may_come_back(self, now: int) -> bool:
        """Whether it has run out, and may be renewed all the same."""
        belief = self.belief
        return belief is not None and belief.state is not State.LOST and belief.deadline_ns <= now < belief.over_ns

    def is_valid(self, now: int) -> bool:
        """Whether its owner would act on it now."""
        belief = self.belief
        return belief is not None and belief.state is not State.LOST and now < belief.deadline_ns
