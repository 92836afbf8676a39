"""One operation, or one question, on its way to its answer: what it sends, and what it makes of the verdicts.

The rules are the proposer's; a task ties a proposer to a call, and says in the words of the store contract what came
of it. None of them waits or sends: the engine does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lessor.core.clock import MILLISECOND
from lessor.core.ops import Granted, Held, Lost, NotHeld, Released, Renewed, Unknown
from lessor.core.paxos.ballots import majority
from lessor.core.paxos.merging import agreed, in_doubt, in_line, longest
from lessor.core.paxos.messages import Dropped, End, HeldBy, Look, Nothing, Refused, Scan, Seen
from lessor.core.paxos.steps import BackOff, Blocked, Ended, Freed, Kept, NoAnswer, Refusal, Send, Won
from lessor.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Acquire, Outcome, Release, Renew, Revoke
    from lessor.core.paxos.messages import Item, Verdict
    from lessor.core.paxos.proposer import Proposer
    from lessor.core.paxos.steps import Step
    from lessor.stores.paxos.calls import Call

SHORTEST_PAUSE_NS: Final = 2 * MILLISECOND
LONGEST_PAUSE_NS: Final = 64 * MILLISECOND


class Hearing(Protocol):
    """What hears the nodes."""

    def __call__(
        self, who: str, number: int, verdict: Verdict, now: int, wall_us: int, *, incarnation: int
    ) -> list[Step]:
        """Take in what a node answered to the attempt of that number, and say what follows."""
        ...


class Task:
    """What all of them share."""

    __slots__ = ("done", "due_ns", "number", "on_verdict", "outcome", "resource", "sharing", "tries")

    def __init__(self, resource: str, on_verdict: Hearing) -> None:
        self.resource = resource
        """What it is about: such tasks of one call go one after the other. Nothing has to wait for one without a name."""
        self.on_verdict = on_verdict
        self.outcome: object = None
        self.done = False
        self.number = 0
        """Which attempt of it is under way; 0: none, it waits until ``due_ns``."""
        self.due_ns = 0
        """When to look at it again though nothing came."""
        self.tries = 0
        """How often nobody could win."""
        self.sharing: Sequence[tuple[Call, Task]] = ()
        """Who asked the same before, and gets the same answer."""

    @property
    def heeds_all(self) -> bool:
        """Whether an answer may matter though it comes when all is settled."""
        return False

    def start(self, now: int, wall_us: int) -> list[Step]:
        """Begin, or begin again."""
        raise NotImplementedError

    def answers(self) -> int:
        """Count the nodes that have answered the attempt under way."""
        raise NotImplementedError

    def on_timeout(self, now: int, *, last: bool = True) -> list[Step]:
        """Say what follows when nobody else answers; ``last``: and when nothing more is waited for."""
        raise NotImplementedError

    def conclude(self, step: Step, error: Callable[[], StoreUnavailable]) -> Outcome | None:
        """Return the outcome that a step means; None: it goes on."""
        if isinstance(step, NoAnswer):
            return Unknown(error())
        return None

    def finish(self, outcome: object) -> None:
        """End it."""
        self.outcome = outcome
        self.done = True


class LeaseTask(Task):
    """An operation on a lease, decided by its proposer."""

    __slots__ = ("op", "parent", "proposer")

    def __init__(self, proposer: Proposer, op: Acquire | Renew | Release, parent: Proposer | None = None) -> None:
        super().__init__(proposer.op.resource, proposer.on_verdict)
        self.proposer = proposer
        self.op = op
        self.parent = parent
        """What it rides on, if it is to be acquired and to ride."""

    @property
    def heeds_all(self) -> bool:
        """Whether an answer may matter late, because it tells which node has the lease, or confirms a number."""
        proposer = self.proposer
        return proposer.session is not None or proposer.rides is not None or proposer.rise is not None

    def answers(self) -> int:
        """Count the nodes that have answered."""
        attempt = self.proposer.attempt
        return 0 if attempt is None else len(attempt.answers)

    def on_timeout(self, now: int, *, last: bool = True) -> list[Step]:
        """Say what follows when nobody else answers."""
        return self.proposer.on_timeout(self.number, now, last=last)

    def conclude(self, step: Step, error: Callable[[], StoreUnavailable]) -> Outcome | None:
        """Return the outcome that a step means; None: it goes on."""
        if isinstance(step, Ended):
            return Lost(step.reason, step.remaining_ns)
        if isinstance(step, Refusal):
            return Unknown(ConfigError(step.why))
        return super().conclude(step, error)


class AcquireTask(LeaseTask):
    """Get it."""

    __slots__ = ()

    def start(self, now: int, wall_us: int) -> list[Step]:
        """Ask; after a split vote, prepare first."""
        if self.parent is not None and self.proposer.rides is None:
            self.proposer.ride(self.parent)
        if self.tries and not self.proposer.token:
            return self.proposer.again(now, wall_us)
        return self.proposer.acquire(now, wall_us)

    def conclude(self, step: Step, error: Callable[[], StoreUnavailable]) -> Outcome | None:
        """Return the outcome that a step means."""
        if isinstance(step, Won):
            return Granted(step.token, step.ttl_ns, step.state)
        if isinstance(step, Kept):
            return Granted(self.proposer.token, step.ttl_ns, self.proposer.state)
        if isinstance(step, Blocked):
            return Held(step.by, step.token, step.remaining_ns, step.position, step.refused, step.closed)
        return super().conclude(step, error)


class RenewTask(LeaseTask):
    """Keep it."""

    __slots__ = ()
    op: Renew

    def start(self, now: int, wall_us: int) -> list[Step]:  # noqa: ARG002 - a renewal needs no new number
        """Ask."""
        return self.proposer.renew(self.op.ttl_ns, now)

    def conclude(self, step: Step, error: Callable[[], StoreUnavailable]) -> Outcome | None:
        """Return the outcome that a step means."""
        return Renewed(step.ttl_ns, step.ended) if isinstance(step, Kept) else super().conclude(step, error)


class ReleaseTask(LeaseTask):
    """Give it back, or up."""

    __slots__ = ()
    op: Release

    def start(self, now: int, wall_us: int) -> list[Step]:  # noqa: ARG002 - nor does a release
        """Say so."""
        return self.proposer.release(self.op, now)

    def conclude(self, step: Step, error: Callable[[], StoreUnavailable]) -> Outcome | None:
        """Return the outcome that a step means."""
        if isinstance(step, Freed):
            return NotHeld() if step.free_in_ns is None else Released(step.free_in_ns)
        return super().conclude(step, error)


class CountingTask(Task):
    """A question whose answers are only counted."""

    __slots__ = ("_asked", "_item", "_majority", "acceptors", "said")

    def __init__(self, item: Item, acceptors: int, resource: str = "") -> None:
        super().__init__(resource, self.count)
        self._asked = 0
        self._item = item
        self._majority = majority(acceptors)
        self.acceptors = acceptors
        self.said: dict[str, Verdict] = {}

    def start(self, now: int, wall_us: int) -> list[Step]:  # noqa: ARG002
        """Ask."""
        self.said.clear()
        self._asked += 1
        return [Send(self._asked, self._item)]

    def count(self, who: str, number: int, verdict: Verdict, now: int, wall_us: int, *, incarnation: int) -> list[Step]:
        """Count."""
        del now, wall_us, incarnation
        if number == self._asked and not self.done and who not in self.said:
            self.said[who] = verdict
            self.decide()
        return []

    def answers(self) -> int:
        """Count the nodes that have answered."""
        return len(self.said)

    def decide(self) -> None:
        """Finish, if that is enough."""
        raise NotImplementedError

    def refused(self) -> bool:
        """Finish, where so many refuse it that the others are no majority."""
        whys = [verdict.why for verdict in self.said.values() if isinstance(verdict, Refused)]
        if len(whys) > self.acceptors - self._majority:
            self.finish(Unknown(ConfigError(whys[-1])))
        return self.done


class RevokeTask(CountingTask):
    """End somebody's lease. It has ended when a majority won't have it renewed."""

    __slots__ = ("_op",)

    def __init__(self, op: Revoke, acceptors: int) -> None:
        super().__init__(End(op), acceptors, op.resource)
        self._op = op

    def decide(self) -> None:
        """Finish, if that is enough."""
        ended = [verdict.free_in_ns for verdict in self.said.values() if isinstance(verdict, Dropped)]
        closed = [verdict for verdict in self.said.values() if isinstance(verdict, HeldBy)]
        if len(ended) >= self._majority:
            self.finish(Released(max(ended)))
        elif len(closed) >= self._majority:
            last = longest(closed)
            self.finish(Held(last.by, last.token, last.remaining_ns, 0, closed=last.closed))
        elif sum(isinstance(verdict, Nothing) for verdict in self.said.values()) >= self._majority:
            self.finish(Released(max(ended)) if ended and self._op.force else NotHeld())
        else:
            self.refused()

    def on_timeout(self, now: int, *, last: bool = True) -> list[Step]:  # noqa: ARG002
        """Ask again: whether it has ended isn't clear."""
        return [BackOff()] if self.answers() >= self._majority else [NoAnswer()]


