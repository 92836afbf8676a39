"""One attempt to get a lease, from the first request to the answer that settles it.

Pure: the threads and tasks that wait ask ``after()`` what an outcome means and do what it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lessor.core.clock import MILLISECOND
from lessor.core.ops import RESERVATION_NS, WAITER_LIFE_NS, Granted, Held, Loss, Lost, Released, Unknown
from lessor.errors import ConfigError, LeaseHeld, LeaseLost, LessorError, QueueFull, StoreUnavailable

if TYPE_CHECKING:
    from lessor.core.ops import Acquire, Outcome
    from lessor.core.timing import Timing

REFRESH_NS = WAITER_LIFE_NS // 3
STAGGER_NS = 5 * MILLISECOND
"""How far apart waiters come when the holder's lease ends without a word."""
FIRST_RETRY_NS = 10 * MILLISECOND
LONGEST_RETRY_NS = 500 * MILLISECOND


class Take(NamedTuple):
    """It is ours until the deadline."""

    token: int
    deadline_ns: int
    state: str = ""
    """What the holder before has handed over."""
    astray: bool = False
    """Whether a copy of the request had no answer: it may still be on its way, and must not be granted again."""


class Sleep(NamedTuple):
    """Ask again then, or when called."""

    until_ns: int


class StartOver(NamedTuple):
    """This lease id is spent: give it back and ask with a fresh one."""


class GiveUp(NamedTuple):
    """Leave, and raise this."""

    error: LessorError


Decision: TypeAlias = Take | Sleep | StartOver | GiveUp


class Claim:
    """What has been tried so far, and how long to go on."""

    # Where it begins is said here, and not of each: most are settled by the first answer.
    failing_since_ns: int | None = None
    retry_ns = FIRST_RETRY_NS
    in_doubt = True
    """Whether something may be granted to us that nobody has been handed yet."""
    queued = False
    """Whether the store keeps something for us: a place in the queue, or a grant that came too late."""
    astray = False
    """Whether a request had no answer: it may still be on its way, whatever another copy of it was answered."""
    position = 0
    """How many were before us when we last asked."""
    generation = 0
    """The process that made it: how often it had forked. In a forked child it is the parent's."""

    def __init__(self, op: Acquire, timing: Timing, made_ns: int, wait_until_ns: int | None, patience_ns: int) -> None:
        self.op = op
        self.timing = timing
        self.made_ns = made_ns
        self.wait_until_ns = wait_until_ns
        self.patience_ns = patience_ns

    def sending(self) -> Acquire:
        """Return the request, which is about to be sent."""
        self.in_doubt = True
        return self.op

    def restart(self, lease_id: str) -> None:
        """Go on with another lease id."""
        self.op = self.op._replace(lease_id=lease_id)
        self.in_doubt = self.queued = self.astray = False

    def after(self, outcome: Outcome, sent_ns: int, now: int) -> Decision:
        """Say what follows from the answer to a request that was sent at ``sent_ns``."""
        if isinstance(outcome, Granted):
            deadline = sent_ns + self.timing.safe_time(outcome.ttl_ns)
            if now < deadline:
                return Take(outcome.token, deadline, outcome.state, self.astray)
            too_short = deadline <= sent_ns and self.op.parent is not None
            return self._too_short() if too_short else self._too_late(sent_ns, now)
        if isinstance(outcome, Held):
            self.in_doubt = False
            return self._held(outcome, now)
        if isinstance(outcome, Lost):
            self.in_doubt = False
            if self.op.parent is not None and outcome.reason is Loss.EXPIRED:
                return self._no_parent(str(outcome.reason))
            return StartOver()
        if isinstance(outcome, Unknown):
            return self._unknown(outcome.error, sent_ns, now)
        raise AssertionError(f"no answer to an acquire: {outcome}")

    def _held(self, held: Held, now: int) -> Decision:
        self.failing_since_ns = None
        self.retry_ns = FIRST_RETRY_NS
        self.queued = self.op.queue and not held.refused
        self.position = held.position
        until = self.wait_until_ns
        if not self.queued or (until is not None and now >= until):
            return GiveUp(held_error(self.op.resource, held))
        # The queue may have moved on since it told our place, so we come by the time that the holder's lease ends; a
        # little apart, or all would come at once. Behind a reservation, each in turn has its time.
        turn = now + max(0, held.remaining_ns)
        if held.by:
            turn += held.position * STAGGER_NS
        else:
            turn += (held.position - (held.remaining_ns > 0)) * RESERVATION_NS
        soon = min(turn, now + REFRESH_NS)
        return Sleep(soon if until is None else min(soon, until))

    def _no_parent(self, why: str) -> Decision:
        assert self.op.parent is not None
        name, token = self.op.parent
        return GiveUp(LeaseLost(name, token=token, reason=f"{why}, and nothing can stand under it"))

    def _too_short(self) -> Decision:
        """Deal with a grant that was of no use when the store made it: its parent is about to end."""
        self.queued = True  # it is granted, for all the store knows, and has to be given back
        return self._no_parent("about to end")

    def _too_late(self, sent_ns: int, now: int) -> Decision:
        """Deal with a grant whose answer took longer than the safe time: it is over before it began."""
        if self.failing_since_ns is None:
            self.failing_since_ns = sent_ns
        waited = self.wait_until_ns is not None and now >= self.wait_until_ns
        if waited or now - self.failing_since_ns >= self.patience_ns:
            self.queued = True  # it is granted, for all the store knows, and has to be given back
            return GiveUp(StoreUnavailable("the store", "its answers take longer than the lease would last"))
        return StartOver()

    def _unknown(self, error: LessorError, sent_ns: int, now: int) -> Decision:
        self.astray = True
        if self.failing_since_ns is None:
            self.failing_since_ns = sent_ns
        if isinstance(error, ConfigError) or now - self.failing_since_ns >= self.patience_ns:
            return GiveUp(error)
        pause, self.retry_ns = self.retry_ns, min(2 * self.retry_ns, LONGEST_RETRY_NS)
        return Sleep(now + pause)


def held_error(resource: str, held: Held) -> LeaseHeld:
    """Return the error for a resource that has another holder, or that is closed."""
    return (QueueFull if held.refused else LeaseHeld)(
        resource,
        holder=held.by,
        token=held.token,
        remaining=held.remaining_ns / 1e9,
        position=held.position,
        closed=held.closed and str(held.closed),
    )


def free_in(resource: str, outcome: Outcome) -> float | None:
    """Return in how many seconds a resource is free that was revoked; None where there was nothing to revoke.

    Raises the error of a store that gave no answer, and `LeaseHeld` where only force opens the resource.
    """
    if isinstance(outcome, Unknown):
        raise outcome.error
    if isinstance(outcome, Held):
        error = held_error(resource, outcome)
        error.args = (f"{error}; only a revocation by force opens it earlier",)
        raise error
    return outcome.free_in_ns / 1e9 if isinstance(outcome, Released) else None
