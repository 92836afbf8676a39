"""How much of a long proof a run does: ``make test`` a twentieth, ``make proof`` all of it (``LEASEHOLD_SCALE=1``)."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("LEASEHOLD_SCALE", "0.05"))


def scaled(full: int) -> int:
    """Return how many of so many this run does; at least one."""
    return max(1, round(full * SCALE))
