"""Operations from an event loop: they go with the next call that the batcher makes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leasehold.runtime.batcher import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.core.ops import Op, Outcome
    from leasehold.runtime.engine import Engine


async def call(engine: Engine, op: Op) -> tuple[Outcome, int]:
    """Have the operation sent with the next batch; return the outcome, and the time before it was sent."""
    return (await call_each(engine, [op]))[0]


async def call_each(engine: Engine, ops: Sequence[Op]) -> Sequence[tuple[Outcome, int]]:
    """Have several sent together, in as few batches as the store takes them."""
    loop = asyncio.get_running_loop()
    jobs = [Job(op, loop.create_future(), loop) for op in ops]
    engine.batcher.submit(*jobs)
    try:
        return [await job.answer for job in jobs]
    except asyncio.CancelledError:
        engine.batcher.withdraw(*jobs)
        raise
