"""The holder's state machine: what this process may believe about its lease.

::

            renewal failed or late, or will not come          the deadline
    HELD ────────────────────────────────────────▶ JEOPARDY ───────────────▶ LOST(reason)
     ▲                 renewed                        │                         ▲
     └────────────────────────────────────────────────┘                         │
     └──────────────── a definite "not yours", or the end of it here ───────────┘

It can't stop work that ignores it: guard the writes with the token. ``step`` is pure; ``now`` is handed in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from leasehold.core.ops import Loss


class State(StrEnum):
    """What the holder may believe."""

    HELD = "held"
    JEOPARDY = "jeopardy"
    """Still safe until the deadline, but the last renewal did not succeed, or no further one will come."""
    LOST = "lost"


class Signal(StrEnum):
    """What the holder's owner should hear."""

    JEOPARDY = "jeopardy"
    SAFE = "safe"
    LOST = "lost"


class Holder(NamedTuple):
    """A belief, and how long it may last."""

    state: State
    deadline_ns: int
    loss: Loss | None = None
    ending: Loss | None = None
    """Why no further renewal will come; the reason of the loss once the deadline is there."""


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


def granted(deadline_ns: int) -> Holder:
    """Start to believe."""
    return Holder(State.HELD, deadline_ns)


def step(holder: Holder, event: HolderEvent, now: int) -> tuple[Holder, Signal | None]:
    """Return what to believe after the event, and what the owner should hear of it."""
    if holder.state is State.LOST:
        return holder, None
    if isinstance(event, Over):
        return Holder(State.LOST, holder.deadline_ns, event.reason), Signal.LOST
    if now >= holder.deadline_ns:
        # Also a yes that comes this late is no use: others may have relied on our having stopped.
        return Holder(State.LOST, holder.deadline_ns, holder.ending or Loss.EXPIRED), Signal.LOST
    if isinstance(event, Confirmed):
        # An answer overtaken by a later one must not shorten what the later one promised.
        safer = Holder(State.HELD, max(holder.deadline_ns, event.deadline_ns))
        return safer, Signal.SAFE if holder.state is State.JEOPARDY else None
    if isinstance(event, Tick):
        return holder, None
    deadline, ending = holder.deadline_ns, holder.ending
    if isinstance(event, Ending):
        ending = event.reason
        if event.deadline_ns is not None:
            deadline = min(deadline, event.deadline_ns)
    news = holder.state is State.HELD or ending != holder.ending
    return Holder(State.JEOPARDY, deadline, None, ending), Signal.JEOPARDY if news else None
