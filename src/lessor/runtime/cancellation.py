"""Ends waits from outside: from another thread, from a task, or from a signal handler."""

from __future__ import annotations

import _thread
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lessor.errors import Cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Cancellation:
    """Ends every wait that was given it as ``cancel=``, at once and for good: the wait raises `Cancelled`.

    One may be shared by any number of waits and clients. It doesn't end leases that are held: release those. A request
    that is under way is not interrupted; it ends within the client's ``timeout``, and a lease that it brings is returned.
    """

    __slots__ = ("_cancelled", "_wakers")

    def __init__(self) -> None:
        self._cancelled = False
        self._wakers: dict[object, Callable[[], object]] = {}

    @property
    def cancelled(self) -> bool:
        """Whether ``cancel()`` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Wake all waits, and let later ones fail. Any thread may call it, and so may a signal handler."""
        # Without a lock, since a signal handler may interrupt the thread that has it. A wait makes its waker known before
        # it looks at the flag, and here the flag is set first: so one of the two sees the other.
        self._cancelled = True
        if not self._wakers:
            return
        try:
            # Wakers take locks, which the thread may have that a signal handler has interrupted.
            _thread.start_new_thread(self._wake_all, ())
        except RuntimeError:  # there is no thread to be had
            self._wake_all()

    def check(self) -> None:
        """Raise `Cancelled` if ``cancel()`` was called."""
        if self._cancelled:
            raise Cancelled("the wait was cancelled")

    def __repr__(self) -> str:
        return f"<Cancellation {'cancelled' if self._cancelled else 'not cancelled'}>"

    def _watch(self, key: object, waker: Callable[[], object]) -> None:
        """Have the waker called once this is cancelled, at once if it is."""
        self._wakers[key] = waker
        if self._cancelled:
            waker()

    def _forget(self, key: object) -> None:
        """Don't call the waker any more; it may still be called this once."""
        self._wakers.pop(key, None)

    def _wake_all(self) -> None:
        for waker in list(self._wakers.values()):
            waker()


@contextmanager
def watched(cancels: Sequence[Cancellation], key: object, waker: Callable[[], object]) -> Iterator[None]:
    """Call the waker if one of them is cancelled while the body waits; raise `Cancelled` after it if one was."""
    try:
        for cancel in cancels:
            cancel._watch(key, waker)
        yield
    finally:
        for cancel in cancels:
            cancel._forget(key)
    for cancel in cancels:
        cancel.check()


def sleep(seconds: float, cancels: Sequence[Cancellation]) -> None:
    """Sleep that long. Raise `Cancelled` once one of them is cancelled."""
    over = threading.Event()
    with watched(cancels, over, over.set):
        over.wait(seconds)
