"""Carries out operations side by side: what doesn't depend on each other is sent without waiting in between.

An operation is a generator. It yields the calls that it has sent, and is handed their answers: values, or the errors
that are answers. So many operations are under way on one connection at once, and each reads like a single one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kazoo.handlers.threading import KazooTimeoutError

from lessor.core.clock import SECOND
from lessor.stores.zookeeper.wire import NODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lessor.core.clock import Clock

    Steps = Generator[list[Any], list[Any], Any]


def drive(clock: Clock, give_up_ns: int, steps: list[Steps], failed: Callable[[int, Exception], Any]) -> list[Any]:
    """Run them all to their ends, or until the time is over; return what they returned, or what ``failed`` makes of it."""
    results: list[Any] = [None] * len(steps)
    under_way: deque[tuple[int, Steps, list[Any]]] = deque()

    def advance(at: int, step: Steps, answers: list[Any] | None) -> None:
        try:
            calls = next(step) if answers is None else step.send(answers)
        except StopIteration as end:
            results[at] = end.value
        except Exception as error:  # noqa: BLE001 - it is for one operation only
            results[at] = failed(at, error)
        else:
            under_way.append((at, step, calls))

    for at, step in enumerate(steps):
        advance(at, step, None)
    while under_way:
        at, step, calls = under_way.popleft()
        try:
            answers = [_answer(call, (give_up_ns - clock.now()) / SECOND) for call in calls]
        except Exception as error:  # noqa: BLE001 - as above
            step.close()
            results[at] = failed(at, error)
        else:
            advance(at, step, answers)
    return results


def _answer(call: Any, seconds: float) -> Any:
    try:
        return call.get(timeout=max(0.0, seconds))
    except NODE_ERRORS as answer:
        return answer
    except KazooTimeoutError:
        if call.ready():
            return call.get_nowait()
        raise
