"""What goes wrong with a user's program: how much of it, and then, drawn from a seed, what exactly.

The drawn faults are data, so those that don't matter can be left out.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from lessor.core.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

STORE = "store"
"""What the store is called in a timeline."""


class Faults(NamedTuple):
    """How much goes wrong in a run. Numbers of pauses, kills, outages and cuts are averages for the whole run."""

    pauses: float = 2.0
    """A process stands still, and then goes on as if nothing had been: where it waits, or right before it sends."""
    kills: float = 0.5
    """A process dies without a word, and is started again after a while."""
    outages: float = 0.5
    """The store can't be reached by anybody."""
    cuts: float = 0.5
    """One process can't reach the store."""
    longest: float = 40.0
    """Seconds that such a fault lasts at most; half of them last for less than a quarter of it."""
    delay: float = 0.005
    """Seconds that a message takes, about."""
    loss: float = 0.01
    """The part of the messages to and from the store that get lost."""
    straying: float = 0.01
    """The part of all messages that arrive late, by up to ``late`` seconds."""
    late: float = 2.0
    """Seconds by which a message strays at most."""
    drift: float = 0.004
    """By what part clocks are fast or slow."""


NONE = Faults(0, 0, 0, 0, loss=0, straying=0, drift=0)
"""Nothing goes wrong; messages still take their time."""


class Trouble(StrEnum):
    """What lasts for a while."""

    PAUSE = "pause"
    """A process stands still."""
    KILL = "kill"
    """A process is dead."""
    OUTAGE = "outage"
    """Nobody reaches the store."""
    CUT = "cut"
    """One process doesn't."""


class Mishap(NamedTuple):
    """One thing that goes wrong."""

    at_ns: int
    """When, in true time from the start."""
    trouble: Trouble
    """What it is."""
    who: str
    """The process, or ``store``."""
    for_ns: int
    """How long it lasts."""
    aimed: bool = False
    """A pause that waits for the process to be about to send something."""


def draw(rng: Random, faults: Faults, processes: Sequence[str], span_ns: int) -> tuple[Mishap, ...]:
    """Draw what goes wrong in a run of that length."""
    mishaps = []
    for trouble, mean in (
        (Trouble.PAUSE, faults.pauses),
        (Trouble.KILL, faults.kills),
        (Trouble.OUTAGE, faults.outages),
        (Trouble.CUT, faults.cuts),
    ):
        for _ in range(_number(rng, mean)):
            who = STORE if trouble is Trouble.OUTAGE else rng.choice(processes)
            lasts = faults.longest * rng.random() ** 2
            aimed = trouble is Trouble.PAUSE and rng.random() < 0.5
            mishaps.append(Mishap(rng.randrange(span_ns), trouble, who, int(lasts * SECOND), aimed))
    return tuple(sorted(mishaps))


def _number(rng: Random, mean: float) -> int:
    """Draw how many: from none to twice as many as on average."""
    return int(rng.random() * 2 * mean + rng.random())
