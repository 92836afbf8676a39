"""What nodes and clients have in common: a clock, a life that may end, and moments at which they stand still."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.sim.clock import SimClock
    from lessor.sim.world import World


class Process:
    """Something that runs, stands still, dies and begins again."""

    def __init__(self, world: World, name: str, clock: SimClock, wall_us: int) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.rng = Random(f"{world.plan.seed}/{name}")
        self.up = True
        self.life = 0
        """How often it has begun; what an earlier life had planned is void."""
        self.still_until = 0
        self._wall_us = wall_us

    @property
    def now(self) -> int:
        """What its clock shows."""
        return self.clock.at(self.world.now)

    @property
    def wall_us(self) -> int:
        """What its wall clock shows, which may be anything."""
        return self._wall_us + self.world.now // 1000

    def set_wall(self, by_us: int) -> None:
        """Let its wall clock show so much more, or less."""
        self._wall_us += by_us

    def after(self, span_ns: int, action: Callable[..., None], *details: object) -> None:
        """Do something later, by its own clock."""
        self.world.at(self.clock.when(self.now + span_ns), self.wake, self.life, action, details)

    def wake(self, life: int, action: Callable[..., None], details: tuple[object, ...]) -> None:
        """Do what was planned, unless that life is over; later, while it stands still."""
        if life != self.life or not self.up:
            return
        if self.world.now < self.still_until:
            self.world.at(self.still_until, self.wake, life, action, details)
            return
        action(*details)

    def deliver(self, source: str, message: object) -> None:
        """Take a message; one that comes while it stands still waits."""
        if self.up:
            self.wake(self.life, self.receive, (source, message))

    def receive(self, source: str, message: object) -> None:
        """Deal with a message."""
        raise NotImplementedError

    def stop(self, for_ns: int) -> None:
        """Stand still for a while."""
        self.still_until = max(self.still_until, self.world.now + for_ns)

    def die(self) -> None:
        """End this life."""
        self.up = False
        self.life += 1
        self.world.span(self.name, "silence", begins=False)
