"""A network that delays, loses, copies, reorders and separates."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from lessor.core.paxos.messages import Request

if TYPE_CHECKING:
    from lessor.sim.plan import Plan
    from lessor.sim.world import World

FLOOD: Final = 30_000
"""Messages in one world that nobody needs: somebody asks again at each answer."""


class Network:
    """Carries messages between processes by name."""

    def __init__(self, world: World, plan: Plan, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.delay_ns = plan.delay_ns
        self.stray_ns = 3 * plan.ttl_ns
        self.loss = plan.loss
        self.copies = plan.copies
        self.straying = plan.straying
        self.echoes = plan.echoes
        self._echoing = Random(f"{plan.seed}/echoes")
        self.groups: list[frozenset[str]] = []
        """Each is cut off from all who are not in it."""
        self.deaf: list[frozenset[str]] = []
        """Each hears nobody who is not in it, and is heard."""

    def calm(self) -> None:
        """Lose nothing any more."""
        self.loss = self.copies = self.straying = self.echoes = 0.0
        self.groups.clear()
        self.deaf.clear()

    def send(self, source: str, target: str, message: object) -> None:
        """Send a message, which may arrive once, twice or never."""
        world, rng = self.world, self.rng
        world.tally.messages += 1
        if world.tally.messages > FLOOD:
            world.checks.fail("L1", f"{FLOOD:,} messages, the last one from {source} to {target}: {message}")
        if self.is_cut(source, target) or (self.loss and rng.random() < self.loss):
            world.tally.lost += 1
            world.note(source, "lost", target, message)
            return
        self._carry(source, target, message)
        if self.copies and rng.random() < self.copies:
            self._carry(source, target, message)
        if self.echoes and isinstance(message, Request) and self._echoing.random() < self.echoes:
            self._carry(source, target, message, int(self._echoing.random() ** 2 * self.stray_ns))

    def _carry(self, source: str, target: str, message: object, delay_ns: int | None = None) -> None:
        world = self.world
        arrival = world.now + (self._delay() if delay_ns is None else delay_ns)
        if world.timeline is not None:
            world.timeline.messages.append((source, target, world.now, arrival))
        world.at(arrival, self.arrive, source, target, message)

    def _delay(self) -> int:
        rng = self.rng
        if self.straying and rng.random() < self.straying:
            return int(rng.random() * self.stray_ns)
        return int(self.delay_ns * (0.1 + rng.random()))

    def is_cut(self, source: str, target: str) -> bool:
        """Whether a partition lies between them."""
        if self.deaf and any(target in group and source not in group for group in self.deaf):
            return True
        return any((source in group) != (target in group) for group in self.groups)

    def arrive(self, source: str, target: str, message: object) -> None:
        """Hand a message over, unless its target can't be reached now."""
        if not self.is_cut(source, target):
            self.world.processes[target].deliver(source, message)
