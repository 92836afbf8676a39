"""Functions of which one call runs at a time, wherever they are called: the others are skipped, or wait.

A call that is skipped is not made up for. And a lease can't stop a function that ignores it: where two at once would do
harm, call ``current_lease().check()``, and guard writes with its token.
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from lessor.errors import ConfigError, LeaseHeld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import ParamSpec

    from lessor.patterns.ports import HeldByTask, HeldByThread

    P = ParamSpec("P")

Result = TypeVar("Result")


class Skipped(Enum):
    """What a singleton returns where somebody else runs it. It is false."""

    SKIPPED = "skipped"

    def __bool__(self) -> Literal[False]:
        return False


SKIPPED: Final = Skipped.SKIPPED
_current: ContextVar[Any] = ContextVar("lessor-singleton")


def current() -> Any:
    """Return the lease of the innermost singleton."""
    try:
        return _current.get()
    except LookupError:
        raise ConfigError("there is no current lease: this is not called by a singleton") from None


def for_threads(
    acquire: Callable[[], HeldByThread],
) -> Callable[[Callable[P, Result]], Callable[P, Result | Skipped]]:
    """Return a decorator: the function runs under a lease or, where that is held, not at all."""

    def decorate(work: Callable[P, Result]) -> Callable[P, Result | Skipped]:
        if iscoroutinefunction(work):
            raise ConfigError("a coroutine function is a singleton of an AsyncClient")
        if isgeneratorfunction(work) or isasyncgenfunction(work):
            raise ConfigError("a generator would run when the lease is over already: it can't be a singleton")

        @wraps(work)
        def run(*args: P.args, **kwargs: P.kwargs) -> Result | Skipped:
            try:
                lease = acquire()
            except LeaseHeld:
                return SKIPPED
            with lease:
                before = _current.set(lease)
                try:
                    return work(*args, **kwargs)
                finally:
                    _current.reset(before)

        return run

    return decorate


def for_tasks(
    acquire: Callable[[], Awaitable[HeldByTask]],
) -> Callable[[Callable[P, Awaitable[Result]]], Callable[P, Coroutine[Any, Any, Result | Skipped]]]:
    """Return the same for coroutine functions; they are cancelled when the lease is lost."""

    def decorate(work: Callable[P, Awaitable[Result]]) -> Callable[P, Coroutine[Any, Any, Result | Skipped]]:
        if not iscoroutinefunction(work):
            raise ConfigError("a plain function is a singleton of a Client: this one is for coroutine functions")

        @wraps(work)
        async def run(*args: P.args, **kwargs: P.kwargs) -> Result | Skipped:
            try:
                lease = await acquire()
            except LeaseHeld:
                return SKIPPED
            async with lease:
                before = _current.set(lease)
                try:
                    return await work(*args, **kwargs)
                finally:
                    _current.reset(before)

        return run

    return decorate
