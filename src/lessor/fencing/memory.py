"""The guard for anything in memory: a cache, a device, a connection that this process owns."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError, Fenced
from lessor.fencing.stamp import stamp_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.fencing.stamp import Bearer, Stamp

NOTHING_SEEN: Final = -1
NOBODY: Final = 0
"""No thread has this number."""


class _Seat:
    """What is known of one resource. Its lock is held by whoever writes."""

    __slots__ = ("lock", "newest", "owner")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.newest = NOTHING_SEEN
        self.owner = NOBODY


class Fence:
    """Refuses stale tokens, in this process and for as long as it lives.

    It does not protect anything from another process or from a forked child, it forgets everything when the process
    ends, and it can't see a write that goes round it. So put one in the process that *does* the writes (a server, the
    owner of a device) and let the holders send their tokens to it. Thread-safe.

    It remembers one token a resource and never forgets by itself, since forgetting would let a stale write in: some
    300 bytes for each resource, and at most ``limit`` resources. One more is refused with `ConfigError`, not let in
    unchecked; ``forget()`` makes room.
    """

    def __init__(self, *, limit: int = 100_000) -> None:
        if limit < 1:
            raise ConfigError(f"limit is {limit}, and a fence remembers at least one resource")
        self._limit = limit
        self._seats: dict[str, _Seat] = {}
        self._lock = threading.Lock()

    def check(self, bearer: Bearer) -> None:
        """Raise `Fenced` if a newer token has been here, and remember this one if it is the newest.

        It does not protect a write that follows it: a newer holder may come in between. Use ``guard`` for that. It
        waits while another thread is inside the guard of the same resource.
        """
        stamp = stamp_of(bearer)
        seat = self._seat(stamp.resource)
        if seat.owner == threading.get_ident():
            if stamp.token > seat.newest:
                raise _would_wait_for_itself(stamp)
            _admit(seat, stamp)
            return
        with self._seated(stamp):
            pass

    @contextmanager
    def guard(self, bearer: Bearer) -> Iterator[Stamp]:
        """Check the token, and keep every other holder out until the ``with`` ends: check and write are one step.

        It does not protect a write that goes on after the ``with``, in a thread or a queue, for instance. Others wait
        at the resource's guard for as long as the body takes. In asyncio, don't await inside: a task that comes to the
        same guard meanwhile gets `ConfigError`, for it would block the event loop that has to let it in.
        """
        stamp = stamp_of(bearer)
        if self._seat(stamp.resource).owner == threading.get_ident():
            raise _would_wait_for_itself(stamp)
        with self._seated(stamp) as seat:
            seat.owner = threading.get_ident()
            try:
                yield stamp
            finally:
                seat.owner = NOBODY

    def newest(self, resource: str) -> int | None:
        """Return the newest token that has been here; None: none has."""
        seat = self._seats.get(resource)
        return None if seat is None or seat.newest == NOTHING_SEEN else seat.newest

    def forget(self, resource: str) -> None:
        """Forget a resource. From here on any token is let in, so do it only when no stale write can arrive any more."""
        seat = self._seats.get(resource)
        if seat is None:
            return
        if seat.owner == threading.get_ident():
            raise ConfigError(f"{resource!r} can't be forgotten inside its own guard")
        with seat.lock, self._lock:
            if self._seats.get(resource) is seat:
                del self._seats[resource]

    def __len__(self) -> int:
        return len(self._seats)

    @contextmanager
    def _seated(self, stamp: Stamp) -> Iterator[_Seat]:
        while True:
            seat = self._seat(stamp.resource)
            with seat.lock:
                if self._seats.get(stamp.resource) is not seat:
                    continue  # forgotten while we waited: what is remembered there, nobody would find
                _admit(seat, stamp)
                yield seat
                return

    def _seat(self, resource: str) -> _Seat:
        seat = self._seats.get(resource)
        if seat is not None:
            return seat
        with self._lock:
            seat = self._seats.get(resource)
            if seat is None:
                if len(self._seats) >= self._limit:
                    raise ConfigError(
                        f"this fence remembers {len(self._seats)} resources, and its limit is {self._limit}: forget() "
                        "those that no stale write can reach any more, or raise the limit"
                    )
                seat = self._seats[resource] = _Seat()
            return seat


def _admit(seat: _Seat, stamp: Stamp) -> None:
    if stamp.token < seat.newest:
        raise Fenced(stamp.resource, token=stamp.token, newest=seat.newest)
    seat.newest = stamp.token


def _would_wait_for_itself(stamp: Stamp) -> ConfigError:
    return ConfigError(
        f"this thread is inside the guard of {stamp.resource!r} already, and would wait for itself "
        "(in asyncio: don't await inside a guard)"
    )
