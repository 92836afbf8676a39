"""One question of a proposer to all acceptors, and what they said."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from lessor.core.paxos.messages import Ack, HeldBy

if TYPE_CHECKING:
    from lessor.core.paxos.messages import Verdict


FOR_EVER_NS: Final = 1 << 62
"""Longer than any acceptor keeps anything."""


class Kind(Enum):
    """What an attempt is for."""

    __hash__ = object.__hash__  # each is one object: its name need not be hashed, again and again

    PREPARE = auto()
    ACCEPT = auto()
    EXTEND = auto()
    DROP = auto()


class Attempt:
    """One question to all acceptors, and what they said."""

    __slots__ = (
        "acks",
        "answers",
        "granted_ns",
        "inherits",
        "kept",
        "kind",
        "n",
        "number",
        "open",
        "sent_ns",
        "shortest_ns",
        "ttl_ns",
    )

    def __init__(self, kind: Kind, number: int, n: int, sent_ns: int, ttl_ns: int) -> None:
        self.kind = kind
        self.number = number
        self.n = n
        self.sent_ns = sent_ns
        """Before its first message left. All deadlines count from here, whenever the answers come."""
        self.ttl_ns = ttl_ns
        self.answers: dict[str, Verdict] = {}
        """By acceptor: a copy of a reply is no second vote."""
        self.acks = 0
        """How many of them took it in."""
        self.shortest_ns = FOR_EVER_NS
        """For how long each of these keeps others out."""
        self.inherits = False
        """Whether one of them has something that a holder left."""
        self.open = True
        """False once it is decided: what comes later changes nothing."""
        self.kept = False
        """A renewal that has succeeded: whoever lacks the lease may be handed it."""
        self.granted_ns = 0
        """For how long, then."""

    def acked(self, ack: Ack) -> None:
        """Count one that took it in."""
        self.acks += 1
        self.shortest_ns = min(self.shortest_ns, ack.ttl_ns)
        if ack.state:
            self.inherits = True

    def said(self, verdict: type[Verdict]) -> int:
        """Count the acceptors that said so."""
        return sum([type(answer) is verdict for answer in self.answers.values()])

    def refusing(self) -> tuple[str, ...]:
        """Return the acceptors whose queue is full."""
        return tuple([who for who, answer in self.answers.items() if isinstance(answer, HeldBy) and answer.refused])

    def handed_over(self, majority: int, silent: int) -> str | None:
        """Return what the last holder has left, where it has; None where only one of those who are silent yet may tell.

        A majority has to say that nobody had it since: one acceptor may have missed somebody's whole turn.
        """
        acks = [answer for answer in self.answers.values() if isinstance(answer, Ack)]
        newest = max([ack for ack in acks if ack.state], key=_after)
        agreeing = sum([ack.after <= newest.after for ack in acks])
        if agreeing >= majority:
            return newest.state
        return None if agreeing + silent >= majority else ""


def _after(ack: Ack) -> int:
    return ack.after
