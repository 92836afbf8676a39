"""A thread that does things when they are due. The keeper and the watchdog have one each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from lessor.core.clock import SECOND
from lessor.core.schedule import Schedule
from lessor.runtime.log import log
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.runtime.host import Host

K = TypeVar("K")

NEVER = 1 << 63
AWAKE = -1 << 63
"""Before any time at which something may be due: also before the deadline of what is lost, which is -1."""
AGAIN_NS = SECOND // 10
LONGEST_SLEEP_NS = SECOND // 2
"""A thread's timer stands still during suspend; this bounds how late it is after the machine wakes up."""


class Agenda(Generic[K]):
    """What is due when, and the thread that sees to it. The thread starts with the first entry.

    Making an entry is on the path of every acquisition, so it only puts it down; the thread sorts it in when it wakes
    up, which it does in time for the earliest, and takes out what was dropped since. What comes up is asked by ``wanted``
    whether it still is. With ``receive``, new entries may go elsewhere instead: that returns those that stay. ``chores``
    are done each time that the thread is awake: at least every half second while there are entries.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        act: Callable[[list[K], int], None],
        *,
        wanted: Callable[[K], bool],
        slack: Callable[[K], int],
        receive: Callable[[list[K]], list[K]] | None = None,
        chores: Callable[[], None] | None = None,
    ) -> None:
        self._host = host
        self._clock = host.clock
        self._name = name
        self._act = act
        self._wanted = wanted
        self._slack = slack
        self._receive = receive
        self._chores = chores
        self._schedule: Schedule[K] = Schedule()
        self._new: dict[K, int] = {}
        self._gone: list[K] = []
        self._lock = new_lock()
        self._condition = host.condition(self._lock)
        self._wake_at = NEVER
        self._thread: object = None
        self._closed = False

    def set(self, key: K, due_ns: int) -> None:
        """Make the key due then, whatever it was before."""
        self._new[key] = due_ns
        # The thread says when it will wake up before it looks for new entries a last time, so one of us sees the other.
        if due_ns < self._wake_at:
            self._wake_up()

    def start(self) -> None:
        """Have the thread run, so that nothing can fail later for want of it."""
        if self._thread is None:
            self._wake_up()

    def drop(self, key: K) -> None:
        """Forget the key."""
        if self._new.pop(key, None) is None and key in self._schedule:
            self._gone.append(key)  # the thread takes it out again

    def _wake_up(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = self._host.start(self._run, self._name)
            self._condition.notify()

    def close(self) -> None:
        """End the thread; what is due later will not happen."""
        with self._lock:
            self._closed = True
            self._condition.notify()

    def _run(self) -> None:
        idle = False
        while True:
            if self._chores is not None:
                self._do_chores(self._chores)
            with self._lock:
                if self._closed:
                    return
                self._wake_at = AWAKE  # it is awake, and looks for new entries before it sleeps again
                self._sort_in()
                now = self._clock.now()
                due = self._schedule.next_due()
                if due is None or due > now:
                    # With nothing to do it lingers for one sleep before it waits for a call, since to be called costs
                    # more than to look: a program that takes and gives back leases in a loop calls it twice a second.
                    for_good = idle and due is None
                    idle = due is None and not for_good
                    self._wake_at = NEVER if for_good else min(due or NEVER, now + LONGEST_SLEEP_NS)
                    if not self._new:
                        self._condition.wait(None if for_good else (self._wake_at - now) / SECOND)
                    continue
                keys = self._schedule.pop_due(now)
                # What is due so soon that it may go along saves a round of its own. Whoever can't act early puts it
                # back, for the time when it is really due.
                keys += self._schedule.pop_due(now + min(self._slack(key) for key in keys))
            keys = [key for key in keys if self._wanted(key)]
            try:
                if keys:
                    self._act(keys, now)
            except Exception:  # noqa: BLE001 - whatever it was, what is due must not be forgotten, nor this thread end
                log().exception("%s: tried again in a moment", self._name)
                for key in keys:
                    self.set(key, self._clock.now() + AGAIN_NS)
            del keys  # while it sleeps, nothing here may keep a lease that the program has no reference to

    def _do_chores(self, chores: Callable[[], None]) -> None:
        try:
            chores()
        except Exception:  # noqa: BLE001 - this thread must not end
            log().exception("%s: went on", self._name)

    def _sort_in(self) -> None:
        while self._gone:
            self._schedule.remove(self._gone.pop())
        new: dict[K, int] = {}
        while self._new:
            try:
                key, due = self._new.popitem()
            except KeyError:
                break  # dropped this very moment
            if self._wanted(key):
                new[key] = due
        for key in self._staying(list(new)):
            self._schedule.set(key, new[key])

    def _staying(self, keys: list[K]) -> list[K]:
        """Return those of the new ones that don't go elsewhere."""
        if self._receive is None or not keys:
            return keys
        try:
            return self._receive(keys)
        except Exception:  # noqa: BLE001 - as above
            log().exception("%s: tried again when it is due", self._name)
            return keys
