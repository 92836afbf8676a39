"""Makes a failing plan shorter, for as long as it still breaks the same invariant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.sim.checks import Violation
from lessor.sim.world import World

if TYPE_CHECKING:
    from lessor.sim.plan import Plan
    from lessor.sim.world import Cast


def violation(plan: Plan, cast: Cast | None = None) -> Violation | None:
    """Return what a plan breaks, if anything."""
    try:
        World(plan, cast).run()
    except Violation as broken:
        return broken
    return None


def shrink(plan: Plan, cast: Cast | None = None) -> Plan:
    """Return a shorter plan that breaks the same invariant: fewer faults, clients, resources and mishaps."""
    broken = violation(plan, cast)
    if broken is None:
        return plan
    shorter: Plan | None = plan
    while shorter is not None:
        plan = shorter
        shorter = next((other for other in _simpler(plan) if _breaks(other, cast, broken.invariant)), None)
    return plan


def _breaks(plan: Plan, cast: Cast | None, invariant: str) -> bool:
    found = violation(plan, cast)
    return found is not None and found.invariant == invariant


def _simpler(plan: Plan) -> list[Plan]:
    """Return plans that are simpler by one thing, the simplest ones first."""
    faults = plan.faults
    half = len(faults) // 2
    simpler = [plan._replace(faults=part) for part in (faults[:half], faults[half:]) if half]
    simpler += [plan._replace(faults=faults[:i] + faults[i + 1 :]) for i in range(len(faults))]
    for number in range(len(plan.clients) - 1, 0, -1):
        gone = plan.clients[number]
        if not any(gone in fault.who for fault in faults):
            simpler.append(plan._replace(clients=plan.clients[:number] + plan.clients[number + 1 :]))
    if len(plan.resources) > 1:
        simpler.append(plan._replace(resources=plan.resources[:1]))
    simpler += [plan._replace(loss=0.0), plan._replace(copies=0.0), plan._replace(straying=0.0)]
    simpler += [plan._replace(sessions=False), plan._replace(ahead=()), plan._replace(whims=False)]
    simpler += [
        plan._replace(echoes=0.0),
        plan._replace(grows=False),
        plan._replace(fickle=False),
        plan._replace(new_rates=False),
    ]
    simpler.append(plan._replace(rates=tuple((who, 1.0) for who, _ in plan.rates)))
    return [other for other in simpler if other != plan]
