"""Gets, renews and gives back one lease, by asking all acceptors and counting who said yes.

::

    acquire ─▶ ACCEPT to all ──▶ a majority, in time ──────────────────────────────▶ Won
                  ▲    │ too low: again at once, with a higher number
                  │    │ a majority names one holder ───────────────────────────────▶ Blocked
                  │    ▼ nobody can win: withdraw
                 PREPARE ◀── again() ◀── BackOff (a split vote: wait for a random time)

    renew ───▶ EXTEND to all ──▶ a majority that had it live, while it is held ─────▶ Kept
    release ─▶ DROP to all

It decides and counts; whoever drives it sends what it returns, and calls `on_verdict` with what comes back and
`on_timeout` when no more is waited for. One attempt runs at a time: what answers an older one is not heard.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from leasehold.core.ops import Loss, Release, Renew
from leasehold.core.paxos.ballots import majority
from leasehold.core.paxos.messages import (
    Accept,
    Ack,
    Drop,
    Dropped,
    Extend,
    Gone,
    HeldBy,
    Low,
    Prepare,
    Promised,
    Refused,
    Withdraw,
)
from leasehold.core.timing import safe_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.core.ops import Acquire
    from leasehold.core.paxos.ballots import Ballots
    from leasehold.core.paxos.messages import Item, Verdict

# --- what it says to do -------------------------------------------------------------------------------------------


class Send(NamedTuple):
    """Send this; hand in what the acceptors answer as the answer to this attempt."""

    attempt: int
    """0: what they answer is of no interest."""
    item: Item
    to: str | None = None
    """Only to this acceptor."""
    but: tuple[str, ...] = ()
    """To all but these."""


class Won(NamedTuple):
    """It is ours until the deadline, which counts from before the attempt was sent."""

    token: int
    ttl_ns: int
    deadline_ns: int
    state: str = ""
    """What the holder before has handed over."""


class Kept(NamedTuple):
    """It is ours until the deadline, renewed."""

    ttl_ns: int
    deadline_ns: int


class Blocked(NamedTuple):
    """Somebody else has it, by the word of a majority. Wait to be called, or for that long."""

    by: str
    token: int
    remaining_ns: int
    position: int
    refused: bool = False
    """The queue is full, by the word of a majority: there is no place in it for us."""


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


class Kind(Enum):
    """What an attempt is for."""

    PREPARE = auto()
    ACCEPT = auto()
    EXTEND = auto()
    DROP = auto()


class Attempt:
    """One question to all acceptors, and what they said."""

    __slots__ = ("answers", "kept", "kind", "n", "number", "open", "sent_ns", "ttl_ns")

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

    def said(self, verdict: type[Verdict]) -> int:
        """Count the acceptors that said so."""
        return sum([type(answer) is verdict for answer in self.answers.values()])


# --- the proposer -------------------------------------------------------------------------------------------------


class Proposer:
    """One lease id: from its first request to its end."""

    def __init__(self, op: Acquire, *, acceptors: int, drift: float, ballots: Ballots) -> None:
        self.op = op
        self.acceptors = acceptors
        self.majority = majority(acceptors)
        self.drift = drift
        self.ballots = ballots
        self.n = 0
        """The highest number that this owner has used."""
        self.token = 0
        """0: not held, or not any more."""
        self.confirmed_n = 0
        """The number under which a majority confirmed it last: only that one is handed to acceptors that lack it."""
        self.deadline_ns = 0
        self.state = ""
        """What the holder before has handed over."""
        self.ticket = 0
        """The place in the queue: the highest that a majority gave."""
        self.attempt: Attempt | None = None
        self._numbers = 0
        self._healing = 0

    # --- what drives it -------------------------------------------------------------------------------------------

    def acquire(self, now: int, wall_us: int) -> list[Step]:
        """Begin an attempt to get it. What is held already is renewed: to ask twice changes nothing."""
        if self.token:
            return self.renew(self.op.ttl_ns, now)
        self.ballots.saw(self.op.seen_token)
        self.n = self.ballots.fresh(wall_us)
        return [self._begin(Kind.ACCEPT, Accept(self.op, self.n, self.ticket), now, self.op.ttl_ns)]

    def again(self, now: int, wall_us: int) -> list[Step]:
        """Begin an attempt after a split vote: everybody else is asked to hold back first."""
        self.n = self.ballots.fresh(wall_us)
        return [self._begin(Kind.PREPARE, Prepare(self.op.resource, self.op.lease_id, self.n), now)]

    def renew(self, ttl_ns: int, now: int, *, children: bool = False) -> list[Step]:
        """Begin to renew it: under the same number, which rises only where an acceptor demands it."""
        self.ballots.saw(self.token)
        op = Renew(self.op.resource, self.op.lease_id, self.token, ttl_ns)
        return [self._begin(Kind.EXTEND, Extend(op, self.n, children), now, ttl_ns)]

    def release(self, op: Release, now: int) -> list[Step]:
        """Give it back, or up. Whoever calls this has stopped acting on it."""
        self.token = 0
        return [self._begin(Kind.DROP, Drop(op, self.n), now)]

    def resume(self, token: int, deadline_ns: int) -> None:
        """Take over a lease whose id, token and deadline are known from elsewhere."""
        self.token = self.n = self.confirmed_n = token
        self.deadline_ns = deadline_ns

    def on_verdict(self, who: str, number: int, verdict: Verdict, now: int, wall_us: int) -> list[Step]:
        """Take in what an acceptor answered to the attempt of that number."""
        if isinstance(verdict, _TELL_THE_FLOOR):
            self.ballots.heard(who, verdict.floor)
        if number == self._healing and isinstance(verdict, Low):
            if self.ballots.heeds(verdict.floor, wall_us):
                self.n = self.ballots.next(wall_us)  # for the next renewal; what that finds missing is mended again
            return []
        attempt = self.attempt
        if attempt is None or number != attempt.number or who in attempt.answers:
            return []
        attempt.answers[who] = verdict
        if attempt.open:
            return _DECIDING[attempt.kind](self, attempt, now, wall_us)
        return self._mend(attempt, who) if attempt.kept else []

    def on_timeout(self, number: int) -> list[Step]:
        """No more answers are waited for."""
        attempt = self.attempt
        if attempt is None or number != attempt.number or not attempt.open:
            return []
        enough = len(attempt.answers) >= self.majority
        if attempt.kind in {Kind.ACCEPT, Kind.PREPARE}:
            blocked = self.believed(attempt)
            if blocked is not None:
                return self._wait(attempt, blocked)
            return self._give_up(attempt, BackOff() if enough else NoAnswer())
        # A renewal that is answered late still counts if that is in time; a release is never undone.
        return [NoAnswer()]

    def _begin(self, kind: Kind, item: Item, now: int, ttl_ns: int = 0) -> Send:
        self._numbers += 1
        self.attempt = Attempt(kind, self._numbers, self.n, now, ttl_ns)
        return Send(self._numbers, item)

    # --- acquiring ------------------------------------------------------------------------------------------------

    def _on_accept(self, attempt: Attempt, now: int, wall_us: int) -> list[Step]:
        acks = attempt.said(Ack)
        if acks >= self.majority:
            return self._on_majority(attempt, now)
        if acks == len(attempt.answers):
            return []
        lows = self.lows(attempt, wall_us)
        last = attempt.answers[next(reversed(attempt.answers))]
        refusal = self.refused(attempt)
        if refusal is not None:
            return self._give_up(attempt, refusal)
        if isinstance(last, Gone) and last.reason is not Loss.EXPIRED:
            return self._give_up(attempt, Ended(last.reason, last.remaining_ns))
        blocked = self.believed(attempt)
        if blocked is not None:
            return [] if self._may_be_refused(attempt) else self._wait(attempt, blocked)
        if lows and acks + lows >= self.majority:
            return self.acquire(now, wall_us)  # where it was taken in, the next one extends: nothing to withdraw
        if attempt.said(Gone) > self.acceptors - self.majority:
            return self._give_up(attempt, Ended(Loss.EXPIRED))
        if acks + self.acceptors - len(attempt.answers) < self.majority:
            return self._give_up(attempt, BackOff())
        return []

    def lows(self, attempt: Attempt, wall_us: int) -> int:
        """Count the acceptors that would take a higher number. One that is days ahead of the others votes against."""
        answers = attempt.answers.values()
        return sum([isinstance(answer, Low) and self.ballots.heeds(answer.floor, wall_us) for answer in answers])

    def refused(self, attempt: Attempt) -> Refusal | None:
        """Say why it can't be had, where so many refuse it that the others are no majority: one may have a wrong clock."""
        whys = [answer.why for answer in attempt.answers.values() if isinstance(answer, Refused)]
        return Refusal(whys[-1]) if len(whys) > self.acceptors - self.majority else None

    def _on_majority(self, attempt: Attempt, now: int) -> list[Step]:
        ttl_ns = _granted(attempt)
        deadline = self.deadline(attempt, ttl_ns)
        if not self.in_time(deadline, now):
            return self._give_up(attempt, NoAnswer())
        attempt.open = False
        self.token = self.confirmed_n = self.n
        self.deadline_ns = deadline
        self.state = _handed_over(attempt)
        return [Won(self.token, ttl_ns, deadline, self.state)]

    def deadline(self, attempt: Attempt, ttl_ns: int) -> int:
        """Return until when it is ours: counted from before the first message left, and short of the clocks' drift."""
        return attempt.sent_ns + safe_span(ttl_ns, self.drift)

    def in_time(self, deadline_ns: int, now: int) -> bool:
        """Whether a majority counts that is complete now: not if it is late, or if this process was stopped."""
        return now < deadline_ns

    def believed(self, attempt: Attempt) -> Blocked | None:
        """Return who has it, if a majority names the same one: the loser of a split vote is no holder."""
        named: dict[tuple[str, int], list[HeldBy]] = {}
        for answer in attempt.answers.values():
            if isinstance(answer, HeldBy):
                named.setdefault((answer.by, answer.token if answer.by else 0), []).append(answer)
        for same in named.values():
            if len(same) >= self.majority:
                self.ticket = self.ticket or max(held.ticket for held in same)
                left = max(held.remaining_ns for held in same)
                refused = sum([held.refused for held in same]) >= self.majority
                return Blocked(same[0].by, same[0].token, left, max(held.position for held in same), refused)
        return None

    def _may_be_refused(self, attempt: Attempt) -> bool:
        """Whether those who haven't answered yet decide if the queue is full: only a majority's word counts."""
        refused, silent = _refusing(attempt), self.acceptors - len(attempt.answers)
        return 0 < len(refused) < self.majority <= len(refused) + silent

    def _wait(self, attempt: Attempt, blocked: Blocked) -> list[Step]:
        """Leave it to its holder; and the queue, where that is full and a minority has taken us in all the same."""
        if not blocked.refused:
            return self._give_up(attempt, blocked)
        attempt.open = False
        self.attempt = None
        refusing = _refusing(attempt)
        if len(refusing) == self.acceptors:
            return [blocked]
        return [Send(0, Drop(Release(self.op.resource, self.op.lease_id), self.n), but=refusing), blocked]

    def _on_prepare(self, attempt: Attempt, now: int, wall_us: int) -> list[Step]:  # noqa: ARG002
        blocked = self.believed(attempt)
        if blocked is not None:
            return self._give_up(attempt, blocked)
        refusal = self.refused(attempt)
        if refusal is not None:
            return self._give_up(attempt, refusal)
        promised = attempt.said(Promised)
        if promised >= self.majority:
            return [self._begin(Kind.ACCEPT, Accept(self.op, self.n, self.ticket), now, self.op.ttl_ns)]
        if promised + self.acceptors - len(attempt.answers) < self.majority:
            return self._give_up(attempt, BackOff())
        return []

    def _give_up(self, attempt: Attempt, step: Step) -> list[Step]:
        """Mark the attempt dead and then, not before, take back what it may have left behind."""
        attempt.open = False
        self.attempt = None
        clean = tuple([who for who, answer in attempt.answers.items() if not isinstance(answer, Ack | Promised)])
        if len(clean) == self.acceptors:
            return [step]
        return [Send(0, Withdraw(self.op.resource, self.op.lease_id, self.n), but=clean), step]

    # --- renewing -------------------------------------------------------------------------------------------------

    def _on_extend(self, attempt: Attempt, now: int, wall_us: int) -> list[Step]:
        if self.extended(attempt) >= self.majority:
            return self._on_extended(attempt, now)
        acks, lows = attempt.said(Ack), self.lows(attempt, wall_us)
        if lows and acks + lows >= self.majority:
            self.n = self.ballots.next(wall_us)
            return self.renew(attempt.ttl_ns, now)
        if len(attempt.answers) - acks - lows > self.acceptors - self.majority:
            return self._on_loss(attempt)
        return []

    def extended(self, attempt: Attempt) -> int:
        """Count the acceptors that had it live: a holder whose clock stood still finds too few of them."""
        return sum([isinstance(answer, Ack) and answer.extended for answer in attempt.answers.values()])

    def _on_extended(self, attempt: Attempt, now: int) -> list[Step]:
        attempt.open = False
        ttl_ns = _granted(attempt)
        deadline = self.deadline(attempt, ttl_ns)
        # Within a grace, those who extended it have said that nobody had it, or wanted it, in between.
        if not self.in_time(deadline if self.op.grace_ns else self.deadline_ns, now):
            return [Ended(Loss.EXPIRED)]
        self.deadline_ns = max(self.deadline_ns, deadline)
        self.confirmed_n = attempt.n
        attempt.kept = True
        self._numbers += 1
        self._healing = self._numbers
        mending = [step for who in attempt.answers for step in self._mend(attempt, who)]
        return [Kept(ttl_ns, self.deadline_ns), *mending]

    def _mend(self, attempt: Attempt, who: str) -> list[Step]:
        answer = attempt.answers[who]
        lacking = isinstance(answer, Gone) and answer.reason in {Loss.EXPIRED, Loss.TAKEN}
        return [self.mend(who, attempt.ttl_ns)] if lacking and self.token and attempt.kind is Kind.EXTEND else []

    def mend(self, who: str, ttl_ns: int) -> Send:
        """Hand the lease to an acceptor that lacks it, under the number that a majority has confirmed.

        Under no other: an acceptor that another holder passed through, while this one's clock stood still, demands a
        higher number than any that a majority confirmed to this one.
        """
        op = self.op._replace(queue=False, ttl_ns=ttl_ns)
        return Send(self._healing, Accept(op, self.confirmed_n, token=self.token), to=who)

    def _on_loss(self, attempt: Attempt) -> list[Step]:
        """Say why it can't be renewed any more. Nothing is withdrawn: what is left of it protects the holder still."""
        attempt.open = False
        refusal = self.refused(attempt)
        if refusal is not None:
            return [refusal]
        gone = [answer for answer in attempt.answers.values() if isinstance(answer, Gone)]
        for reason in (Loss.REVOKED, Loss.RELEASED, Loss.TAKEN):
            left = [answer.remaining_ns for answer in gone if answer.reason is reason]
            if left:
                return [Ended(reason, min(left))]
        return [Ended(Loss.EXPIRED)]

    # --- releasing ------------------------------------------------------------------------------------------------

    def _on_drop(self, attempt: Attempt, now: int, wall_us: int) -> list[Step]:  # noqa: ARG002
        refusal = self.refused(attempt)
        if refusal is None and len(attempt.answers) - attempt.said(Refused) < self.majority:
            return []
        attempt.open = False
        if refusal is not None:
            return [refusal]
        free_in = [answer.free_in_ns for answer in attempt.answers.values() if isinstance(answer, Dropped)]
        return [Freed(max(free_in, default=None))]


def _refusing(attempt: Attempt) -> tuple[str, ...]:
    """Return the acceptors whose queue is full."""
    return tuple([who for who, answer in attempt.answers.items() if isinstance(answer, HeldBy) and answer.refused])


def _handed_over(attempt: Attempt) -> str:
    """Return what the last holder has left: what those say who know of the newest one."""
    acks = [answer for answer in attempt.answers.values() if isinstance(answer, Ack)]
    newest = max([ack.after for ack in acks])
    return max([ack.state for ack in acks if ack.after == newest])


def _granted(attempt: Attempt) -> int:
    """Return for how long each acceptor of the majority keeps others out."""
    return min([answer.ttl_ns for answer in attempt.answers.values() if isinstance(answer, Ack)])


_TELL_THE_FLOOR = (Low, HeldBy, Gone)
_DECIDING: dict[Kind, Callable[[Proposer, Attempt, int, int], list[Step]]] = {
    Kind.ACCEPT: Proposer._on_accept,  # noqa: SLF001 - here and below: its own module's
    Kind.PREPARE: Proposer._on_prepare,  # noqa: SLF001
    Kind.EXTEND: Proposer._on_extend,  # noqa: SLF001
    Kind.DROP: Proposer._on_drop,  # noqa: SLF001
}
