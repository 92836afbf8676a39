"""Chance finds these wrong versions of single rules. The rest has schedules made by hand, in test_directed."""

from __future__ import annotations

import pytest

from lessor.sim.plan import draw
from lessor.sim.shrink import shrink, violation
from tests.sim.caught import BY_HAND, WORLDS
from tests.sim.mutants import CASTS

MORE = 1000


def test_every_mutant_is_caught_by_chance_or_by_a_schedule() -> None:
    assert WORLDS.keys() | BY_HAND == CASTS.keys()
    assert not WORLDS.keys() & BY_HAND


@pytest.mark.parametrize("name", WORLDS)
def test_a_mutant_is_caught(name: str) -> None:
    """By one of the worlds that did so before or, where a change has made others of these, by one of the first ones."""
    if not any(violation(draw(seed), CASTS[name]) for seed in (*WORLDS[name], *range(MORE))):
        pytest.fail(f"no world of {WORLDS[name]} does any more; make mutants ARGS='\"{name}\"' looks for others")


def test_the_real_protocol_gets_through_all_of_these_worlds() -> None:
    """Through the first hundred it goes in test_worlds."""
    seeds = {seed for seeds in WORLDS.values() for seed in seeds if seed >= 100}
    assert [seed for seed in sorted(seeds) if violation(draw(seed))] == []


def test_a_failing_world_is_made_simpler() -> None:
    cast = CASTS["half silence"]
    plan = next(plan for plan in map(draw, range(400)) if violation(plan, cast) and len(plan.faults) > 1)
    broken = violation(plan, cast)
    assert broken is not None
    simpler = shrink(plan, cast)
    again = violation(simpler, cast)
    assert again is not None
    assert again.invariant == broken.invariant
    assert len(simpler.faults) == 1 < len(plan.faults)
    for without in (simpler._replace(loss=0.0), simpler._replace(copies=0.0), simpler._replace(straying=0.0)):
        found = violation(without, cast)
        assert without == simpler or found is None or found.invariant != broken.invariant, "more than what is needed"


def test_a_world_that_does_not_fail_is_left_as_it_is() -> None:
    assert shrink(draw(1)) == draw(1)
