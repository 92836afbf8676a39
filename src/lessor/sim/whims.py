"""What a simulated client asks for besides a TTL: priorities, bounded queues, soft limits, grace, a successor."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from lessor.core.ops import Release

if TYPE_CHECKING:
    from lessor.core.ops import Acquire
    from lessor.sim.plan import Plan
    from lessor.sim.tenancy import Tenancy


class Whims:
    """One client's, drawn from a seed of their own: a world without them goes on as it would have."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._plan = plan
        self._others = [client for client in plan.clients if client != name]
        self._rng = Random(f"{plan.seed}/{name}/whims")
        self._fickle = Random(f"{plan.seed}/{name}/fickle")

    def terms(self, op: Acquire) -> Acquire:
        """Return the request with what this client asks for besides."""
        plan, rng = self._plan, self._rng
        if not plan.whims:
            return op
        return op._replace(
            priority=rng.choice((0, 0, 1)),
            queue_limit=rng.choice((0, 0, 1, 2)),
            soft_ns=rng.choice((0, plan.ttl_ns // 2)),
            recover=rng.random() < 0.3,
            grace_ns=0 if op.parent else rng.choice((0, 2 * plan.ttl_ns)),
        )

    def abandons_after_ns(self) -> int | None:
        """Return after how long an acquisition that begins is abandoned; None: it is not."""
        if not self._plan.fickle or self._fickle.random() < 0.7:
            return None
        return self._fickle.randrange(1, 3 * self._plan.delay_ns)

    def forgets(self) -> bool:
        """Whether an acquisition is abandoned by its lease id alone, as by a process that has nothing else of it."""
        return self._plan.fickle and self._fickle.random() < 0.5

    def puts_below(self) -> bool:
        """Whether what is wanted next stands under what is held, and not beside it."""
        return self._plan.whims and self._rng.random() < 0.5

    def repeats(self) -> bool:
        """Whether it is given back once more, later."""
        return self._plan.whims and self._rng.random() < 0.2

    def insists(self) -> bool:
        """Whether it is renewed though it was said to end."""
        return self._plan.whims and self._rng.random() < 0.5

    def pause_ns(self) -> int:
        """Return how long to wait before that."""
        return self._rng.randrange(1, self._plan.ttl_ns)

    def release(self, tenancy: Tenancy) -> Release:
        """Return how it is given back: now and then to somebody, with a word for it."""
        held = tenancy.belief is not None
        op = Release(tenancy.resource, tenancy.owner, abandon=not held)
        if not self._plan.whims or not held or not self._others or self._rng.random() < 0.5:
            return op
        heir = self._rng.choice(self._others)
        state = f"{tenancy.proposer.token}/{heir}"
        return op._replace(successor=heir, state=state, reserve_ns=self._plan.ttl_ns // 2)
