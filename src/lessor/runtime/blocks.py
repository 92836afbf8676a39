"""``with`` blocks, and how to find out that one has ended although its ``__exit__`` never ran.

An interrupt may come at the first instruction of ``__exit__``, before any code of ours, and then the block is over
without it. What can't be lost is the reference to ``__exit__`` itself: the interpreter takes it before it calls
``__enter__``, and keeps it for exactly as long as the block runs. So each block gets an `Exit` of its own, and a `Visit`
refers to that weakly: when it dies and the visit hasn't been left, the block was cut off.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Exit(partial):  # type: ignore[type-arg]
    """What a ``with`` block calls when it ends: one for each block. It calls the ``_exit`` of the thing."""


class AsyncExit(Exit):
    """What an ``async with`` block awaits when it ends. The coroutine refers to it, until that has ended too."""

    async def __call__(self, *exc: Any) -> Any:
        """Leave the block."""
        return await self.func(*exc)


class Leaving:
    """The ``__exit__`` or ``__aexit__`` of a class: a descriptor that makes an `Exit` at each look-up."""

    __slots__ = ("_make",)

    def __init__(self, make: type[Exit]) -> None:
        self._make = make

    def __get__(self, thing: Any, owner: Any = None) -> Any:
        if thing is None:
            return owner._exit
        made = self._make(thing._exit)
        _latest.exit = weakref.ref(made)
        return made


class _Latest(threading.local):
    exit: Callable[[], Any] | None = None
    """The `Exit` that was looked up last in this thread."""


_latest = _Latest()


def block_of(thing: object) -> object:
    """In the ``__enter__`` of a thing: return what lives as long as the block that is being entered.

    Where ``__enter__`` is called by hand there is no such block, and it is the thing itself.
    """
    found, _latest.exit = _latest.exit, None
    made = found() if found is not None else None
    return made if made is not None and made.func.__self__ is thing else thing
