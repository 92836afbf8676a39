"""A client: gets leases, renews them by the real schedule, writes under their tokens, and gives them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.clock import MILLISECOND
from lessor.core.holder import Ending, Over, Tick, Unconfirmed
from lessor.core.ops import Acquire, Loss, Summons
from lessor.core.paxos.ballots import Ballots
from lessor.core.paxos.merging import Pushes
from lessor.core.paxos.messages import Push, Reply, Request
from lessor.core.paxos.steps import BackOff, Blocked, Ended, Freed, Kept, NoAnswer, Refusal, Send, Won
from lessor.core.schedule import Schedule, attempt_timeout, renew_at, retry_at
from lessor.core.timing import Timing
from lessor.sim.process import Process
from lessor.sim.tenancy import Tenancy
from lessor.sim.whims import Whims

if TYPE_CHECKING:
    from lessor.core.ops import Release
    from lessor.core.paxos.messages import Item
    from lessor.core.paxos.proposer import Proposer
    from lessor.core.paxos.steps import Step
    from lessor.sim.clock import SimClock
    from lessor.sim.world import World


class Client(Process):
    """One client's process. What it does is drawn from a seed of its own."""

    stall_ns = 0
    """For how long it is to stand still once its next request has left."""

    def __init__(self, world: World, name: str, clock: SimClock, wall_us: int) -> None:
        super().__init__(world, name, clock, wall_us)
        self.timing = Timing.from_ttl(world.plan.ttl_ns, drift=world.plan.drift, margin_ns=0)
        self.whims = Whims(world.plan, name)
        self.serial = 0
        self.turns = 0
        self.begin()

    def begin(self) -> None:
        """Start, knowing nothing."""
        self.up = True
        self.ballots = Ballots(len(self.world.plan.nodes))
        self.pushes = Pushes(len(self.world.plan.nodes))
        self.tenancies: dict[str, Tenancy] = {}
        self.asked: dict[int, list[tuple[Tenancy, int]]] = {}
        """By serial: what each item of the request was for."""
        self.schedule: Schedule[str] = Schedule()
        self.alarm = 0
        self.after(self.rng.randrange(1, self.timing.ttl_ns), self.next_turn)

    # --- turns ----------------------------------------------------------------------------------------------------

    def next_turn(self) -> None:
        """Want something."""
        wanted = [name for name in self.world.plan.resources if name not in self.tenancies]
        if not wanted:
            self.rest()
            return
        self.turns += 1
        resource = wanted[self.turns % len(wanted)] if self.world.calm else self.rng.choice(wanted)
        self.want(resource)
        if len(wanted) > 1 and self.rng.random() < 0.5:
            self.after(1, self.next_turn)

    def want(self, resource: str, parent: Tenancy | None = None) -> Tenancy:
        """Begin to get a lease."""
        op = Acquire(
            resource,
            self.new_id(resource),
            self.name,
            0 if parent else self.first_ttl_ns,
            queue=self.queues_up(),
            notify=self.name,
            lock_delay_ns=self.world.plan.lock_delay_ns,
            parent=(parent.resource, parent.proposer.token) if parent else None,
        )
        proposer = self.new_proposer(self.whims.terms(op))
        if parent is not None:
            proposer.ride(parent.proposer)
        tenancy = Tenancy(proposer, self.timing, self.now + 4 * self.timing.ttl_ns, parent)
        self.tenancies[resource] = tenancy
        self.do(tenancy, proposer.acquire(self.now, self.wall_us))
        abandons_after = self.whims.abandons_after_ns()
        if abandons_after is not None and not self.world.calm:
            self.after(abandons_after, self.abandon, tenancy)
        return tenancy

    @property
    def first_ttl_ns(self) -> int:
        """For how long a lease is acquired, before it is renewed for the whole TTL."""
        return self.timing.ttl_ns // (2 if self.world.plan.grows else 1)

    def new_proposer(self, op: Acquire) -> Proposer:
        """Return what gets this lease."""
        plan, make = self.world.plan, self.world.cast.proposer
        proposer = make(op, acceptors=len(plan.nodes), drift=plan.drift, ballots=self.ballots)
        proposer.make_session = self.world.cast.session
        return proposer

    def new_id(self, resource: str) -> str:
        """Return an id that no other acquisition has."""
        return f"{self.name}.{self.life}.{resource}.{self.turns}"

    def queues_up(self) -> bool:
        """Whether to ask for a place in the queue, and to be called."""
        return self.rng.random() < 0.5

    def rest(self) -> None:
        """Want nothing for a while."""
        most = self.timing.ttl_ns // (10 if self.world.calm else 2)
        self.after(self.rng.randrange(1, most), self.next_turn)

    def give_back(self, tenancy: Tenancy, reason: Loss = Loss.RELEASED) -> None:
        """Stop acting and then, not before, release."""
        if self.tenancies.get(tenancy.resource) is not tenancy:
            return
        op = self.whims.release(tenancy)
        self.let_go(tenancy, reason)
        self.do(tenancy, tenancy.proposer.release(op, self.now))
        if self.whims.repeats():
            self.after(self.whims.pause_ns(), self.release_again, tenancy, op)

    def abandon(self, tenancy: Tenancy) -> None:
        """Want it no more, while requests for it are on their way."""
        if self.tenancies.get(tenancy.resource) is not tenancy or tenancy.belief is not None:
            return
        self.world.tally.abandoned += 1
        if tenancy.parent is not None or not self.whims.forgets():
            self.give_back(tenancy)
            return
        op = self.whims.release(tenancy)
        tenancy.proposer.attempt = None
        self.let_go(tenancy, Loss.RELEASED)
        self.do(tenancy, self.new_proposer(tenancy.proposer.op).release(op, self.now))

    def release_again(self, tenancy: Tenancy, op: Release) -> None:
        """Give back what was given back, whoever has it by now."""
        self.world.tally.repeated += 1
        self.do(tenancy, tenancy.proposer.release(op, self.now))

    def let_go(self, tenancy: Tenancy, reason: Loss) -> None:
        """Stop acting on it."""
        if tenancy.belief is not None:
            tenancy.step(Over(reason), self.now)
            self.world.span(self.name, f"holds {tenancy.resource}", begins=False)
        self.schedule.remove(tenancy.resource)
        del self.tenancies[tenancy.resource]
        self.rest()

    # --- what the proposer says -----------------------------------------------------------------------------------

    def do(self, tenancy: Tenancy, steps: list[Step]) -> None:
        """Carry out what a proposer decided."""
        for step in steps:
            if isinstance(step, Send):
                self.send(tenancy, step)
            elif isinstance(step, Won):
                self.on_won(tenancy, step)
            elif isinstance(step, Kept):
                self.on_kept(tenancy, step)
            elif self.tenancies.get(tenancy.resource) is not tenancy or isinstance(step, Freed):
                pass
            elif isinstance(step, Blocked):
                self.wait(tenancy, step.remaining_ns + step.position * 5 * MILLISECOND)
            elif isinstance(step, BackOff):
                pause = self.rng.randrange(1, 4 * self.world.plan.delay_ns + 10 * MILLISECOND)
                self.after(pause, self.try_again, tenancy, True)
            elif isinstance(step, NoAnswer) or (isinstance(step, Refusal) and tenancy.belief is not None):
                self.on_no_answer(tenancy)
            else:
                assert isinstance(step, Ended | Refusal)
                ended = step if isinstance(step, Ended) else Ended(Loss.TAKEN)
                self.world.tally.revoked += ended.reason is Loss.REVOKED
                self.on_ended(tenancy, ended)

    def send(self, tenancy: Tenancy, step: Send) -> None:
        """Send one item."""
        targets = [step.to] if step.to else [name for name in self.world.plan.nodes if name not in step.but]
        self.transmit((step.item,), [(tenancy, step.attempt)], targets)
        if step.attempt and not step.to and not step.aside:
            held = tenancy.belief is not None
            patience = self.timing.round_trip_ns
            if held:
                assert tenancy.belief is not None
                patience = attempt_timeout(patience, tenancy.belief.over_ns, self.now)
            self.after(patience, self.on_timeout, tenancy, step.attempt)

    def transmit(self, items: tuple[Item, ...], purposes: list[tuple[Tenancy, int]], targets: list[str]) -> None:
        """Send one request to some nodes."""
        self.serial += 1
        self.asked[self.serial] = purposes
        for tenancy, attempt in purposes:
            tenancy.sent_ns[attempt] = self.world.now
        request = Request(self.serial, items)
        for target in targets:
            self.world.note(self.name, "sends", target, request)
            self.world.network.send(self.name, target, request)
        if self.stall_ns and not self.world.calm:
            self.world.note(self.name, "stalls", "", f"{self.stall_ns / 1e9:.3f} s")
            self.world.tally.stops += 1
            self.stop(self.stall_ns)
            self.stall_ns = 0

    def receive(self, source: str, message: object) -> None:
        """Hear an answer, or a call."""
        self.world.note(self.name, "hears", source, message)
        if isinstance(message, Push):
            self.on_push(message)
            return
        assert isinstance(message, Reply)
        who, incarnation = message.acceptor, message.incarnation
        for (tenancy, attempt), verdict in zip(self.asked.get(message.serial, ()), message.verdicts, strict=False):
            decide = tenancy.proposer.on_verdict
            self.do(tenancy, decide(who, attempt, verdict, self.now, self.wall_us, incarnation=incarnation))

    def on_push(self, push: Push) -> None:
        """Come when called."""
        self.ballots.heard(push.acceptor, push.floor)
        for news in self.pushes.take(push):
            tenancy = self.tenancies.get(news.resource)
            called = getattr(news, "summons", None) is Summons.RESERVED
            if tenancy is not None and called and tenancy.waiting and news.lease_id == tenancy.owner:  # type: ignore[union-attr]
                self.try_again(tenancy, contended=False)

    def on_timeout(self, tenancy: Tenancy, attempt: int) -> None:
        """Wait no longer for answers."""
        self.do(tenancy, tenancy.proposer.on_timeout(attempt, self.now))

    # --- getting it -----------------------------------------------------------------------------------------------

    def wait(self, tenancy: Tenancy, for_ns: int) -> None:
        """Sleep until the time has come, or a call."""
        self.serial += 1
        tenancy.waiting = self.serial
        self.after(min(max(for_ns, MILLISECOND), self.timing.ttl_ns), self.wait_over, tenancy, self.serial)

    def wait_over(self, tenancy: Tenancy, which: int) -> None:
        """Come by oneself."""
        if tenancy.waiting == which:
            self.try_again(tenancy, contended=False)

    def try_again(self, tenancy: Tenancy, contended: bool) -> None:  # noqa: FBT001 - planned, hence without a name
        """Ask again, or give up."""
        if self.tenancies.get(tenancy.resource) is not tenancy or tenancy.belief is not None:
            return
        tenancy.waiting = 0
        if self.now >= tenancy.give_up_ns:
            self.give_back(tenancy)
            return
        proposer = tenancy.proposer
        begin = proposer.again if contended else proposer.acquire
        self.do(tenancy, begin(self.now, self.wall_us))

    def on_won(self, tenancy: Tenancy, won: Won) -> None:
        """Hold it."""
        tenancy.won(won.deadline_ns, self.timing.at_least(tenancy.root.proposer.op.grace_ns))
        self.world.span(self.name, f"holds {tenancy.resource}", begins=True)
        self.world.checks.on_won(self, tenancy, won.state)
        self.after(self.hold_ns(), self.give_back, tenancy)
        self.after(won.deadline_ns - self.now, self.on_deadline, tenancy)
        self.plan_renewal(tenancy)
        self.write(tenancy)

    def hold_ns(self) -> int:
        """Return how long to hold a lease."""
        return self.rng.randrange(1, self.timing.ttl_ns // 4 if self.world.calm else 3 * self.timing.ttl_ns)

    def on_no_answer(self, tenancy: Tenancy) -> None:
        """Try again: in time, if it is held."""
        if tenancy.belief is None:
            self.after(self.rng.randrange(1, self.timing.ttl_ns // 4), self.try_again, tenancy, False)
            return
        now = self.now
        if now >= tenancy.belief.over_ns:  # its clock has jumped over the deadline
            self.on_deadline(tenancy)
            return
        tenancy.step(Unconfirmed(), now)
        tenancy.failures += 1
        due = retry_at(self.timing, tenancy.belief.over_ns, now, tenancy.failures, self.rng.random())
        if due is not None:
            self.set_alarm(tenancy.resource, due)

    def on_ended(self, tenancy: Tenancy, ended: Ended) -> None:
        """Stop: it is not ours, and will not be; or go on until what was promised, and no longer."""
        self.schedule.remove(tenancy.resource)
        if ended.remaining_ns <= 0 or tenancy.belief is None:
            self.world.note(self.name, "lost", tenancy.resource, tenancy.owner)
            self.let_go(tenancy, ended.reason)
            return
        self.world.tally.ending += 1
        attempt = tenancy.proposer.attempt
        assert attempt is not None
        self.is_to_end(tenancy, Ending(ended.reason, attempt.sent_ns + self.timing.safe_time(ended.remaining_ns)))
        if self.whims.insists():
            self.after(self.whims.pause_ns(), self.insist, tenancy)

    def is_to_end(self, tenancy: Tenancy, ending: Ending) -> None:
        """Believe that it ends then."""
        tenancy.step(ending, self.now)
        assert tenancy.belief is not None
        self.world.checks.holding(self, tenancy)
        self.after(max(0, tenancy.belief.deadline_ns - self.now), self.on_deadline, tenancy)

    def insist(self, tenancy: Tenancy) -> None:
        """Renew by hand what is to end: whatever comes of that must be true."""
        if self.tenancies.get(tenancy.resource) is tenancy and tenancy.is_valid(self.now):
            self.world.tally.insisted += 1
            self.do(tenancy, tenancy.proposer.renew(tenancy.proposer.op.ttl_ns, self.now))

    # --- holding it -----------------------------------------------------------------------------------------------

    def on_kept(self, tenancy: Tenancy, kept: Kept) -> None:
        """Believe for longer."""
        if self.tenancies.get(tenancy.resource) is not tenancy or tenancy.belief is None:
            return
        self.world.tally.returned += tenancy.may_come_back(self.now)
        tenancy.confirmed(kept.deadline_ns, self.now)
        tenancy.failures = 0
        self.world.checks.on_kept(self, tenancy)
        self.after(kept.deadline_ns - self.now, self.on_deadline, tenancy)
        self.plan_renewal(tenancy)

    def plan_renewal(self, tenancy: Tenancy) -> None:
        """Renew in time."""
        attempt = tenancy.proposer.attempt
        sent = attempt.sent_ns if attempt is not None else self.now
        self.set_alarm(tenancy.resource, renew_at(self.timing, sent, self.timing.safe_ns, None, self.rng.random()))

    def set_alarm(self, resource: str, due_ns: int) -> None:
        """Make a renewal due."""
        self.schedule.set(resource, due_ns)
        self.arm()

    def arm(self) -> None:
        """Wake up when the next renewal is due."""
        self.alarm += 1
        due = self.schedule.next_due()
        if due is not None:
            self.after(max(0, due - self.now), self.on_alarm, self.alarm)

    def on_alarm(self, alarm: int) -> None:
        """Renew all that is due, in one request."""
        if alarm != self.alarm:
            return
        due = [self.tenancies[name] for name in self.schedule.pop_due(self.now) if name in self.tenancies]
        items: list[Item] = []
        purposes: list[tuple[Tenancy, int]] = []
        for tenancy in due:
            for step in self.renewal(tenancy):
                assert isinstance(step, Send)
                items.append(step.item)
                purposes.append((tenancy, step.attempt))
                assert tenancy.belief is not None
                patience = attempt_timeout(self.timing.round_trip_ns, tenancy.belief.over_ns, self.now)
                self.after(patience, self.on_timeout, tenancy, step.attempt)
        if items:
            self.transmit(tuple(items), purposes, list(self.world.plan.nodes))
        self.arm()

    def renewal(self, tenancy: Tenancy) -> list[Step]:
        """Return how this one is renewed: now and then for a shorter time, which must not shorten it."""
        ttl = self.timing.ttl_ns // (2 if self.rng.random() < 0.1 else 1)
        return tenancy.proposer.renew(ttl, self.now)

    def on_deadline(self, tenancy: Tenancy) -> None:
        """Stop, unless it was renewed: for good, or within its grace until it may come back."""
        if self.tenancies.get(tenancy.resource) is not tenancy or tenancy.is_valid(self.now):
            return
        if tenancy.may_come_back(self.now):
            assert tenancy.belief is not None
            tenancy.step(Tick(), self.now)
            self.after(tenancy.belief.over_ns - self.now, self.on_deadline, tenancy)
        else:
            self.world.note(self.name, "deadline", tenancy.resource, tenancy.owner)
            self.give_back(tenancy, Loss.EXPIRED)

    def write(self, tenancy: Tenancy) -> None:
        """Look at the deadline, write, and go on: the write may arrive much later."""
        if self.tenancies.get(tenancy.resource) is not tenancy or not tenancy.is_valid(self.now):
            return
        self.world.write(tenancy.resource, tenancy.proposer.token, tenancy.owner)
        self.after(self.rng.randrange(1, self.timing.ttl_ns), self.write, tenancy)

    def die(self) -> None:
        """Die; nobody believes anything any more."""
        super().die()
        for resource in self.tenancies:
            self.world.span(self.name, f"holds {resource}", begins=False)
        self.tenancies = {}
