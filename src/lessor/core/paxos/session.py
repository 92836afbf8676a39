"""Leases that ride on another one: they have no TTL of their own, and the renewal of that one, the root, is theirs.

On each acceptor a rider lasts exactly as long as the root does there. But what a majority says about the root is no
majority for a rider, since others may keep the rider. So it is noted for each acceptor which riders it has taken in
itself, and until when it keeps the root; a rider's deadline is the one that a majority of those supports who have it.

An acceptor's word counts for a rider only if that acceptor took the rider in itself, in the same incarnation, and if
its time has not run out when the word arrives (`Session.counts`): in between it may have let somebody else have it.
Whoever lacks a rider is handed it again, under the number that a majority has confirmed, as with any lease. Whoever still
has one that was given back, because the word was lost, is told so again: the root would carry it on there.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from lessor.core.ops import Release
from lessor.core.paxos.messages import Ack, Drop, Low, Withdraw
from lessor.core.paxos.rise import Rise
from lessor.core.paxos.steps import Send

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lessor.core.paxos.messages import Verdict
    from lessor.core.paxos.proposer import Proposer


AT_ONCE: Final = 2000
"""How many riders are on their way at a time: a renewal of ten thousand must not wait for all of them."""


class Keeping:
    """What one acceptor keeps."""

    __slots__ = ("incarnation", "riders", "until_ns")

    def __init__(self, incarnation: int | None, until_ns: int) -> None:
        self.incarnation = incarnation
        """None: not known yet."""
        self.until_ns = until_ns
        """Until when it keeps the root, and so its riders: by its last word, counted from before that was asked for."""
        self.riders: set[int] = set()
        """Those that it has taken in itself."""


class Handing(NamedTuple):
    """A rider on its way to an acceptor that lacks it."""

    rider: Proposer
    stamp: int
    who: str
    sent_ns: int


class Left(NamedTuple):
    """A rider that is over, and may not be so everywhere."""

    word: Drop | Withdraw
    """How to say so."""
    from_ns: int
    """Not before: its owner may act on it until then."""
    clean: set[str]
    """Who is known not to have it."""


class Session:
    """All that rides on one lease, at any depth."""

    def __init__(self, root: Proposer) -> None:
        self.root = root
        self.majority = root.majority
        self.riders: dict[int, Proposer] = {}
        self.fingerprint = 0
        self._asked_about: set[int] = set()
        """What the fingerprint of the last renewal stood for."""
        self.certain_ns = root.deadline_ns
        """Until when a majority is known to keep each of them."""
        self._handing: dict[int, Handing] = {}
        self._backlog: deque[tuple[Proposer, str]] = deque()
        """What is to be handed to whom, when there is room."""
        self._on_the_way: set[tuple[int, str]] = set()
        """The same, and what has been sent."""
        self._rising: dict[int, Rise] = {}
        """By number, until a majority has confirmed it."""
        self._risers: dict[Proposer, Rise] = {}
        """The same, by rider."""
        self._raised_for: set[tuple[int, str]] = set()
        """Riders, and who has demanded a higher number for them since the last renewal."""
        self._left: dict[int, Left] = {}
        """What rode, or was to ride, until who hasn't heard of its end has run out, too."""
        self._over_then: set[int] = set()
        """The part of it that was over before the last renewal."""
        self._kept: dict[str, Keeping] = {}
        if root.attempt is not None:
            for who, answer in root.attempt.answers.items():
                if isinstance(answer, Ack):
                    self._kept[who] = Keeping(None, root.deadline(root.attempt, answer.ttl_ns))

    # --- who rides ------------------------------------------------------------------------------------------------

    def join(self, rider: Proposer) -> None:
        """Carry this lease along from now on: it was granted, or is held all the same."""
        one = rider.stamp()
        self._left.pop(one, None)
        if one not in self.riders:
            self.riders[one] = rider
            self.fingerprint ^= one

    def leave(self, rider: Proposer, from_ns: int) -> None:
        """Let go of a lease that is over from then on, because it was given back or is lost; and of what rides on it."""
        one = rider.stamp()
        name, lease_id = rider.op.resource, rider.op.lease_id
        word = Drop(Release(name, lease_id), rider.n) if rider.token else Withdraw(name, lease_id, rider.n)
        if rider.token or one not in self._left:  # one that is given back again was held all the same
            self._left[one] = Left(word, from_ns, set())
        if self.riders.pop(one, None) is not None:
            self.fingerprint ^= one
        for keeping in self._kept.values():
            keeping.riders.discard(one)
        if rider.carries:
            below = (rider.op.resource, rider.token)
            for other in [other for other in self.riders.values() if other.op.parent == below]:
                self.leave(other, from_ns)

    # --- who keeps them -------------------------------------------------------------------------------------------

    def acked(self, one: int, who: str, incarnation: int, until_ns: int, now: int) -> None:
        """Take note that this acceptor took the rider itself in. ``until_ns`` counts from before that was sent."""
        if self.is_late(until_ns, now):
            return
        keeping = self._keeping(who, incarnation, now)
        keeping.riders.add(one)
        keeping.until_ns = max(keeping.until_ns, until_ns)

    def renewed(
        self, who: str, incarnation: int, listed: Iterable[int] | None, until_ns: int, now: int
    ) -> list[Proposer]:
        """Take in one acceptor's answer to the renewal of the root; return the riders to send to it again.

        ``listed`` is what it has; None: what it was asked about, and nothing else.
        """
        if self.is_late(until_ns, now):
            return []
        keeping = self._keeping(who, incarnation, now)
        keeping.riders.intersection_update(self._asked_about if listed is None else listed)
        keeping.until_ns = max(keeping.until_ns, until_ns)
        if self.riders.keys() <= keeping.riders:
            return []
        return [rider for one, rider in self.riders.items() if one not in keeping.riders]

    def shed(self, who: str, listed: Iterable[int] | None, now: int) -> list[Send]:
        """Return what is to be said to an acceptor that has something which is over; ``listed`` is as in `renewed`."""
        if not self._left:
            return []
        there = self._asked_about if listed is None else set(listed)
        for one in self._over_then & self._left.keys() - there:
            self._left[one].clean.add(who)
        over = [self._left[one] for one in there & self._left.keys()]
        return [Send(0, left.word, to=who) for left in over if left.from_ns <= now]

    def _forget_left(self, now: int) -> None:
        """Forget what all are rid of; or, after a TTL, all but those that are away, for there the root has run out, too."""
        here = {who for who, keeping in self._kept.items() if now < keeping.until_ns}
        long_ago = now - self.root.op.ttl_ns
        self._left = {
            one: left
            for one, left in self._left.items()
            if len(left.clean) < self.root.acceptors and (left.from_ns >= long_ago or here - left.clean)
        }

    def lost(self, who: str) -> None:
        """Take note that this acceptor has not got the root any more, and so nothing that rides on it."""
        self._kept.pop(who, None)

    def is_late(self, until_ns: int, now: int) -> bool:
        """Whether this word comes after its time, so that nobody knows what happened since."""
        return now >= until_ns

    def counts(self, keeping: Keeping, incarnation: int, now: int) -> bool:
        """Whether this acceptor has kept what it has without a gap: it has not restarted, nor has its time run out."""
        return keeping.incarnation in {None, incarnation} and now < keeping.until_ns

    def _keeping(self, who: str, incarnation: int, now: int) -> Keeping:
        keeping = self._kept.get(who)
        if keeping is None or not self.counts(keeping, incarnation, now):
            keeping = self._kept[who] = Keeping(incarnation, 0)
        keeping.incarnation = incarnation
        return keeping

    def deadline(self, one: int) -> int:
        """Return until when a majority keeps others out of a rider."""
        bounds = sorted([kept.until_ns for kept in self._kept.values() if one in kept.riders], reverse=True)
        return bounds[self.majority - 1] if len(bounds) >= self.majority else 0

    def lacks(self, until_ns: int) -> bool:
        """Whether some rider is not kept by a majority until then."""
        long_enough = [kept.riders for kept in self._kept.values() if kept.until_ns >= until_ns]
        if sum([self.riders.keys() <= kept for kept in long_enough]) >= self.majority:
            return False
        return any(sum([one in kept for kept in long_enough]) < self.majority for one in self.riders)

    # --- handing them to those who lack them ------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        """Renew the root; what has not been answered for a whole TTL was lost, and may be sent again.

        What is younger may have been answered already, since nobody listens between two renewals.
        """
        self._asked_about = set(self.riders)
        if self._left:
            self._forget_left(now)
        self._over_then = set(self._left)
        lost_ns = now - self.root.op.ttl_ns
        self._handing = {number: one for number, one in self._handing.items() if one.sent_ns > lost_ns}
        self._on_the_way = {(one.stamp, one.who) for one in self._handing.values()}
        self._backlog.clear()  # whoever lacks something will say so
        self._rising = {number: one for number, one in self._rising.items() if one.sent_ns > lost_ns}
        self._risers = {one.lease: one for one in self._rising.values()}
        self._raised_for.clear()

    def hand_out(self, riders: Iterable[Proposer], who: str, now: int) -> list[Send]:
        """Send them to an acceptor that lacks them, some at a time."""
        for rider in riders:
            one = (rider.stamp(), who)
            if one not in self._on_the_way:
                self._on_the_way.add(one)
                self._backlog.append((rider, who))
        return self._send_some(now)

    def _send_some(self, now: int) -> list[Send]:
        """Send what there is room for; but not what no majority keeps any more: that may have been ended."""
        sends = []
        while self._backlog and len(self._handing) + len(self._rising) < AT_ONCE:
            rider, who = self._backlog.popleft()
            one = rider.stamp()
            if now >= self.deadline(one):
                continue
            number = self.root.next_number()
            self._handing[number] = Handing(rider, one, who, now)
            sends.append(rider.mend(who, 0, now)._replace(attempt=number))
        return sends

    @property
    def is_busy(self) -> bool:
        """Whether something is on its way to an acceptor that lacks it, or will be."""
        return bool(self._handing or self._rising or self._backlog)

    def asked_for(self, number: int) -> bool:
        """Whether an answer under this number is about a rider."""
        return number in self._handing or number in self._rising

    def on_verdict(
        self, who: str, number: int, verdict: Verdict, now: int, wall_us: int, *, incarnation: int
    ) -> list[Send]:
        """Take in what an acceptor says about a rider."""
        handing = self._handing.pop(number, None)
        if handing is not None:
            self._on_the_way.discard((handing.stamp, who))
            if isinstance(verdict, Ack):
                self._took(handing.rider, who, incarnation, self.root.until(handing.sent_ns, verdict.ttl_ns), now)
            raising = []
            if isinstance(verdict, Low) and self.root.ballots.heeds(verdict.floor, wall_us):
                raising = self._raise(handing.rider, who, verdict.floor, now, wall_us)
            return raising + self._send_some(now)
        rise = self._rising[number]
        if isinstance(verdict, Ack) and verdict.extended:
            self._took(rise.lease, who, incarnation, self.root.until(rise.sent_ns, verdict.ttl_ns), now)
        if not rise.confirmed(who, verdict):
            return []
        del self._rising[number], self._risers[rise.lease]
        return [send for lacking in rise.wanted_by for send in self.hand_out([rise.lease], lacking, now)]

    def _took(self, rider: Proposer, who: str, incarnation: int, until_ns: int, now: int) -> None:
        if rider.stamp() in self.riders:
            self.acked(rider.stamp(), who, incarnation, until_ns, now)

    def _raise(self, rider: Proposer, who: str, floor: int, now: int, wall_us: int) -> list[Send]:
        """Let a majority confirm a number above that floor; then, not before, ``who`` is handed it."""
        if (rider.stamp(), who) in self._raised_for:
            return []  # where others drive its floor up all the time, it would never end
        self._raised_for.add((rider.stamp(), who))
        rising = self._risers.get(rider)
        if rising is not None:
            rising.wants(who)
        if rising is not None or rider.stamp() not in self.riders:
            return []
        rise = Rise(rider, self.root.next_number(), who, floor, now=now, wall_us=wall_us)
        self._rising[rise.number] = self._risers[rider] = rise
        return [rise.ask()]
