"""Three acceptors and some proposers, with a network that does what a test says, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Release
from lessor.core.paxos.acceptor import Acceptor, Config
from lessor.core.paxos.ballots import Ballots
from lessor.core.paxos.messages import Request
from lessor.core.paxos.proposer import Proposer
from lessor.core.paxos.starting import NOTHING_PROMISED
from lessor.core.paxos.steps import Send

if TYPE_CHECKING:
    from lessor.core.paxos.messages import Item, Verdict
    from lessor.core.paxos.steps import Step

TTL = 10 * SECOND
DRIFT = 0.005


def asking(owner: str, resource: str = "job", *, queue: bool = False, ttl_ns: int = TTL, **more: object) -> Acquire:
    return Acquire(resource, owner, f"holder-{owner}", ttl_ns, queue=queue, **more)  # type: ignore[arg-type]


def acceptor(name: str = "a", **settings: int) -> Acceptor:
    return Acceptor(Config(name, **settings), NOTHING_PROMISED, 1)


def ask(acceptor: Acceptor, item: Item, now: int, wall_us: int = 0) -> Verdict:
    """Ask one acceptor, whose disk is quick."""
    answer = acceptor.handle(Request(1, (item,)), now, wall_us)
    if answer.persist is not None:
        acceptor.persisted(answer.persist)
    assert answer.reply is not None
    return answer.reply.verdicts[0]


class Cluster:
    """Acceptors that can be cut off. Time is one for all, and moves by hand."""

    def __init__(self, acceptors: int = 3) -> None:
        self.acceptors = {name: acceptor(name) for name in "abcde"[:acceptors]}
        self.reachable = set(self.acceptors)
        self.now = SECOND
        self.ballots = Ballots(acceptors)
        self.replies_take_ns = 0

    @property
    def wall_us(self) -> int:
        return self.now // 1000

    def proposer(self, owner: str, **terms: object) -> Proposer:
        op = asking(owner, **terms)  # type: ignore[arg-type]
        return Proposer(op, acceptors=len(self.acceptors), drift=DRIFT, ballots=self.ballots)

    def drive(self, proposer: Proposer, steps: list[Step]) -> Step:
        """Send what is to be sent, until something else comes of it; then time out."""
        number, came = 0, None
        sending = list(steps)
        while sending:
            step = sending.pop(0)
            if not isinstance(step, Send):
                came = came or step
                continue
            if step.to is None and not step.aside:
                number = step.attempt
            sending += self._send(proposer, step)
        if came is not None:
            return came
        steps = proposer.on_timeout(number, self.now)
        assert steps, "nothing came of it"
        return self.drive(proposer, steps)

    def _send(self, proposer: Proposer, step: Send) -> list[Step]:
        answers = []
        for name, node in self.acceptors.items():
            if name in self.reachable and name not in step.but and step.to in {None, name}:
                answers.append((name, node.incarnation, ask(node, step.item, self.now, self.wall_us)))
        self.now += self.replies_take_ns
        found: list[Step] = []
        for name, incarnation, verdict in answers:
            decide = proposer.on_verdict
            found += decide(name, step.attempt, verdict, self.now, self.wall_us, incarnation=incarnation)
        return found

    def acquire(self, proposer: Proposer) -> Step:
        return self.drive(proposer, proposer.acquire(self.now, self.wall_us))

    def renew(self, proposer: Proposer, ttl_ns: int = TTL) -> Step:
        return self.drive(proposer, proposer.renew(ttl_ns, self.now))

    def release(self, proposer: Proposer, **more: object) -> Step:
        op = Release(proposer.op.resource, proposer.op.lease_id, **more)  # type: ignore[arg-type]
        return self.drive(proposer, proposer.release(op, self.now))
