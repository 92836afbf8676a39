"""What a guard says to a database, one statement after the other, without knowing who carries it out.

A guard's steps are a generator: it yields a statement, and is sent the answer or thrown the error. So they are written
once, for blocking connections and for those of asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping
    from typing import TypeAlias


class Answer(NamedTuple):
    """What a database answered to a statement, as far as a guard looks at it."""

    changed: int
    """How many rows were changed."""
    row: Any
    """The first row, if it has one."""


if TYPE_CHECKING:
    Request: TypeAlias = tuple[str, Mapping[str, object]]
    """A statement with ``:name`` parameters, and their values."""
    Steps: TypeAlias = Generator[Request, Answer, None]
    Run: TypeAlias = Callable[[str, Mapping[str, object]], Answer]
    """Carries out a statement in the guarded transaction."""
    AsyncRun: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[Answer]]


def carry_out(steps: Steps, run: Run) -> None:
    """Take all steps."""
    try:
        request = next(steps)
        while True:
            try:
                answer = run(*request)
            except Exception as error:  # noqa: BLE001 - the steps know what to do with it
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration:
        return


async def carry_out_async(steps: Steps, run: AsyncRun) -> None:
    """Take all steps."""
    try:
        request = next(steps)
        while True:
            try:
                answer = await run(*request)
            except Exception as error:  # noqa: BLE001 - the steps know what to do with it
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration:
        return
