"""Wrong versions of single rules of the protocol. The simulator must notice each of them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from lessor.core.ops import Acquire, Loss
from lessor.core.paxos.acceptor import Acceptor, Durable
from lessor.core.paxos.ballots import DAY_US, Ballots
from lessor.core.paxos.messages import Accept, Ack, Drop, End, Extend, Gone, Low, Request, Seed, SeedQuery, Withdraw
from lessor.core.paxos.proposer import Proposer
from lessor.core.paxos.session import Keeping, Session
from lessor.core.paxos.starting import Seeding, silence
from lessor.core.paxos.steps import Blocked, Kept, Send
from lessor.sim.client import Client
from lessor.sim.node import Node
from lessor.sim.world import Cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lessor.core.entry import Reservation
    from lessor.core.paxos.acceptor import Answer
    from lessor.core.paxos.attempt import Attempt
    from lessor.core.paxos.messages import Verdict
    from lessor.core.paxos.slot import Slot
    from lessor.core.paxos.steps import Step

# --- the holder's time --------------------------------------------------------------------------------------------


class AnchoredAtReceipt(Proposer):
    def on_verdict(
        self, who: str, number: int, verdict: Verdict, now: int, wall_us: int, *, incarnation: int = 0
    ) -> list[Step]:
        if self.attempt is not None and self.attempt.number == number:
            self.attempt.sent_ns = now
        return super().on_verdict(who, number, verdict, now, wall_us, incarnation=incarnation)


class ActivatesDeadAttempts(Proposer):
    """Nobody looks at the deadline when the last answer comes."""

    def in_time(self, deadline_ns: int, now: int) -> bool:
        return True


class NoDriftMargin(Proposer):
    def deadline(self, attempt: Attempt, ttl_ns: int) -> int:
        return attempt.sent_ns + ttl_ns


# --- who is who ---------------------------------------------------------------------------------------------------


class ReplacesLiveLeases(Acceptor):
    def accept(self, item: Accept, now: int) -> Verdict:
        slot = self.load(item.op.resource)
        if self.is_live(slot, now) and slot.lease_id != item.op.lease_id and item.n > self.floor_of(slot):
            slot.lease_id = None
            slot.expiry_ns = now
        return super().accept(item, now)


class OwnerIsTheProcess(Client):
    def new_id(self, resource: str) -> str:
        return self.name


class CountsMessages(Proposer):
    copies = count()

    def on_verdict(
        self, who: str, number: int, verdict: Verdict, now: int, wall_us: int, *, incarnation: int = 0
    ) -> list[Step]:
        steps = super().on_verdict(f"{who}#{next(self.copies)}", number, verdict, now, wall_us, incarnation=incarnation)
        return [_without_copies(step) if isinstance(step, Send) else step for step in steps]


def _without_copies(step: Send) -> Send:
    return step._replace(to=step.to and step.to.split("#")[0], but=tuple(who.split("#")[0] for who in step.but))


class ReleasesWhoeverHasIt(Acceptor):
    def drop(self, item: Drop, now: int) -> Verdict:
        slot = self.load(item.op.resource)
        if self.is_live(slot, now):
            item = Drop(item.op._replace(lease_id=slot.lease_id or ""), slot.n)
        return super().drop(item, now)


class ReleasesTheRenewed(Acceptor):
    """The owner's older attempt, withdrawn late, takes its newer one along."""

    def withdraw(self, item: Withdraw, now: int) -> Verdict:
        return super().withdraw(item._replace(n=max(item.n, self.load(item.resource).n)), now)


# --- numbers ------------------------------------------------------------------------------------------------------


class TakesEqualNumbers(Acceptor):
    def may_install(self, slot: Slot, n: int, lease_id: str) -> bool:
        return n >= self.floor_of(slot)


