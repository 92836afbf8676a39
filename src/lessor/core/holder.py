"""The holder's state machine: what this process may believe about its lease.

::

            renewal failed or late, or will not come          the deadline
    HELD ────────────────────────────────────────▶ JEOPARDY ───────────────▶ LOST(reason)
     ▲                 renewed                        │                         ▲
     └────────────────────────────────────────────────┘                         │
     └──────────────── a definite "not yours", or the end of it here ───────────┘

With a grace, the deadline stops the holder and does not lose it yet: in JEOPARDY, and *stopped*, it may not go on, but
a renewal until the end of the grace brings it back to HELD.

It can't stop work that ignores it: guard the writes with the token. ``step`` is pure; ``now`` is handed in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from lessor.core.ops import Loss


class State(StrEnum):
    """What the holder may believe."""

    HELD = "held"
    JEOPARDY = "jeopardy"
    """Still safe until the deadline, but the last renewal did not succeed, or no further one will come.

    With a grace, also after the deadline: stopped, until a renewal brings it back or the grace is over."""
    LOST = "lost"


class Signal(StrEnum):
    """What the holder's owner should hear."""

    JEOPARDY = "jeopardy"
    SAFE = "safe"
    LOST = "lost"


# Python 3.11 looks a member up by its name each time that it is mentioned, which takes longer than what is decided here.
_HELD, _JEOPARDY, _LOST = State
_IN_JEOPARDY, _IS_SAFE, _IS_LOST = Signal


class Holder(NamedTuple):
    """A belief, and how long it may last."""

    state: State
    deadline_ns: int
    loss: Loss | None = None
    ending: Loss | None = None
    """Why no further renewal will come; the reason of the loss once the deadline is there."""
    grace_ns: int = 0
    """For how long after the deadline a renewal may still bring it back."""
    stopped: bool = False
    """The deadline is past, and the grace isn't."""

    @property
    def over_ns(self) -> int:
        """When it is lost for good, unless a renewal succeeds before."""
        return self.deadline_ns + (self.grace_ns if self.ending is None else 0)


class Confirmed(NamedTuple):
    """The store said yes to a request sent before ``deadline_ns`` began to count."""

    deadline_ns: int


class Unconfirmed(NamedTuple):
    """A renewal failed, or is late, or gave no answer."""


class Ending(NamedTuple):
    """No further renewal: the lease lasts until what was promised, and no longer."""

    reason: Loss
    deadline_ns: int | None = None
    """The promise, where the store repeated it; it never lengthens what is believed already."""


class Over(NamedTuple):
    """A definite end: not ours any more, or not wanted any more."""

    reason: Loss


class Tick(NamedTuple):
    """Time went by."""


HolderEvent: TypeAlias = Confirmed | Unconfirmed | Ending | Over | Tick


def granted(deadline_ns: int, grace_ns: int = 0) -> Holder:
    """Start to believe."""
    return Holder(_HELD, deadline_ns, None, None, grace_ns)


def step(holder: Holder, event: HolderEvent, now: int) -> tuple[Holder, Signal | None]:
    """Return what to believe after the event, and what the owner should hear of it."""
    if holder.state is _LOST:
        return holder, None
    if isinstance(event, Over):
        return Holder(_LOST, holder.deadline_ns, event.reason), _IS_LOST
    if now >= holder.deadline_ns:
        return _after_deadline(holder, event, now)
    if isinstance(event, Confirmed):
        # An answer overtaken by a later one must not shorten what the later one promised.
        safer = granted(max(holder.deadline_ns, event.deadline_ns), holder.grace_ns)
        return safer, _IS_SAFE if holder.state is _JEOPARDY else None
    if isinstance(event, Tick):
        return holder, None
    deadline, ending = holder.deadline_ns, holder.ending
    if isinstance(event, Ending):
        ending = event.reason
        if event.deadline_ns is not None:
            deadline = min(deadline, event.deadline_ns)
    news = holder.state is _HELD or ending != holder.ending
    after = holder._replace(state=_JEOPARDY, deadline_ns=deadline, ending=ending)
    return after, _IN_JEOPARDY if news else None


def _after_deadline(holder: Holder, event: HolderEvent, now: int) -> tuple[Holder, Signal | None]:
    """Stop. Without a grace, also a yes that comes this late is no use: others may have relied on our having stopped.

    With one, the store says yes only if nobody has had the resource in between.
    """
    ending = event.reason if isinstance(event, Ending) else holder.ending
    if ending is not None or now >= holder.over_ns:
        return Holder(_LOST, holder.deadline_ns, ending or Loss.EXPIRED), _IS_LOST
    if isinstance(event, Confirmed) and event.deadline_ns > now:
        return granted(event.deadline_ns, holder.grace_ns), _IS_SAFE if holder.state is _JEOPARDY else None
    stopped = holder._replace(state=_JEOPARDY, stopped=True)
    return stopped, None if holder.stopped else _IN_JEOPARDY
