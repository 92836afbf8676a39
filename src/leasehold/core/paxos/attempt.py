"""One question of a proposer to all acceptors, and what they said."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from leasehold.core.paxos.messages import Ack, HeldBy

if TYPE_CHECKING:
    from leasehold.core.paxos.messages import Verdict


class Kind(Enum):
    """What an attempt is for."""

    PREPARE = auto()
    ACCEPT = auto()
    EXTEND = auto()
    DROP = auto()


class Attempt:
    """One question to all acceptors, and what they said."""

    __slots__ = ("answers", "granted_ns", "kept", "kind", "n", "number", "open", "sent_ns", "ttl_ns")

    def __init__(self, kind: Kind, number: int, n: int, sent_ns: int, ttl_ns: int) -> None:
        self.kind = kind
        self.number = number
        self.n = n
        self.sent_ns = sent_ns
        """Before its first message left. All deadlines count from here, whenever the answers come."""
        self.ttl_ns = ttl_ns
        self.answers: dict[str, Verdict] = {}
        """By acceptor: a copy of a reply is no second vote."""
        self.open = True
        """False once it is decided: what comes later changes nothing."""
        self.kept = False
        """A renewal that has succeeded: whoever lacks the lease may be handed it."""
        self.granted_ns = 0
        """For how long, then."""

    def said(self, verdict: type[Verdict]) -> int:
        """Count the acceptors that said so."""
        return sum([type(answer) is verdict for answer in self.answers.values()])

    def shortest_ns(self) -> int:
        """Return for how long each acceptor of the majority keeps others out."""
        return min([answer.ttl_ns for answer in self.answers.values() if isinstance(answer, Ack)])

    def refusing(self) -> tuple[str, ...]:
        """Return the acceptors whose queue is full."""
        return tuple([who for who, answer in self.answers.items() if isinstance(answer, HeldBy) and answer.refused])

    def handed_over(self, majority: int, silent: int) -> str | None:
        """Return what the last holder has left; None where only one of those who are silent yet may tell.

        A majority has to say that nobody had it since: one acceptor may have missed somebody's whole turn.
        """
        acks = [answer for answer in self.answers.values() if isinstance(answer, Ack)]
        newest = max([ack for ack in acks if ack.state], key=_after, default=None)
        if newest is None:
            return ""
        agreeing = sum([ack.after <= newest.after for ack in acks])
        if agreeing >= majority:
            return newest.state
        return None if agreeing + silent >= majority else ""


def _after(ack: Ack) -> int:
    return ack.after
