"""Locks that a forked child finds open.

A fork copies locks, and not the threads that have them. A child that goes on in the middle of a call, because a signal
handler has forked, would wait forever for a thread of its parent. So each lock that it may come to is known here: in the
child all are opened but those that the forking thread has itself, and will release. That thread is told from the others
because the locks are reentrant, and so know their owner.

What such a lock protects may be half done in the child. Nothing there is used again: each call ends with an error.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threading import RLock

_all: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> RLock:
    """Return a lock that each forked child finds open."""
    lock = threading.RLock()
    _all.add(lock)
    return lock


def open_in_child(lock: Any) -> None:
    """In a forked child: open a lock unless this thread has it, also for a wait that has begun before the fork."""
    if lock._is_owned():  # noqa: SLF001 - as threading.Condition asks it
        return
    # A wait that is under way goes on with the old lock inside this one, so that is released; any later one meets a new
    # one, since a thread may have had the old one without having said so yet.
    with contextlib.suppress(RuntimeError):  # no thread has it
        lock._release_save()  # noqa: SLF001 - as threading.Condition does it; release() is for the owner alone
        return
    lock._at_fork_reinit()  # noqa: SLF001 - as threading itself does it


def open_gate(gate: threading.Lock) -> None:
    """Let a thread go on that waits for a lock to be released, whether it waits already or not."""
    with contextlib.suppress(RuntimeError):  # it is open
        gate.release()


def _after_fork() -> None:
    for lock in list(_all):
        open_in_child(lock)


os.register_at_fork(after_in_child=_after_fork)