class ReusesNumbers(Proposer):
    def acquire(self, now: int, wall_us: int, above: int = 0) -> list[Step]:
        used = self.n
        steps = super().acquire(now, wall_us, above)
        if used and not self.token and isinstance(steps[0], Send) and isinstance(steps[0].item, Accept):
            self.n = used
            steps[0] = steps[0]._replace(item=steps[0].item._replace(n=used))
        return steps


class HeedsEverybody(Ballots):
    __slots__ = ()

    def heeds(self, floor: int, wall_us: int) -> bool:
        return True


class FollowsEveryFloor(Proposer):
    """Goes above the floor of a single acceptor, however far ahead that is."""

    def __init__(self, op: Acquire, *, acceptors: int, drift: float, ballots: Ballots) -> None:
        ballots.__class__ = HeedsEverybody  # all proposers of a client share them
        super().__init__(op, acceptors=acceptors, drift=drift, ballots=ballots)


class IsLedOn(Acceptor):
    """Takes numbers that are a day ahead of the last ones, wherever these have come from."""

    def _move_on(self, now: int, wall_us: int) -> None:
        self.ceiling = max([wall_us, self.floor, *(slot.promised_n for slot in self.slots.values())]) + DAY_US


class NoFloor(Node):
    def begin(self, *, new_cluster: bool = False) -> None:
        super().begin(new_cluster=new_cluster)
        if self.disk.snapshot is None:
            self.acceptor.floor = 0


class ForgetsWithoutFloor(Acceptor):
    def forget(self, slot: Slot) -> None:
        floor = self.floor
        super().forget(slot)
        self.floor = floor


class ReservesNothing(Acceptor):
    def reserve(self, n: int) -> None:
        pass


class AnswersBeforeItIsWritten(Node):
    def _write_then_send(self, source: str, request: Request, answer: Answer) -> None:
        self._tell(source, request, answer)
        super()._write_then_send(source, request, answer._replace(reply=None, push=None))

    def _tell(self, source: str, request: Request, answer: Answer) -> None:
        if answer.reply is not None:
            super()._tell(source, request, answer)


# --- renewing and releasing ---------------------------------------------------------------------------------------


class ShortensOnRenewal(Acceptor):
    def extension(self, slot: Slot, ttl_ns: int, now: int) -> int:
        return now + ttl_ns


class WithdrawsAFailedRenewal(Proposer):
    def on_timeout(self, number: int, now: int, *, last: bool = True) -> list[Step]:
        steps = super().on_timeout(number, now, last=last)
        if steps and self.token:
            steps.insert(0, Send(0, Withdraw(self.op.resource, self.op.lease_id, self.n)))
        return steps


class DoesNotClose(Acceptor):
    def close(self, slot: Slot, n: int, lease_id: str) -> None:
        pass


class WithdrawalDoesNotClose(Acceptor):
    """A request of a withdrawn attempt that arrives late is taken in."""

    _withdrawing = False

    def withdraw(self, item: Withdraw, now: int) -> Verdict:
        self._withdrawing = True
        try:
            return super().withdraw(item, now)
        finally:
            self._withdrawing = False

    def close(self, slot: Slot, n: int, lease_id: str) -> None:
        if not self._withdrawing:
            super().close(slot, n, lease_id)


class ForcedEndKeepsThePromise(Acceptor):
    """A copy of the request that a forced end undid is taken in again."""

    def end(self, item: End, now: int) -> Verdict:
        slot = self.load(item.op.resource)
        promised_by = slot.promised_by
        verdict = super().end(item, now)
        slot.promised_by = promised_by
        return verdict


class RestartsATurn(Acceptor):
    """A copy of an acquire that arrives after the lease ran out starts it again."""

    def accept(self, item: Accept, now: int) -> Verdict:
        slot = self.load(item.op.resource)
        if slot.lease_id == item.op.lease_id and not self.is_live(slot, now) and not item.token:
            slot.n = min(slot.n, item.n - 1)
        return super().accept(item, now)


