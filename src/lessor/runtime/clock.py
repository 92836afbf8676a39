"""The only module that reads time.

A holder's clock must never be slow, or the holder believes too long. Two clocks can each be: CLOCK_BOOTTIME is slewed
by whoever disciplines the wall clock, CLOCK_MONOTONIC_RAW stands still during suspend. So the holder goes by the one
that has advanced further *since the request was sent*. ``mark()`` sets both level and returns the reading; from there
on the clock is whichever runs ahead. Levels only ever rise, so later marks can't slow an earlier span down.
"""

from __future__ import annotations

import os
import threading
import time

from lessor.errors import ConfigError
from lessor.stores.scarcity import shortage

if hasattr(time, "CLOCK_BOOTTIME"):
    _BOOT = time.CLOCK_BOOTTIME
    _RAW = time.CLOCK_MONOTONIC_RAW
    SOURCE = "CLOCK_BOOTTIME and CLOCK_MONOTONIC_RAW"
else:  # macOS and the BSDs: no clock there is known to be both unslewed and to count suspend
    _BOOT = time.CLOCK_MONOTONIC
    _RAW = getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)
    SOURCE = "the platform's monotonic clocks"

_clock_gettime_ns = time.clock_gettime_ns

LEVEL_NS = 5_000
"""Clocks that differ by less are level: to set them so takes longer."""


class SystemClock:
    """The real one. See `core.clock.Clock` for what each reading is for."""

    __slots__ = ("_host_offset", "_levels", "_lock")

    def __init__(self) -> None:
        self._levels = (0, _clock_gettime_ns(_BOOT) - _clock_gettime_ns(_RAW))
        self._lock = threading.Lock()
        self._host_offset: int | None = None

    def now(self) -> int:
        """Nanoseconds on the holder's clock."""
        boot_level, raw_level = self._levels
        boot = _clock_gettime_ns(_BOOT) + boot_level
        raw = _clock_gettime_ns(_RAW) + raw_level
        return boot if boot > raw else raw  # noqa: FURB136 - a third of the cost of max() in what check() does

    def mark(self) -> int:
        """Nanoseconds on the holder's clock, and set both clocks level from here on."""
        boot_level, raw_level = self._levels
        boot = _clock_gettime_ns(_BOOT) + boot_level
        raw = _clock_gettime_ns(_RAW) + raw_level
        if -LEVEL_NS < boot - raw < LEVEL_NS:
            # They are level, as good as: by the one that is behind, what passes from here on counts on both.
            return boot if boot < raw else raw  # noqa: FURB136 - as above
        with self._lock:
            boot_level, raw_level = self._levels
            # The raw clock first, and each only once: what passes between the two readings counts as elapsed.
            raw = _clock_gettime_ns(_RAW)
            boot = _clock_gettime_ns(_BOOT)
            now = boot + boot_level
            now = max(now, raw + raw_level)
            self._levels = (now - boot, now - raw)
            return now

    def host_ns(self) -> int:
        """Nanoseconds since the host booted, as outside of any time namespace."""
        offset = self._host_offset
        if offset is None:
            offset = self._host_offset = _namespace_offset_ns()
        return _clock_gettime_ns(_BOOT) - offset

    def host_epoch(self) -> str:
        """Return the boot's id."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError as error:
            if shortage(error) is not None:
                raise
            raise ConfigError(
                f"this platform doesn't tell one boot from the next ({error.strerror or error}), which a file shared "
                "between processes needs; use memory:// or a server"
            ) from error

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000


LEVEL_EVERY_NS = 20_000_000


class AcceptorClock:
    """The clock of one that keeps others out: it must never be fast, or it lets somebody in too early.

    So it goes by the clock that has advanced *less*, again and again since the last time that both were set level.
    Used by one thread.
    """

    __slots__ = ("_boot", "_first", "_level", "_raw")

    def __init__(self) -> None:
        self._raw, self._boot = _clock_gettime_ns(_RAW), _clock_gettime_ns(_BOOT)
        self._first = (self._raw, self._boot)
        self._level = 0

    def now(self) -> int:
        """Nanoseconds since it was made."""
        raw, boot = _clock_gettime_ns(_RAW), _clock_gettime_ns(_BOOT)
        elapsed = min(raw - self._raw, boot - self._boot)
        if elapsed > LEVEL_EVERY_NS:  # not at each reading, or what passes between the two would add up
            self._level += elapsed
            self._raw, self._boot = raw, boot
            return self._level
        return self._level + elapsed

    def disagreement_ppm(self) -> float:
        """Return by how many millionths one of its clocks has run faster than the other."""
        raw, boot = _clock_gettime_ns(_RAW) - self._first[0], _clock_gettime_ns(_BOOT) - self._first[1]
        return (boot - raw) / max(raw, 1) * 1e6


SYSTEM = SystemClock()
"""One for the process: all its leases count on the same levels."""


_at_fork = 0
"""The reading of the holder's clock when the process last forked."""


def _before_fork() -> None:
    global _at_fork  # noqa: PLW0603 - handed from the parent to the child
    _at_fork = SYSTEM.now()


def _after_fork() -> None:
    """In the child, which may be in another time namespace: look for its offset again, and don't go back in time."""
    boot, raw = _clock_gettime_ns(_BOOT), _clock_gettime_ns(_RAW)
    SYSTEM._levels = (_at_fork - boot, _at_fork - raw)
    SYSTEM._host_offset = None
    SYSTEM._lock = threading.Lock()  # it may have been taken by a thread that doesn't exist in the child


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def _namespace_offset_ns() -> int:
    """Return by how much CLOCK_BOOTTIME is shifted in the time namespace of this process."""
    try:
        with open("/proc/self/timens_offsets", encoding="ascii") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return 0  # a kernel without time namespaces
    if os.readlink("/proc/self/ns/time") != os.readlink("/proc/self/ns/time_for_children"):
        # The file tells the offsets of the children's namespace, and nothing tells ours.
        raise ConfigError(
            "this process has unshared its time namespace and not entered it: start a child in it instead"
        )
    for line in lines:
        name, seconds, nanoseconds = line.split()
        if name in ("boottime", "7"):
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return 0
