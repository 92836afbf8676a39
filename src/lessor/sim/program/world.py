"""The world of one run of a user's program: its processes, the store, the wires between them, and what goes wrong."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from lessor.core.clock import SECOND
from lessor.errors import ConfigError
from lessor.sim.checks import Violation
from lessor.sim.program.faults import STORE, Trouble, draw
from lessor.sim.program.process import SimProcess, StoreClock
from lessor.sim.program.register import Register
from lessor.sim.program.threads import Scheduler
from lessor.sim.timeline import Span, Timeline
from lessor.stores.base import StoreURL
from lessor.stores.memory import MemoryStore, MemoryTable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lessor.runtime.engine import Engine
    from lessor.runtime.tenure import Tenure
    from lessor.sim.program.faults import Faults, Mishap


class ProgramWorld:
    """What a program is handed to set its stage: ``process`` and ``register``."""

    def __init__(self, seed: int, faults: Faults, seconds: float) -> None:
        self.seed = seed
        self.faults = faults
        self.span_ns = int(seconds * SECOND)
        self.scheduler = Scheduler()
        self.timeline = Timeline()
        self.notes: list[str] = []
        self.violation: Violation | None = None
        self.error: BaseException | None = None
        self.processes: dict[str, SimProcess] = {}
        self.engines: list[Engine] = []
        self.forced: set[str] = set()
        """Resources that somebody has revoked by force: there, two may hold at once."""
        self._cut: dict[str, int] = {}
        """By process, or for the store: until when it can't be reached."""
        self._under_way = 0
        """Writes that are yet to arrive."""
        rng = Random(f"{seed}/{STORE}")
        self.table = MemoryTable()
        clock = StoreClock(self, 1 + faults.drift * rng.uniform(-1, 1), rng.randrange(10**12))
        self.server = MemoryStore(StoreURL.parse("memory://simulated"), clock, self.table)

    # --- setting the stage ----------------------------------------------------------------------------------------

    def process(self, name: str, main: Callable[..., Awaitable[object]], *args: Any) -> SimProcess:
        """Add a process that runs ``main(process, *args)``, again and again until it returns."""
        if name in self.processes or name == STORE:
            raise ConfigError(f"there is a process named {name!r} already")
        process = self.processes[name] = SimProcess(self, name, main, args)
        return process

    def register(self, name: str, *, fenced: bool = False) -> Register:
        """Return something that processes write to; with a fence, it refuses stale tokens."""
        return Register(self, name, fenced=fenced)

    # --- living through it ----------------------------------------------------------------------------------------

    def run(self, mishaps: tuple[Mishap, ...] | None = None) -> tuple[Mishap, ...]:
        """Live through it, with these mishaps or with what the seed draws; return them."""
        if not self.processes:
            raise ConfigError("the program has no process: call world.process() in it")
        if mishaps is None:
            mishaps = draw(Random(f"{self.seed}/mishaps"), self.faults, [*self.processes], self.span_ns)
        for process in self.processes.values():
            process.begin()
        for mishap in mishaps:
            self.scheduler.at(mishap.at_ns, self._strike, mishap)
        try:
            self.scheduler.run(self.span_ns)
        finally:
            for engine in self.engines:
                engine.closed = True
                engine.batcher.close()
            self.scheduler.finish()
        if self.error is not None:
            raise self.error
        return mishaps

    @property
    def now(self) -> int:
        """True time, in nanoseconds from the start."""
        return self.scheduler.now

    def fail(self, violation: Violation) -> None:
        """Say what must not be, and end the run."""
        if self.violation is None and not self.scheduler.over:
            self.violation = violation
            self.scheduler.stop()

    def stumble(self, error: BaseException) -> None:
        """Take an error of the program itself, and end the run: it is raised to whoever runs it."""
        if self.error is None and not self.scheduler.over:
            error.add_note(f"in the simulated run of seed {self.seed}, at {self.now / SECOND:.6f} s")
            self.error = error
            self.scheduler.stop()

    def stop_if_done(self) -> None:
        """End the run once all processes have, and all that they wrote has arrived."""
        if not self._under_way and all(process.done for process in self.processes.values()):
            self.scheduler.stop()

    # --- the wires ------------------------------------------------------------------------------------------------

    def carry(self, process: SimProcess, action: Callable[..., None], *details: Any, reliably: bool = False) -> None:
        """Let something arrive that this process sends or is sent; to and from the store it may get lost."""
        faults, wires = self.faults, process.wires
        delay = faults.delay * (0.2 + wires.random())
        if wires.random() < faults.straying:
            delay += wires.random() * faults.late
        lost = wires.random() < faults.loss
        arrival = self.now + int(delay * SECOND)
        if reliably:
            self._under_way += 1
            self.scheduler.at(arrival, self._arrive, action, details)
        elif not lost:
            self.scheduler.at(arrival, self._arrive_if_reachable, process.name, action, details)

    def _arrive(self, action: Callable[..., None], details: tuple[Any, ...]) -> None:
        self._under_way -= 1
        action(*details)
        self.stop_if_done()

    def _arrive_if_reachable(self, name: str, action: Callable[..., None], details: tuple[Any, ...]) -> None:
        if self.now >= max(self._cut.get(name, 0), self._cut.get(STORE, 0)):
            action(*details)

    # --- what goes wrong ------------------------------------------------------------------------------------------

    def _strike(self, mishap: Mishap) -> None:
        if mishap.trouble in {Trouble.OUTAGE, Trouble.CUT}:
            self._cut[mishap.who] = max(self._cut.get(mishap.who, 0), self.now + mishap.for_ns)
            self.trouble(mishap.who, mishap.trouble, mishap.for_ns)
            return
        process = self.processes[mishap.who]
        if not process.up:
            return
        if mishap.trouble is Trouble.KILL:
            self.trouble(mishap.who, mishap.trouble, mishap.for_ns)
            process.kill(mishap.for_ns)
        elif mishap.aimed:
            process.arm(mishap.for_ns)
        else:
            process.pause(mishap.for_ns)

    def trouble(self, who: str, trouble: Trouble, for_ns: int) -> None:
        """Take note of something that lasts for a while."""
        self.note(who, f"{trouble}, for {for_ns / SECOND:.3f} s")
        self.timeline.spans.append(Span(who, str(trouble), self.now, self.now + for_ns))

    # --- who believes what ----------------------------------------------------------------------------------------

    def granted(self, process: SimProcess, resource: str, token: int) -> None:
        """See that nobody else believes in the resource when the store grants it."""
        for other in self.processes.values():
            for tenure in (held for engine in other.engines for held in engine.leases()):
                if tenure.resource == resource and tenure.token < token and tenure.held and resource not in self.forced:
                    what = f"{process.name} was granted {resource} with token {token} while {other.name} still held it"
                    self.fail(Violation("overlap", what, self.now))

    def hold(self, process: SimProcess, tenure: Tenure) -> None:
        """Take note that a process begins to believe."""
        self.note(process.name, f"holds {tenure.resource}, token {tenure.token}")
        self.timeline.begin(process.name, f"holds {tenure.resource}", self.now)

    def let_go(self, process: SimProcess, tenure: Tenure) -> None:
        """Take note that it doesn't any more; one that stood still has stopped to believe at its deadline."""
        ended = min(self.now, process.clock.when(tenure._belief.deadline_ns))
        self.note(process.name, f"holds {tenure.resource} no more: {tenure._belief.loss or 'it died'}")
        self.timeline.end(process.name, f"holds {tenure.resource}", ended)

    # --- the story ------------------------------------------------------------------------------------------------

    def note(self, who: str, text: str) -> None:
        """Write it down."""
        if not self.scheduler.over:
            self.notes.append(f"{self.now / SECOND:12.6f}  {who:10} {text}")

    def mark(self, who: str, what: str) -> None:
        """Mark a moment in the timeline."""
        self.timeline.spans.append(Span(who, what, self.now, self.now))
