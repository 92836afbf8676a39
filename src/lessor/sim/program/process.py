"""A simulated process: a clock, an event loop and threads of its own, and clients that run on them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from lessor.client.aio import AsyncClient
from lessor.core.clock import SECOND
from lessor.errors import LessorError
from lessor.runtime.engine import Engine
from lessor.sim.checks import Violation
from lessor.sim.clock import SimClock
from lessor.sim.program.faults import Trouble
from lessor.sim.program.loop import VirtualLoop
from lessor.sim.program.store import SimStore
from lessor.sim.program.threads import VirtualCondition, VirtualThread, this_thread

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable

    from lessor.runtime.tenure import Tenure
    from lessor.sim.program.world import ProgramWorld
    from lessor.stores.base import Store

RESTART_NS = SECOND
"""After how long a process is started again that ended with an error."""
EPOCH_US = 1_700_000_000_000_000


class ProcessClock:
    """What a process reads: true time at a rate of its own, from an offset of its own."""

    def __init__(self, world: ProgramWorld, rate: float, shown_ns: int) -> None:
        self._scheduler = world.scheduler
        self._clock = SimClock(rate, shown_ns)
        self.when = self._clock.when

    def now(self) -> int:
        """Nanoseconds on the holder's clock."""
        return self._clock.at(self._scheduler.now)

    mark = host_ns = now

    def host_epoch(self) -> str:
        """Return the boot's id."""
        return "simulated"

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return EPOCH_US + self.now() // 1000


class StoreClock(ProcessClock):
    """The store's. Its wall clock stands still, so that tokens are small numbers, which read better in a story."""

    def wall_us(self) -> int:
        """Return the time at which the world began."""
        return 0


class SimProcess:
    """What a program's ``main`` is handed. It is also the host that its clients run on."""

    def __init__(
        self, world: ProgramWorld, name: str, main: Callable[..., Awaitable[object]], args: tuple[Any, ...]
    ) -> None:
        self.world = world
        self.name = name
        self.rng = Random(f"{world.seed}/{name}")
        """Chance for the program, so that a seed gives the same run again."""
        self.wires = Random(f"{world.seed}/{name}/wires")
        """What its messages meet with."""
        rate = 1 + world.faults.drift * self.wires.uniform(-1, 1)
        self.clock = ProcessClock(world, rate, self.wires.randrange(10**12))
        self.life = 0
        self.up = self.done = False
        self.still_until = 0
        self.engines: list[Engine] = []
        self._main = main
        self._args = args
        self._chance = Random(f"{world.seed}/{name}/machinery")
        self._armed_ns = 0

    def client(self, **options: Any) -> SimClient:
        """Return an `AsyncClient` on the simulated store, with the options of a real one."""
        return SimClient(self, **{"holder": self.name, **options})

    def note(self, text: str) -> None:
        """Write something into the run's story."""
        self.world.note(self.name, text)

    # --- the host of its clients ----------------------------------------------------------------------------------

    def start(self, run: Callable[[], None], name: str) -> VirtualThread:
        """Start a virtual thread."""
        return VirtualThread(self, run, name)

    def condition(self, lock: threading.RLock | None = None) -> VirtualCondition:
        """Return a condition in virtual time."""
        return VirtualCondition(self, lock)

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        this_thread().park(self.in_true_time(seconds))

    def random(self) -> float:
        """Return a number that the seed decides."""
        return self._chance.random()

    def entropy(self, size: int) -> bytes:
        """Return bytes that the seed decides."""
        return self._chance.randbytes(size)

    def in_true_time(self, seconds: float) -> int:
        """Return the true time at which so much has passed on its clock."""
        return self.clock.when(self.clock.now() + int(seconds * SECOND) + 1)

    # --- its lives ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start."""
        if not self.up:
            self.up = True
            self.start(self._live, "main")

    def _live(self) -> None:
        loop = VirtualLoop(self)
        try:
            try:
                loop.run_until_complete(self._main(self, *self._args))
                self.done = True
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever a program may raise
                self.failed(error)
            loop.cancel_all()
            for engine in self.engines:
                engine.close()  # as at the exit of any process
            self._end()
            if self.done:
                self.world.stop_if_done()
            else:
                self.world.scheduler.at(self.world.scheduler.now + RESTART_NS, self.begin)
        finally:
            loop.put_away()

    def failed(self, error: BaseException) -> None:
        """Take an error that the program did not: one of lessor ends a process, others are the program's own fault."""
        if isinstance(error, AssertionError):
            self.world.fail(Violation("assertion", f"{self.name}: {error}", self.world.scheduler.now))
        elif isinstance(error, LessorError | asyncio.CancelledError):
            self.note(f"ends with {type(error).__name__}: {error}")
        else:
            self.world.stumble(error)

    def kill(self, for_ns: int) -> None:
        """Die without a word; begin again after a while."""
        if self.up:
            self._end()
            self.world.scheduler.at(self.world.scheduler.now + for_ns, self.begin)

    def _end(self) -> None:
        for engine in self.engines:
            for tenure in engine.leases():
                self.world.let_go(self, tenure)
        self.engines = []
        self.life += 1
        self.up = False

    # --- pauses ---------------------------------------------------------------------------------------------------

    def pause(self, for_ns: int) -> None:
        """Stand still for a while."""
        now = self.world.scheduler.now
        self.still_until = max(self.still_until, now + for_ns)
        self.world.trouble(self.name, Trouble.PAUSE, for_ns)

    def arm(self, for_ns: int) -> None:
        """Stand still when next about to send something."""
        self._armed_ns = for_ns

    def point(self) -> None:
        """Be about to send something."""
        if self._armed_ns:
            for_ns, self._armed_ns = self._armed_ns, 0
            self.pause(for_ns)
            this_thread().park(self.still_until)


class SimEngine(Engine):
    """Tells the world what its client believes."""

    def __init__(self, process: SimProcess, store: str | Store, holder: str | None, timeout: float) -> None:
        self._process = process
        super().__init__(store, holder=holder, timeout=timeout, host=process)
        process.engines.append(self)
        process.world.engines.append(self)

    def hold(self, tenure: Tenure) -> None:
        """Take the lease on."""
        super().hold(tenure)
        self._process.world.hold(self._process, tenure)

    def forget(self, tenure: Tenure) -> None:
        """Let go of a lease that is over."""
        if tenure.id in self.held:
            self._process.world.let_go(self._process, tenure)
        super().forget(tenure)


class SimClient(AsyncClient):
    """An `AsyncClient` whose store, clock and threads are simulated. The rest of it is the real one."""

    def __init__(self, process: SimProcess, **options: Any) -> None:
        self._process = process
        super().__init__(SimStore(process), **options)

    def _start(self, where: str | Store, holder: str | None, timeout: float) -> Engine:
        return SimEngine(self._process, where, holder, timeout)
