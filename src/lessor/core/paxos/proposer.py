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

from typing import TYPE_CHECKING

from lessor.core.ops import Loss, Renew
from lessor.core.paxos.attempt import Attempt, Kind
from lessor.core.paxos.ballots import DAY_US, majority
from lessor.core.paxos.merging import longest
from lessor.core.paxos.messages import (
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
from lessor.core.paxos.riders import stamp
from lessor.core.paxos.rise import Rise
from lessor.core.paxos.session import Session
from lessor.core.paxos.steps import BackOff, Blocked, Ended, Freed, Kept, NoAnswer, Refusal, Send, Won
from lessor.core.timing import safe_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.ops import Acquire, Release
    from lessor.core.paxos.ballots import Ballots
    from lessor.core.paxos.messages import Item, Verdict
    from lessor.core.paxos.steps import Step


class Proposer:
    """One lease id: from its first request to its end."""

    make_session: type[Session] = Session
    carries = False
    """Whether anything rides on it, or on what it rides on, by way of it."""
    ended = 0
    """How many leases under it somebody has ended, by the most that an acceptor told."""
    since_us = 0
    """Since when it waits, for people."""
    _told_ended = _doubts = 0
    _stamp = _stamped = 0
    _resumed = False
    """Its deadline is what somebody else believes."""
    _reach = 0
    """A number above a floor that isn't heeded, for the next attempt alone: see `_stretch`."""
    _reaching = False
    """This attempt has such a number: whoever refuses it may take another one."""
    _healing_ns = 0
    rise: Rise | None = None
    """A higher number, until a majority has confirmed it: an acceptor that lacks the lease demands it."""
    _since_ns = 0
    """Since when it is known to be held."""

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
        self.session: Session | None = None
        """What rides on it, if anything does."""
        self.rides: Session | None = None
        """What it rides on: then it has no deadline of its own."""
        self.attempt: Attempt | None = None
        self._numbers = self._healing = 0
        self._mending: set[str] = set()
        """Who was handed it, and hasn't answered."""
        self._raised_for: set[str] = set()
        """Who has demanded a higher number since the last renewal."""

    # --- what drives it -------------------------------------------------------------------------------------------

    def acquire(self, now: int, wall_us: int, above: int = 0) -> list[Step]:
        """Begin an attempt to get it, ``above`` that number. What is held already is renewed: to ask twice changes nothing."""
        if self.token:
            return self.renew(self.op.ttl_ns, now)
        ballots = self.ballots
        if self.op.seen_token > ballots.used:
            ballots.saw(self.op.seen_token)
        self.n = ballots.fresh(wall_us, above)
        self._reaching = False
        return [self._ask(now, wall_us)]

    def _ask(self, now: int, wall_us: int) -> Send:
        op = self.op
        if op.queue and not self.since_us:
            self.since_us = wall_us
        return self._begin(Kind.ACCEPT, Accept(op, self.n, self.ticket, 0, self.since_us), now, op.ttl_ns)

    def again(self, now: int, wall_us: int) -> list[Step]:
        """Begin an attempt after a split vote: everybody else is asked to hold back first."""
        self.n = max(self.ballots.fresh(wall_us), self._reach)
        self._reaching = self.n > self.ballots.used
        return [self._begin(Kind.PREPARE, Prepare(self.op.resource, self.op.lease_id, self.n), now)]

    def renew(self, ttl_ns: int, now: int) -> list[Step]:
        """Begin to renew it: under the same number, which rises only where an acceptor demands it."""
        self.ballots.saw(self.token)
        op = Renew(self.op.resource, self.op.lease_id, self.token, ttl_ns)
        riders = None
        if self.session is not None:
            self.session.begin(now)
            riders = self.session.fingerprint
        return [self._begin(Kind.EXTEND, Extend(op, self.n, riders), now, ttl_ns)]

    def release(self, op: Release, now: int) -> list[Step]:
        """Give it back, or up. Whoever calls this has stopped acting on it."""
        self._get_off(now)
        self.token = 0
        return [self._begin(Kind.DROP, Drop(op, self.n), now)]

    def resume(self, token: int, deadline_ns: int) -> None:
        """Take over a lease whose id, token and deadline are known from elsewhere."""
        self.token = self.n = self.confirmed_n = token
        self.deadline_ns = deadline_ns
        self._resumed = True

    def on_verdict(
        self, who: str, number: int, verdict: Verdict, now: int, wall_us: int, *, incarnation: int = 0
    ) -> list[Step]:
        """Take in what an acceptor answered to the attempt of that number."""
        if isinstance(verdict, _TELL_THE_FLOOR):
            self.ballots.heard(who, verdict.floor)
        attempt = self.attempt
        if (
            number == self._healing
            or (self.rise is not None and number == self.rise.number)
            or (self.session is not None and self.session.asked_for(number))
        ):
            steps: list[Step] = [*self._on_handed(who, number, verdict, now, wall_us, incarnation=incarnation)]
            if attempt is not None and attempt.open and attempt.kept:
                steps += self._carried(attempt, last=False)
            return steps
        if attempt is None or number != attempt.number or who in attempt.answers:
            return []
        attempt.answers[who] = verdict
        steps = []
        if isinstance(verdict, Ack):
            attempt.acked(verdict)
            if self.session is not None or self.rides is not None:  # it matters who took it in, not only how many did
                steps += self._note(attempt, who, verdict, incarnation, now)
        elif isinstance(verdict, Gone) and self.session is not None and verdict.reason is not Loss.REVOKED:
            self.session.lost(who)
        if attempt.kept:
            steps += self._mend(attempt, who, now, wall_us)
        if attempt.open:
            steps += _DECIDING[attempt.kind](self, attempt, now, wall_us)
        return steps

    def on_timeout(self, number: int, now: int, *, last: bool = True) -> list[Step]:
        """No more answers to it are waited for; unless it is the ``last`` word, those about its riders still are."""
        attempt = self.attempt
        if attempt is None or number != attempt.number or not attempt.open:
            return []
        if attempt.kept:
            return self._carried(attempt, last=last)
        enough = len(attempt.answers) >= self.majority
        if attempt.kind is Kind.ACCEPT and attempt.acks >= self.majority and self.handed_over(attempt) is None:
            return self._on_majority(attempt, now, last=True)
        if attempt.kind in {Kind.ACCEPT, Kind.PREPARE}:
            blocked = self.believed(attempt)
            if blocked is not None:
                return self._wait(attempt, blocked)
            return self._give_up(attempt, BackOff() if enough else NoAnswer())
        if attempt.kind is Kind.EXTEND and self.rides is not None and enough:
            return self._fall_off(attempt, self.rides)
        # A renewal that is answered late still counts if that is in time; a release is never undone.
        return [NoAnswer()]

    def next_number(self) -> int:
        """Return a number that ties answers to what they answer."""
        self._numbers += 1
        return self._numbers

    def _begin(self, kind: Kind, item: Item, now: int, ttl_ns: int = 0) -> Send:
        self._numbers = number = self._numbers + 1
        self.attempt = Attempt(kind, number, self.n, now, ttl_ns)
        self._reach = 0
        return Send(number, item)

    # --- riding on another one ------------------------------------------------------------------------------------

    def ride(self, parent: Proposer) -> None:
        """Last as long as the parent does: its renewals are ours."""
        parent.carries = True
        if parent.rides is None and parent.session is None:
            parent.session = parent.make_session(parent)
        self.rides = parent.rides or parent.session

    def stamp(self) -> int:
        """Return the number that stands for this lease, as far as it has got."""
        number = self.token or self.n
        if self._stamped != number:
            self._stamp, self._stamped = stamp(self.op.resource, number), number
        return self._stamp

    def _get_off(self, from_ns: int | None = None) -> None:
        """Ride no longer. It is over from then on; None: its owner may act on it for as long as on what it rides on."""
        if self.rides is not None:
            self.rides.leave(self, self.rides.root.deadline_ns if from_ns is None else from_ns)

    def _note(self, attempt: Attempt, who: str, ack: Ack, incarnation: int, now: int) -> list[Send]:
        """Note who keeps what; return what is to be sent to an acceptor that lacks something."""
        until = self.deadline(attempt, ack.ttl_ns)
        if self.rides is not None:
            self.rides.acked(self.stamp(), who, incarnation, until, now)
            return []
        assert self.session is not None
        lacking = self.session.renewed(who, incarnation, ack.riders, until, now)
        return self.session.shed(who, ack.riders, now) + self.session.hand_out(lacking, who, now)

    def _on_handed(
        self, who: str, number: int, verdict: Verdict, now: int, wall_us: int, *, incarnation: int
    ) -> list[Send]:
        """Hear from an acceptor that was handed what it lacked: this lease, upon which its riders follow, or a rider."""
        session, rise = self.session, self.rise
        if rise is not None and number == rise.number:
            return self._on_rise(rise, who, verdict, now)
        if number != self._healing:
            assert session is not None
            return session.on_verdict(who, number, verdict, now, wall_us, incarnation=incarnation)
        if who not in self._mending:
            return []  # the same answer again
        self._mending.discard(who)
        if isinstance(verdict, Low) and self.token and self.ballots.heeds(verdict.floor, wall_us):
            return self._raise(who, verdict.floor, now, wall_us)
        if session is None or not isinstance(verdict, Ack):
            return []
        until = self.until(self._healing_ns, verdict.ttl_ns)
        return session.hand_out(session.renewed(who, incarnation, (), until, now), who, now)

    def _raise(self, who: str, floor: int, now: int, wall_us: int) -> list[Send]:
        """Let a majority confirm a number above that floor; then, not before, ``who`` is handed it.

        Once in a renewal: where others drive its floor up all the time, it would never end.
        """
        if who in self._raised_for:
            return []
        self._raised_for.add(who)
        if self.rise is not None:
            self.rise.wants(who)
            return []
        self.rise = Rise(self, self.next_number(), who, floor, now=now, wall_us=wall_us)
        return [self.rise.ask()]

    def _on_rise(self, rise: Rise, who: str, verdict: Verdict, now: int) -> list[Send]:
        """Hand it to those who demanded a higher number, once a majority has confirmed that."""
        if not (self.token and self.attempt is not None and rise.confirmed(who, verdict)):
            return []
        self.rise = None
        self._mending.update(rise.wanted_by)
        return [self.mend(lacking, self.attempt.ttl_ns, now) for lacking in rise.wanted_by]

    def _is_carried(self) -> bool:
        """Whether a majority keeps it for as long as what it rides on is believed to be held."""
        assert self.rides is not None
        return self.rides.deadline(self.stamp()) >= self.rides.root.deadline_ns

    def _fall_off(self, attempt: Attempt, session: Session) -> list[Step]:
        """Deal with having been asked for in vain: no majority has it, nor says that it is over.

        It is tried again while there is time. Then it is given up, so that it ends alone, and not all that rides with it.
        """
        left = session.deadline(self.stamp()) - attempt.sent_ns
        if 2 * left > session.root.op.ttl_ns:
            return [NoAnswer()]
        attempt.open = False
        self._get_off(max(session.root.deadline_ns, session.deadline(self.stamp())))
        return [Ended(Loss.EXPIRED, max(0, left))]

    def _carried(self, attempt: Attempt, *, last: bool) -> list[Step]:
        """Say that it is kept once that is so for all that rides on it; in the end, that it may not be for some."""
        session = self.session
        more = not last and len(attempt.answers) < self.acceptors
        if not last and (self._mending or self.rise is not None or (session is not None and session.is_busy)):
            return []  # whoever lacks something is to have it now: nobody may listen again before the next renewal
        if self.rides is not None and not self._is_carried():
            attempt.open = more
            return [] if more else [NoAnswer()]
        for answer in attempt.answers.values():
            if isinstance(answer, Ack) and answer.ended > self.ended:
                self.ended = answer.ended
        if session is not None and session.riders and session.lacks(self.deadline_ns):
            if more:
                return []
            if self.ended == self._told_ended:
                self._doubts += 1
        elif session is not None:
            session.certain_ns = self.deadline_ns
        attempt.open = False
        self._told_ended = self.ended
        return [Kept(attempt.granted_ns, self.deadline_ns, self.ended + self._doubts)]

    # --- acquiring ------------------------------------------------------------------------------------------------

    def _on_accept(self, attempt: Attempt, now: int, wall_us: int) -> list[Step]:
        acks = attempt.acks
        if acks >= self.majority:
            return self._on_majority(attempt, now)
        if acks == len(attempt.answers):
            return []
        self._stretch(attempt, acks, wall_us)
        demanded = self.demanded(attempt, wall_us)
        last = attempt.answers[next(reversed(attempt.answers))]
        refusal = self.refused(attempt)
        if refusal is not None and not self._reaching:
            return self._give_up(attempt, refusal)
        if isinstance(last, Gone) and last.reason is not Loss.EXPIRED:
            return self._give_up(attempt, Ended(last.reason, last.remaining_ns))
        blocked = self.believed(attempt)
        if blocked is not None:
            return [] if self._may_be_refused(attempt) else self._wait(attempt, blocked)
        if demanded and acks + len(demanded) >= self.majority:
            self._get_off(now)
            return self.acquire(
                now, wall_us, max(demanded)
            )  # where it was taken in, the next one extends: nothing to withdraw
        if attempt.said(Gone) > self.acceptors - self.majority:
            return self._give_up(attempt, Ended(Loss.EXPIRED))
        if acks + self.acceptors - len(attempt.answers) < self.majority:
            return self._give_up(attempt, BackOff())
        return []

    def demanded(self, attempt: Attempt, wall_us: int) -> list[int]:
        """Return the floors of those who would take a higher number. One that is days ahead of the others votes against."""
        floors = [answer.floor for answer in attempt.answers.values() if isinstance(answer, Low)]
        return [floor for floor in floors if self.ballots.heeds(floor, wall_us)]

    def _stretch(self, attempt: Attempt, willing: int, wall_us: int) -> None:
        """Let the next attempt, should this one fail, go above floors that aren't heeded, if only that makes a majority.

        Within a day, that is: those who are willing now would refuse a higher one.
        """
        floors = sorted([answer.floor for answer in attempt.answers.values() if isinstance(answer, Low)])
        lacking = self.majority - willing
        if 0 < lacking <= len(floors) and floors[lacking - 1] < wall_us + DAY_US:
            self._reach = floors[lacking - 1] + 1

    def refused(self, attempt: Attempt) -> Refusal | None:
        """Say why it can't be had, where so many refuse it that the others are no majority: one may have a wrong clock."""
        whys = [answer.why for answer in attempt.answers.values() if isinstance(answer, Refused)]
        return Refusal(whys[-1]) if len(whys) > self.acceptors - self.majority else None

    def _on_majority(self, attempt: Attempt, now: int, *, last: bool = False) -> list[Step]:
        ttl_ns = attempt.shortest_ns
        deadline = self.deadline(attempt, ttl_ns)
        if self.rides is not None:
            if not self._is_carried():
                return [] if len(attempt.answers) < self.acceptors else self._give_up(attempt, BackOff())
            deadline = self.rides.root.deadline_ns
        if not self.in_time(deadline, now):
            return self._give_up(attempt, NoAnswer())
        state = self.handed_over(attempt)
        if state is None and not last:
            return []
        attempt.open = False
        self.token = self.confirmed_n = self.n
        self.deadline_ns = deadline
        self._since_ns = now
        if self.rides is not None:
            self.rides.join(self)
        self.state = state or ""
        return [Won(self.token, ttl_ns, deadline, self.state)]

    def handed_over(self, attempt: Attempt) -> str | None:
        """Return what the last holder has left; None where that isn't certain yet."""
        if not attempt.inherits:
            return ""
        return attempt.handed_over(self.majority, self.acceptors - len(attempt.answers))

    def deadline(self, attempt: Attempt, ttl_ns: int) -> int:
        """Return until when it is ours: counted from before the first message left, and short of the clocks' drift."""
        return attempt.sent_ns + safe_span(ttl_ns, self.drift)

    def until(self, sent_ns: int, ttl_ns: int) -> int:
        """Return how long something lasts for sure that was promised for so long after it was asked for then."""
        return sent_ns + safe_span(ttl_ns, self.drift)

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
                last = longest(same)
                left = max(held.remaining_ns for held in same)
                refused = sum([held.refused for held in same]) >= self.majority
                position = max(held.position for held in same)
                return Blocked(last.by, last.token, left, position, refused, last.closed)
        return None

    def _may_be_refused(self, attempt: Attempt) -> bool:
        """Whether those who haven't answered yet decide if the queue is full: only a majority's word counts."""
        refused, silent = attempt.refusing(), self.acceptors - len(attempt.answers)
        return 0 < len(refused) < self.majority <= len(refused) + silent

    def _wait(self, attempt: Attempt, blocked: Blocked) -> list[Step]:
        """Leave it to its holder; and the queue, where that is full and a minority has taken us in all the same."""
        if not blocked.refused:
            return self._give_up(attempt, blocked)
        attempt.open = False
        self.attempt = None
        refusing = attempt.refusing()
        if len(refusing) == self.acceptors:
            return [blocked]
        return [Send(0, Withdraw(self.op.resource, self.op.lease_id, self.n, leave=True), but=refusing), blocked]

    def _on_prepare(self, attempt: Attempt, now: int, wall_us: int) -> list[Step]:
        blocked = self.believed(attempt)
        if blocked is not None:
            return self._give_up(attempt, blocked)
        refusal = self.refused(attempt)
        if refusal is not None and not self._reaching:
            return self._give_up(attempt, refusal)
        promised = attempt.said(Promised)
        self._stretch(attempt, promised, wall_us)
        if promised >= self.majority:
            return [self._ask(now, wall_us)]
        if promised + self.acceptors - len(attempt.answers) < self.majority:
            return self._give_up(attempt, BackOff())
        return []

    def _give_up(self, attempt: Attempt, step: Step) -> list[Step]:
        """Mark the attempt dead and then, not before, take back what it may have left behind."""
        attempt.open = False
        self.attempt = None
        self._get_off(attempt.sent_ns)
        clean = tuple([who for who, answer in attempt.answers.items() if not isinstance(answer, Ack | Promised)])
        if len(clean) == self.acceptors:
            return [step]
        return [Send(0, Withdraw(self.op.resource, self.op.lease_id, self.n), but=clean), step]

    # --- renewing -------------------------------------------------------------------------------------------------

    def _on_extend(self, attempt: Attempt, now: int, wall_us: int) -> list[Step]:
        if attempt.kept:
            return self._carried(attempt, last=False)
        if self.extended(attempt) >= self.majority:
            return self._on_extended(attempt, now, wall_us)
        acks, demanded = attempt.acks, self.demanded(attempt, wall_us)
        if demanded and acks + len(demanded) >= self.majority:
            self.n = self.ballots.next(wall_us, max(demanded))
            return self.renew(attempt.ttl_ns, now)
        if len(attempt.answers) - acks - len(demanded) > self.acceptors - self.majority:
            return self._on_loss(attempt)
        return []

    def extended(self, attempt: Attempt) -> int:
        """Count the acceptors that had it live: a holder whose clock stood still finds too few of them."""
        return sum([isinstance(answer, Ack) and answer.extended for answer in attempt.answers.values()])

    def _on_extended(self, attempt: Attempt, now: int, wall_us: int) -> list[Step]:
        attempt.granted_ns = ttl_ns = attempt.shortest_ns
        deadline = self.deadline(attempt, ttl_ns)
        if self.rides is not None:
            self.deadline_ns = self.rides.root.deadline_ns
        # Within a grace, those who extended it have said that nobody had it, or wanted it, in between.
        if not self.in_time(deadline if self.op.grace_ns else self.deadline_ns, now):
            attempt.open = False
            return [Ended(Loss.EXPIRED)]
        if self.rides is not None:
            self.rides.join(self)
        else:
            self.deadline_ns = deadline if self._resumed else max(self.deadline_ns, deadline)
            self._resumed = False
        self.confirmed_n = attempt.n
        self._since_ns = self._since_ns or now
        attempt.kept = True
        self._healing, self._healing_ns = self.next_number(), now
        self.rise = None
        self._mending.clear()
        self._raised_for.clear()
        mending = [step for who in attempt.answers for step in self._mend(attempt, who, now, wall_us)]
        return [*self._carried(attempt, last=False), *mending]

    def _mend(self, attempt: Attempt, who: str, now: int, wall_us: int) -> list[Step]:
        """See to it that an acceptor which lacks the lease gets it; not if its terms aren't known, but to somebody else."""
        answer = attempt.answers[who]
        if not (isinstance(answer, Gone) and answer.reason in {Loss.EXPIRED, Loss.TAKEN}):
            return []
        if not (self.token and self.op.holder and attempt.kind is Kind.EXTEND):
            return []
        if answer.floor > self.confirmed_n and self.ballots.heeds(answer.floor, wall_us):
            return [*self._raise(who, answer.floor, now, wall_us)]
        self._mending.add(who)
        return [self.mend(who, attempt.ttl_ns, now)]

    def mend(self, who: str, ttl_ns: int, now: int) -> Send:
        """Hand the lease to an acceptor that lacks it, under the number that a majority has confirmed.

        Under no other: where a clock fails, another may have had a whole turn at this acceptor, which then demands a
        higher number than any that a majority confirmed to this holder. ``n`` may be higher still: it is drawn for a
        rise as soon as one acceptor demands it, before a majority confirms it. Under ``n``, that acceptor would take the
        lease in, and the next renewal would count it: an older token would go on after a newer one.

        What counts from the grant goes on counting there.
        """
        held_ns = safe_span(now - self._since_ns, self.drift)
        op = self.op._replace(
            queue=False,
            ttl_ns=ttl_ns,
            soft_ns=self.op.soft_ns and max(1, self.op.soft_ns - held_ns),
            hold_at_least_ns=max(0, self.op.hold_at_least_ns - held_ns),
        )
        return Send(self._healing, Accept(op, self.confirmed_n, token=self.token), to=who)

    def _on_loss(self, attempt: Attempt) -> list[Step]:
        """Say why it can't be renewed any more. Nothing is withdrawn: what is left of it protects the holder still."""
        attempt.open = False
        refusal = self.refused(attempt)
        if refusal is not None:
            return [refusal]
        self._get_off()
        gone = [answer for answer in attempt.answers.values() if isinstance(answer, Gone)]
        for reason in (Loss.REVOKED, Loss.RELEASED, Loss.TAKEN):
            left = [answer.remaining_ns for answer in gone if answer.reason is reason]
            if left and self.rides is not None and len(left) < self.majority:
                left.append(max(0, self.rides.certain_ns - attempt.sent_ns))  # these few alone can't promise it
            if left:
                return [Ended(reason, min(left))]
        return [Ended(Loss.EXPIRED)]

    # --- releasing ------------------------------------------------------------------------------------------------

    def _on_drop(self, attempt: Attempt, now: int, wall_us: int) -> list[Step]:  # noqa: ARG002
        if len(attempt.answers) <= self.acceptors - self.majority:
            return []  # too few, whatever they say
        free_in = [answer.free_in_ns for answer in attempt.answers.values() if isinstance(answer, Dropped)]
        if len(free_in) < self.majority:
            refusal = self.refused(attempt)
            if refusal is None and len(attempt.answers) - attempt.said(Refused) < self.majority:
                return []
            if refusal is not None:
                attempt.open = False
                return [refusal]
        attempt.open = False
        return [Freed(max(free_in, default=None))]


_TELL_THE_FLOOR = (Low, HeldBy, Gone)
_DECIDING: dict[Kind, Callable[[Proposer, Attempt, int, int], list[Step]]] = {
    Kind.ACCEPT: Proposer._on_accept,  # noqa: SLF001 - here and below: its own module's
    Kind.PREPARE: Proposer._on_prepare,  # noqa: SLF001
    Kind.EXTEND: Proposer._on_extend,  # noqa: SLF001
    Kind.DROP: Proposer._on_drop,  # noqa: SLF001
}