class NoTombstone(Acceptor):
    """An acquire that arrives after its abandonment is taken in, if the abandonment didn't name its number."""

    def drop(self, item: Drop, now: int) -> Verdict:
        return super().drop(item._replace(op=item.op._replace(abandon=False)), now)


class InstallsOnRenewal(Acceptor):
    def extend(self, item: Extend, now: int) -> Verdict:
        verdict = super().extend(item, now)
        if isinstance(verdict, Gone) and verdict.reason in {Loss.EXPIRED, Loss.TAKEN}:
            slot = self.load(item.op.resource)
            if not self.may_install(slot, item.n, item.op.lease_id):
                return Low(self.floor_of(slot))
            op = Acquire(item.op.resource, item.op.lease_id, "again", item.op.ttl_ns)
            return self.accept(Accept(op, item.n, token=item.op.token), now)
        return verdict


class CountsFreshInstalls(Proposer):
    def extended(self, attempt: Attempt) -> int:
        return attempt.said(Ack)


class MendsUnderANewNumber(Proposer):
    """An acceptor that demands a higher number gets one at once, of which no majority knows."""

    def _raise(self, who: str, floor: int, now: int, wall_us: int) -> list[Send]:
        self.n = self.confirmed_n = self.ballots.next(wall_us, floor)
        return [self.mend(who, self.op.ttl_ns, now)]


class MendsUnderItsOwnNumber(Proposer):
    """An acceptor that lacks the lease is handed it under the highest number used, which a majority may not know yet."""

    def mend(self, who: str, ttl_ns: int, now: int) -> Send:
        send = super().mend(who, ttl_ns, now)
        assert isinstance(send.item, Accept)
        return send._replace(item=send.item._replace(n=self.n))


class WaitsForTheNextRenewal(Proposer):
    """A number that an acceptor demands is confirmed with the next renewal, when that acceptor may demand another one."""

    def _raise(self, who: str, floor: int, now: int, wall_us: int) -> list[Send]:
        self.n = self.ballots.next(wall_us, floor)
        return []


# --- silence ------------------------------------------------------------------------------------------------------


class HalfSilence(Node):
    def begin(self, *, new_cluster: bool = False) -> None:
        super().begin(new_cluster=new_cluster)
        now = self.now
        self.acceptor.silent_until_ns = now + (self.acceptor.silent_until_ns - now) // 2


class SilenceByTodaysSettings(Node):
    def begin(self, *, new_cluster: bool = False) -> None:
        super().begin(new_cluster=new_cluster)
        if self.acceptor.is_silent(self.now):
            self.acceptor.silent_until_ns = self.now + silence(self.config.longest_span_ns, self.config.drift)


class SilenceByOneClock(Node):
    """The silence is as long as the span, whatever the clock's rate was when the span was granted."""

    def begin(self, *, new_cluster: bool = False) -> None:
        super().begin(new_cluster=new_cluster)
        now, drift = self.now, self.config.drift
        left = self.acceptor.silent_until_ns - now
        if left > 0 and self.disk.snapshot is None:
            self.acceptor.silent_until_ns = now + int(left * (1 - drift) / (1 + drift))


class SpanWithoutLockDelay(Acceptor):
    """The longest span on disk is that of the leases alone."""

    def _installed(self, slot: Slot, item: Accept, now: int, reservation: Reservation | None) -> Verdict:
        return self._without_delay(super()._installed, slot, item, now, reservation)

    def _extended(self, slot: Slot, n: int, token: int, ttl_ns: int, now: int) -> Verdict:
        return self._without_delay(super()._extended, slot, n, token, ttl_ns, now)

    def _without_delay(self, rule: Callable[..., Verdict], *details: object) -> Verdict:
        span = self._span_ns
        verdict = rule(*details)
        self._span_ns = max(span, verdict.ttl_ns) if isinstance(verdict, Ack) else span
        return verdict


class ForgetsTheExtendedSpan(Acceptor):
    """A renewal for longer than the grant is not kept in mind for the silence."""

    def _extended(self, slot: Slot, n: int, token: int, ttl_ns: int, now: int) -> Verdict:
        span = self._span_ns
        verdict = super()._extended(slot, n, token, ttl_ns, now)
        self._span_ns = span
        return verdict


