"""How much of a long proof a run does: ``make test`` a fiftieth, ``make proof`` all of it (``LESSOR_SCALE=1``)."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("LESSOR_SCALE", "0.02"))


def scaled(full: int) -> int:
    """Return how many of so many this run does; at least one."""
    return max(1, round(full * SCALE))


CHAOS = float(os.environ.get("LESSOR_CHAOS", "1"))
"""How much of the long runs ``make chaos`` does."""


def chaotic(full: int) -> int:
    """Return how many of so many rounds a long run has; at least three, so that there is something to tell."""
    return max(3, round(full * CHAOS))
