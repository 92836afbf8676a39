"""Which mutants chance catches, and in which worlds; `tests.sim.hunt` makes this table. The others take a schedule."""

from __future__ import annotations

WORLDS: dict[str, tuple[int, ...]] = {
    "anchored at receipt": (0, 1, 2),
    "activates dead attempts": (3, 18, 21),
    "no drift margin": (0, 1, 3),
    "replaces live leases": (0, 1, 2),
    "the owner is the process": (0, 1, 2),
    "counts messages": (0, 1, 6),
    "releases whoever has it": (0, 2, 4),
    "releases the renewed": (8, 12, 14),
    "takes equal numbers": (6, 16, 17),
    "reuses numbers": (9, 11, 16),
    "follows every floor": (1, 29, 35),
    "no floor": (1, 3, 5),
    "forgets without floor": (0, 5, 6),
    "reserves nothing": (2, 5, 6),
    "shortens on renewal": (1, 2, 3),
    "withdraws a failed renewal": (0, 1, 2),
    "does not close": (28, 29, 76),
    "a withdrawal does not close": (17, 29, 101),
    "a forced end keeps the promise": (0, 29, 101),
    "restarts a turn": (137, 194, 246),
    "no tombstone": (16, 81, 106),
    "half silence": (0, 1, 5),
    "silence by today's settings": (0, 5, 13),
    "silence by one clock": (122, 378, 902),
    "a span without the lock delay": (12, 22, 26),
    "forgets the extended span": (5, 13, 59),
    "keeps the shutdown file": (22, 46, 60),
    "seeds by its own settings": (170, 345, 403),
    "seeds with its floor alone": (1, 2, 7),
    "seeds by its own floor": (1, 2, 7),
    "counts any ack": (21, 67, 109),
    "no lock delay": (12, 22, 24),
    "believes the root for all": (0, 4, 69),
}
"""The first seeds that catch each of them, of all from 0 on: the first number says how soon chance does."""

BY_HAND = {
    "answers before it is written",
    "believes a minority",
    "counts after the bound",
    "counts fresh installs",
    "counts late words",
    "is led on",
    "keeps what rides under the revoked",
    "mends under a new number",
    "mends under its own number",
    "says it once",
    "says it too soon",
    "seeds before the silence",
    "takes whatever was left",
    "waits for the next renewal",
}
"""Those that it catches too seldom: they have schedules in `tests.sim.test_directed`."""