class KeepsTheShutdownFile(Node):
    def delete_snapshot(self) -> None:
        pass


class HastySeeding(Seeding):
    def may_ask(self, now: int) -> bool:
        return not self.acceptor.seeded


class SeedsBeforeTheSilence(Node):
    seeding_class = HastySeeding


class SelfishSeeding(Seeding):
    """Goes by its own maximum alone, whatever its predecessor's was."""

    def on_seed(self, seed: Seed, now: int) -> Durable | None:
        return super().on_seed(seed._replace(span_ns=0), now)


class SeedsByItsOwnSettings(Node):
    seeding_class = SelfishSeeding


class SeedsWithItsFloorAlone(Acceptor):
    """A node that lost its disk is told the floor for all resources, not what was promised for single ones."""

    def seed(self, query: SeedQuery, now: int) -> Seed | None:
        seed = super().seed(query, now)
        return seed and seed._replace(high_water=self.floor)


class DeafSeeding(Seeding):
    """A node that lost its disk goes by its own floor, whatever the others say."""

    def on_seed(self, seed: Seed, now: int) -> Durable | None:
        durable = super().on_seed(seed, now)
        return durable and durable._replace(high_water=self.acceptor.floor)


class SeedsByItsOwnFloor(Node):
    seeding_class = DeafSeeding


# --- sessions and waiting -----------------------------------------------------------------------------------------


class CountsAfterTheBound(Session):
    """An acceptor that once took the rider in is believed to have it still, whenever it answers."""

    def renewed(
        self, who: str, incarnation: int, listed: Iterable[int] | None, until_ns: int, now: int
    ) -> list[Proposer]:
        super().renewed(who, incarnation, None, until_ns, now)
        return []

    def lost(self, who: str) -> None:
        pass

    def counts(self, keeping: Keeping, incarnation: int, now: int) -> bool:
        return keeping.incarnation in {None, incarnation}


class CountsLateWords(Session):
    """That an acceptor took the rider in is believed whenever one hears of it."""

    def is_late(self, until_ns: int, now: int) -> bool:
        return False


class CountsAnyAck(Session):
    """What an acceptor says about the root is taken for all riders, whether or not it has them."""

    def renewed(
        self, who: str, incarnation: int, listed: Iterable[int] | None, until_ns: int, now: int
    ) -> list[Proposer]:
        super().renewed(who, incarnation, None, until_ns, now)
        self._keeping(who, incarnation, now).riders.update(self.riders)
        return []


class SaysItOnce(Session):
    """Whoever didn't hear that a rider was given back is not told again."""

    def shed(self, who: str, listed: Iterable[int] | None, now: int) -> list[Send]:
        return []


class SaysItTooSoon(Session):
    """A rider that is to end is taken for one that has ended, though its owner acts on it until then."""

    def leave(self, rider: Proposer, from_ns: int) -> None:
        super().leave(rider, 0)


class NoLockDelay(Acceptor):
    def accept(self, item: Accept, now: int) -> Verdict:
        return super().accept(item._replace(op=item.op._replace(lock_delay_ns=0)), now)


class KeepsUnderTheRevoked(Acceptor):
    """What rides under a revoked lease is renewed, though it ends here with that one, and not with the root."""

    def ends_apart(self, parent: str | None) -> bool:
        return False


class BelievesTheRootForAll(Proposer):
    """What a majority says about the root is taken for a majority for each rider."""

    def _is_carried(self) -> bool:
        return True

    def _carried(self, attempt: Attempt, *, last: bool) -> list[Step]:
        attempt.open = False
        return [Kept(attempt.granted_ns, self.deadline_ns)]