class LookTask(CountingTask):
    """See who holds something. What only a minority shows, and no more may show, nobody holds."""

    __slots__ = ()

    def __init__(self, item: Look | Scan, acceptors: int) -> None:
        super().__init__(item, acceptors)

    def count(self, who: str, number: int, verdict: Verdict, now: int, wall_us: int, *, incarnation: int) -> list[Step]:
        """Count; ask again where a reply had no room for it."""
        if isinstance(verdict, Seen) and verdict.more and not verdict.records and number == self._asked:
            return [BackOff()]
        return super().count(who, number, verdict, now, wall_us, incarnation=incarnation)

    def views(self) -> list[Seen]:
        """Return what each node shows."""
        return [verdict for verdict in self.said.values() if isinstance(verdict, Seen)]

    def decide(self) -> None:
        """Finish, if that is enough."""
        if self.refused():
            return
        seen = self.views()
        records, queues = [view.records for view in seen], [view.queue for view in seen]
        if len(seen) >= self._majority and not in_doubt(records, self.acceptors, queues):
            self.finish(self.views())

    def on_timeout(self, now: int, *, last: bool = True) -> list[Step]:  # noqa: ARG002
        """Make do with a majority."""
        if self.answers() < self._majority:
            return [NoAnswer()]
        self.finish(self.views())
        return []

    def records(self) -> list[Record]:
        """Return what a majority shows."""
        return agreed([view.records for view in self.views()], self.acceptors)

    def queue(self) -> list[Contender]:
        """Return who waits by the word of a majority."""
        return in_line([view.queue for view in self.views()], self.acceptors)
