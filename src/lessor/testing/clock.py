"""A clock that moves only when a test says so.

It does not make a blocked thread wake up: code that really sleeps goes on sleeping. Hand it to a store or to the pure
core, and let time pass between the calls.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lessor.core.clock import SECOND
from lessor.core.timing import to_ns

if TYPE_CHECKING:
    from lessor.core.timing import Duration

START_NS = 1_000 * SECOND
"""Where the monotonic clocks of a new `FakeClock` stand: not at 0, so that arithmetic with it isn't flattered."""
START_WALL_US = 1_700_000_000_000_000


class FakeClock:
    """A `lessor.core.clock.Clock` in virtual time. All its readings are of one moment, which `advance` moves on.

    >>> clock = FakeClock()
    >>> store = open_store("memory://test", clock)
    >>> clock.advance(30)  # and every lease of 30 s is over
    """

    def __init__(self, *, wall_us: int = START_WALL_US, boot: str = "boot-1") -> None:
        self._lock = threading.Lock()
        self._now_ns = START_NS
        self._booted_ns = 0
        self._wall_us_at_0 = wall_us - START_NS // 1000
        self._boot = boot
        self._boots = 1

    # --- what lessor reads -------------------------------------------------------------------------------------

    def now(self) -> int:
        """Nanoseconds on the holder's clock."""
        return self._now_ns

    def mark(self) -> int:
        """Return the same as ``now()``: there is only one clock here, so none runs ahead of another."""
        return self._now_ns

    def host_ns(self) -> int:
        """Nanoseconds since the last `new_boot`."""
        return self._now_ns - self._booted_ns

    def host_epoch(self) -> str:
        """Return the boot's id."""
        return self._boot

    def wall_us(self) -> int:
        """Microseconds since 1970, as far as the last `set_wall` knows."""
        return self._wall_us_at_0 + self._now_ns // 1000

    # --- what a test does to it -----------------------------------------------------------------------------------

    def advance(self, duration: Duration) -> None:
        """Let time pass on all clocks. Time doesn't run backwards: only the wall clock can be set back."""
        self.advance_ns(to_ns(duration, "the time to pass"))

    def advance_ns(self, ns: int) -> None:
        """Let this many nanoseconds pass: exact, for the moment at which something ends."""
        if ns < 0:
            raise ValueError(f"time can't go back by {-ns} ns; to set the wall clock back, use set_wall()")
        with self._lock:
            self._now_ns += ns

    def set_wall(self, wall_us: int) -> None:
        """Set the wall clock, forward or back, as an administrator or NTP may. The other clocks don't notice."""
        with self._lock:
            self._wall_us_at_0 = wall_us - self._now_ns // 1000

    def new_boot(self, boot: str | None = None, *, uptime: Duration = 1) -> None:
        """Reboot: ``host_ns`` starts again at ``uptime``, under another id. Open stores don't survive that; reopen.

        The holder's clock goes on, as no process that reads it lives through a boot.
        """
        with self._lock:
            self._boots += 1
            self._boot = boot if boot is not None else f"boot-{self._boots}"
            self._booted_ns = self._now_ns - to_ns(uptime, "the time since the boot")
