"""What a proposer says to do: what to send, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from lessor.core.lease import Closed
    from lessor.core.ops import Loss
    from lessor.core.paxos.messages import Item


class Send(NamedTuple):
    """Send this; hand in what the acceptors answer as the answer to this attempt."""

    attempt: int
    """0: what they answer is of no interest."""
    item: Item
    to: str | None = None
    """Only to this acceptor."""
    but: tuple[str, ...] = ()
    """To all but these."""
    aside: bool = False
    """It is not the attempt itself: nobody waits for its answers."""


class Won(NamedTuple):
    """It is ours until the deadline, which counts from before the attempt was sent."""

    token: int
    ttl_ns: int
    deadline_ns: int
    state: str = ""
    """What the holder before has handed over."""


class Kept(NamedTuple):
    """It is ours until the deadline, renewed; and so is all that rides on it, unless ``ended`` has changed."""

    ttl_ns: int
    deadline_ns: int
    ended: int = 0
    """Grows when somebody ended something under it, or a majority may not have all that rides on it: ask for each."""


class Blocked(NamedTuple):
    """Somebody else has it, by the word of a majority. Wait to be called, or for that long."""

    by: str
    token: int
    remaining_ns: int
    position: int
    refused: bool = False
    """The queue is full, by the word of a majority: there is no place in it for us."""
    closed: Closed | None = None
    """Why nobody gets it although nobody holds it, where most of that majority say so."""


class BackOff(NamedTuple):
    """Nobody has it, and nobody could win: wait for a random time, then `again`."""


class NoAnswer(NamedTuple):
    """Too few acceptors answered: it may or may not have happened."""


class Ended(NamedTuple):
    """It is not ours, and this owner will not get it any more."""

    reason: Loss
    remaining_ns: int = 0


class Refusal(NamedTuple):
    """It can't be had on these terms."""

    why: str


class Freed(NamedTuple):
    """It is given back; ``free_in_ns`` is None where there was nothing to give back."""

    free_in_ns: int | None


Step: TypeAlias = Send | Won | Kept | Blocked | BackOff | NoAnswer | Ended | Refusal | Freed
