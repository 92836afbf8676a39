"""Wakes a thread that waits for a socket."""

from __future__ import annotations

import contextlib
import os
import select
from typing import TYPE_CHECKING

from lessor.stores.descriptors import closed, keep_from_children
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable


class Doorbell:
    """Waits for a socket or for a ring, whichever comes first. Waited at by one thread, rung and closed by any."""

    def __init__(self, on_end: Callable[[], None] | None = None) -> None:
        self._on_end = on_end
        """What else to do at the end, when nobody waits any more."""
        self._lock = new_lock()
        self._heard, self._button = os.pipe()
        keep_from_children(self, self._heard, self._button)
        os.set_blocking(self._heard, False)
        os.set_blocking(self._button, False)
        self._poll = select.poll()
        self._poll.register(self._heard, select.POLLIN)
        self._waiting = self._closed = False
        self.ready = False
        """Whether there was something at a socket when last waited."""

    def watch(self, descriptor: int) -> None:
        """Wait for this one, too, from now on."""
        self._poll.register(descriptor, select.POLLIN)

    def forget(self, descriptor: int) -> None:
        """Wait for this one no more: before it is closed."""
        with contextlib.suppress(KeyError):
            self._poll.unregister(descriptor)

    def wait(self, seconds: float) -> bool:
        """Wait; True if it rang."""
        with self._lock:
            if self._closed:
                self.ready = False
                return True
            self._waiting = True
        try:
            found = self._poll.poll(seconds * 1000)
            rang = any(descriptor == self._heard for descriptor, _ in found)
            self.ready = len(found) > rang
            return rang and self._hush()
        finally:
            self._stop_waiting()

    def ring(self) -> None:
        """Let the one that waits, or the next one that will, go on."""
        with self._lock:
            if not self._closed:
                self._press()

    def close(self) -> None:
        """Ring for good."""
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._waiting:
                    self._press()  # whoever waits frees it: a descriptor closed under a poll may be somebody else's soon
                else:
                    self._free()

    def _stop_waiting(self) -> None:
        with self._lock:
            self._waiting = False
            if self._closed:
                self._free()

    def _press(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it rings already
            os.write(self._button, b"!")

    def _hush(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(self._heard, 1024)
        return True

    def _free(self) -> None:
        closed(self)
        os.close(self._heard)
        os.close(self._button)
        if self._on_end is not None:
            self._on_end()