class TakesWhateverWasLeft(Proposer):
    """What was handed over before the last holder goes to the next one, too."""

    def handed_over(self, attempt: Attempt) -> str | None:
        left = [answer.state for answer in attempt.answers.values() if isinstance(answer, Ack) and answer.state]
        return left[0] if left else ""


class BelievesAMinority(Proposer):
    def believed(self, attempt: Attempt) -> Blocked | None:
        threshold, self.majority = self.majority, 1
        blocked = super().believed(attempt)
        self.majority = threshold
        return blocked


CASTS = {
    "anchored at receipt": Cast(proposer=AnchoredAtReceipt),
    "activates dead attempts": Cast(proposer=ActivatesDeadAttempts),
    "no drift margin": Cast(proposer=NoDriftMargin),
    "replaces live leases": Cast(acceptor=ReplacesLiveLeases),
    "the owner is the process": Cast(client=OwnerIsTheProcess),
    "counts messages": Cast(proposer=CountsMessages),
    "releases whoever has it": Cast(acceptor=ReleasesWhoeverHasIt),
    "releases the renewed": Cast(acceptor=ReleasesTheRenewed),
    "takes equal numbers": Cast(acceptor=TakesEqualNumbers),
    "reuses numbers": Cast(proposer=ReusesNumbers),
    "follows every floor": Cast(proposer=FollowsEveryFloor),
    "is led on": Cast(acceptor=IsLedOn),
    "no floor": Cast(node=NoFloor),
    "forgets without floor": Cast(acceptor=ForgetsWithoutFloor),
    "reserves nothing": Cast(acceptor=ReservesNothing),
    "answers before it is written": Cast(node=AnswersBeforeItIsWritten),
    "shortens on renewal": Cast(acceptor=ShortensOnRenewal),
    "withdraws a failed renewal": Cast(proposer=WithdrawsAFailedRenewal),
    "does not close": Cast(acceptor=DoesNotClose),
    "a withdrawal does not close": Cast(acceptor=WithdrawalDoesNotClose),
    "a forced end keeps the promise": Cast(acceptor=ForcedEndKeepsThePromise),
    "restarts a turn": Cast(acceptor=RestartsATurn),
    "no tombstone": Cast(acceptor=NoTombstone),
    "counts fresh installs": Cast(acceptor=InstallsOnRenewal, proposer=CountsFreshInstalls),
    "mends under a new number": Cast(proposer=MendsUnderANewNumber),
    "mends under its own number": Cast(proposer=MendsUnderItsOwnNumber),
    "waits for the next renewal": Cast(proposer=WaitsForTheNextRenewal),
    "half silence": Cast(node=HalfSilence),
    "silence by today's settings": Cast(node=SilenceByTodaysSettings),
    "silence by one clock": Cast(node=SilenceByOneClock),
    "a span without the lock delay": Cast(acceptor=SpanWithoutLockDelay),
    "forgets the extended span": Cast(acceptor=ForgetsTheExtendedSpan),
    "keeps the shutdown file": Cast(node=KeepsTheShutdownFile),
    "seeds before the silence": Cast(node=SeedsBeforeTheSilence),
    "seeds by its own settings": Cast(node=SeedsByItsOwnSettings),
    "seeds with its floor alone": Cast(acceptor=SeedsWithItsFloorAlone),
    "seeds by its own floor": Cast(node=SeedsByItsOwnFloor),
    "counts after the bound": Cast(session=CountsAfterTheBound),
    "counts late words": Cast(session=CountsLateWords),
    "counts any ack": Cast(session=CountsAnyAck),
    "no lock delay": Cast(acceptor=NoLockDelay),
    "says it once": Cast(session=SaysItOnce),
    "says it too soon": Cast(session=SaysItTooSoon),
    "keeps what rides under the revoked": Cast(acceptor=KeepsUnderTheRevoked),
    "believes the root for all": Cast(proposer=BelievesTheRootForAll),
    "takes whatever was left": Cast(proposer=TakesWhateverWasLeft),
    "believes a minority": Cast(proposer=BelievesAMinority),
}
