"""Keeps the connections of a process from its forked children.

A fork copies descriptors, and parent and child share what they refer to. A child that goes on in the middle of a call,
because a signal handler has forked, would send its parent's requests once more and take the answers away from it. So in
the child each of these descriptors refers to nothing, from the fork on: whatever uses it fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref

_open: weakref.WeakKeyDictionary[object, tuple[int, ...]] = weakref.WeakKeyDictionary()


def keep_from_children(thing: object, *descriptors: int) -> None:
    """Cut off these descriptors of a thing in each child: those of a socket by itself, if it is one."""
    _open[thing] = descriptors


def closed(thing: object) -> None:
    """Forget the descriptors of a thing, which are about to be closed: their numbers may soon be somebody else's."""
    _open.pop(thing, None)


def _after_fork() -> None:
    nothing = -1
    with contextlib.suppress(OSError):  # no descriptor is left: then they are closed
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for thing, descriptors in list(_open.items()):
        for descriptor in (thing.fileno(),) if isinstance(thing, socket.socket) else descriptors:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.dup2(nothing, descriptor, inheritable=False) if nothing >= 0 else os.close(descriptor)
    _open.clear()
    if nothing >= 0:
        os.close(nothing)


os.register_at_fork(after_in_child=_after_fork)
