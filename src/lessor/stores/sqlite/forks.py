"""No connection is open while the process forks.

SQLite keeps what it has locked in the memory of the process, which a fork copies, and in locks of the kernel, which a
fork doesn't. A child that opens the file anew would rely on locks that it hasn't got, and two would hold one lease. So
every store closes its connections before a fork; parent and child open theirs afterwards, as they need them.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Pausing(Protocol):
    """A store that can do without connections for a moment."""

    def step_back(self) -> None:
        """Close what this very thread has in use."""
        ...

    def pause(self) -> bool:
        """Wait for what is under way, and close all connections; False: that took too long."""
        ...

    def disconnect(self, path: str) -> None:
        """Close the idle connections, if they are to this file."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...


_stores: weakref.WeakSet[Pausing] = weakref.WeakSet()
_paused: list[Pausing] = []

add = _stores.add
discard = _stores.discard


def stores() -> list[Pausing]:
    """Return all stores of this process."""
    return list(_stores)


def _before() -> None:
    stores = list(_stores)
    for store in stores:  # first: another thread, whose turn is waited for below, may wait for our transaction
        store.step_back()
    _paused.extend(store for store in stores if store.pause())


def _after() -> None:
    while _paused:
        _paused.pop().resume()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
