"""Operations from an event loop: they go with the next call that the batcher makes. Whoever is cancelled takes them back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.ops import Op, Outcome
    from lessor.runtime.engine import Engine


def call(engine: Engine, op: Op) -> asyncio.Future[tuple[Outcome, int]]:
    """Have the operation sent with the next batch; the result is the outcome, and the time before it was sent."""
    answer: asyncio.Future[tuple[Outcome, int]] = asyncio.get_running_loop().create_future()
    engine.batcher.submit((op, answer))
    return answer


async def call_each(engine: Engine, ops: Sequence[Op]) -> Sequence[tuple[Outcome, int]]:
    """Have several sent together, in as few batches as the store takes them."""
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[tuple[Outcome, int]]] = [loop.create_future() for _ in ops]
    engine.batcher.submit(*zip(ops, answers, strict=True))
    try:
        return [await answer for answer in answers]
    except asyncio.CancelledError:
        for answer in answers:
            answer.cancel()
        raise
