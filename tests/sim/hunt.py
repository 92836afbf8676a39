"""Looks for worlds in which chance catches each mutant, for the table in `tests/sim/caught.py`.

    make mutants                           all of them
    make mutants ARGS='"no tombstone"'     only these
    make mutants ARGS='--seeds 20000'      in more worlds

It takes minutes; ``make test`` lives through the worlds in the table alone.
"""

from __future__ import annotations

import argparse
import sys

from lessor.sim.plan import draw
from lessor.sim.shrink import violation
from tests.sim.mutants import CASTS

ENOUGH = 3
"""Worlds to find for each."""


def hunt(name: str, first: int, seeds: int) -> tuple[int, ...]:
    """Return some seeds whose worlds catch it."""
    caught: list[int] = []
    for seed in range(first, first + seeds):
        if violation(draw(seed), CASTS[name]) is not None:
            caught.append(seed)
            if len(caught) == ENOUGH:
                break
    return tuple(caught)


def main() -> None:
    """Print a line of the table for each."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("names", nargs="*", metavar="MUTANT")
    parser.add_argument("--seeds", type=int, default=1500, help="worlds to live through at most")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    args = parser.parse_args()
    for name in args.names or CASTS:
        sys.stdout.write(f'    "{name}": {hunt(name, args.first, args.seeds)},\n')
        sys.stdout.flush()


if __name__ == "__main__":
    main()
