"""One world: its processes, its network, its faults, and time, which passes from one event to the next."""

from __future__ import annotations

import heapq
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from lessor.core.ops import Revoke
from lessor.core.paxos.acceptor import Acceptor
from lessor.core.paxos.ballots import DAY_US
from lessor.core.paxos.messages import End
from lessor.core.paxos.proposer import Proposer
from lessor.core.paxos.session import Session
from lessor.sim.checks import Checks
from lessor.sim.client import Client
from lessor.sim.clock import SimClock
from lessor.sim.network import Network
from lessor.sim.node import Node
from lessor.sim.plan import Fault, FaultKind, Plan, draw
from lessor.sim.session_client import SessionClient
from lessor.sim.tally import Tally
from lessor.sim.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.sim.process import Process

EPOCH_US = 1_700_000_000_000_000
MONTH_US = 30 * DAY_US


class Cast(NamedTuple):
    """Who plays whom: the real ones or, to see that the checks would notice, wrong ones."""

    acceptor: type[Acceptor] = Acceptor
    proposer: type[Proposer] = Proposer
    session: type[Session] = Session
    node: type[Node] = Node
    client: type[Client] = Client
    session_client: type[SessionClient] = SessionClient


class World:
    """Everything that happens from one seed."""

    def __init__(self, plan: Plan, cast: Cast | None = None, *, tracing: bool = False) -> None:
        self.plan = plan
        self.cast = cast or Cast()
        self.trace: list[str] | None = [] if tracing else None
        self.timeline = Timeline() if tracing else None
        self.now = 0
        self.calm = False
        self.tally = Tally(worlds=1)
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        rng = Random(f"world/{plan.seed}")
        self._rng = rng
        self.network = Network(self, plan, rng)
        self.checks = Checks(self)
        rates = dict(plan.rates)
        self.tally.drifted = sum(rate != 1 for rate in rates.values())
        self.nodes: list[Node] = []
        self.clients: list[Client] = []
        self.processes: dict[str, Process] = {}
        for name in plan.nodes:
            clock, wall_us = SimClock(rates[name], rng.randrange(10**12)), self._wall()
            node = self.cast.node(self, name, clock, wall_us + MONTH_US * (name in plan.ahead))
            self.nodes.append(node)
            self.processes[name] = node
        for number, name in enumerate(plan.clients):
            kind = self.cast.session_client if plan.sessions and number == 0 else self.cast.client
            client = kind(self, name, SimClock(rates[name], rng.randrange(10**12)), self._wall())
            self.clients.append(client)
            self.processes[name] = client
        for fault in plan.faults:
            self.at(fault.at_ns, self.strike, fault)
        self.at(plan.active_ns // 2, self.set_right)
        self.at(plan.active_ns, self.become_calm)

    def _wall(self) -> int:
        """Return a wall clock's offset: they are wrong by minutes."""
        return EPOCH_US + self._rng.randrange(-120_000_000, 120_000_000)

    def set_right(self) -> None:
        """Set the wall clocks right that were a month ahead."""
        for name in self.plan.ahead:
            self.tally.ahead += 1
            self.processes[name].set_wall(-MONTH_US)

    # --- time -----------------------------------------------------------------------------------------------------

    def at(self, when_ns: int, action: Callable[..., None], *details: Any) -> None:
        """Let something happen at a true time."""
        self._serial += 1
        heapq.heappush(self._events, (when_ns, self._serial, action, details))

    def run(self) -> Tally:
        """Live through it. Raises `Violation`."""
        events, end = self._events, self.plan.active_ns + self.plan.calm_ns
        while events[0][0] <= end and not self.checks.all_had:
            self.now, _, action, details = heapq.heappop(events)
            action(*details)
        self.checks.at_the_end()
        return self.tally

    def span(self, who: str, what: str, *, begins: bool) -> None:
        """Note when something begins or ends that lasts, where somebody wants to see it."""
        if self.timeline is not None:
            (self.timeline.begin if begins else self.timeline.end)(who, what, self.now)

    def note(self, who: str, what: str, whom: str, message: object = "") -> None:
        """Write it down, where somebody wants to read it."""
        if self.trace is not None:
            self.trace.append(f"{self.now / 1e9:12.6f}  {who:4} {what:14} {whom:6} {message}")

    # --- what goes wrong ------------------------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:
        """Let something go wrong."""
        self.note(",".join(fault.who), str(fault.kind), "", f"{fault.for_ns / 1e9:.3f} s")
        for who in fault.who if fault.kind is not FaultKind.STALL else ():
            self.span(who, str(fault.kind), begins=True)
            self.at(self.now + max(fault.for_ns, 0), self.end_of, who, str(fault.kind))
        if fault.kind is FaultKind.PARTITION:
            self.tally.partitions += 1
            group = frozenset(fault.who)
            self.network.groups.append(group)
            self.at(self.now + fault.for_ns, self.mend, self.network.groups, group)
            return
        if fault.kind is FaultKind.DEAFNESS:
            self.tally.deaf += 1
            group = frozenset(fault.who)
            self.network.deaf.append(group)
            self.at(self.now + fault.for_ns, self.mend, self.network.deaf, group)
            return
        if fault.kind in {FaultKind.REVOCATION, FaultKind.FORCE}:
            resource = self.plan.resources[fault.at_ns % len(self.plan.resources)]
            asked = End(Revoke(resource, force=fault.kind is FaultKind.FORCE))
            self.clients[-1].transmit((asked,), [], list(fault.who))
            return
        for process in [self.processes[who] for who in fault.who]:
            self.befall(process, fault)

    def befall(self, process: Process, fault: Fault) -> None:
        """Let something go wrong with one process."""
        if fault.kind is FaultKind.STOP:
            self.tally.stops += 1
            process.stop(fault.for_ns)
        elif fault.kind is FaultKind.STALL:
            assert isinstance(process, Client)
            process.stall_ns = fault.for_ns
        elif fault.kind is FaultKind.JUMP:
            self.tally.jumps += 1
            process.clock.jump(self.now, fault.for_ns)
        elif fault.kind is FaultKind.FREEZE:
            self.tally.freezes += 1
            process.stop(fault.for_ns)
            self.at(self.now + fault.for_ns - 1, process.clock.jump, self.now + fault.for_ns - 1, -fault.for_ns)
        elif process.up:
            if isinstance(process, Node):
                self.take_down(process, fault.kind)
            else:
                self.tally.deaths += 1
                process.die()
            self.at(self.now + fault.for_ns, self.bring_back, process)

    def end_of(self, who: str, what: str) -> None:
        """Note that something is over."""
        self.span(who, what, begins=False)

    def take_down(self, node: Node, kind: FaultKind) -> None:
        """End a node."""
        if kind is FaultKind.SHUTDOWN:
            self.tally.shutdowns += 1
            node.shut_down()
            return
        self.tally.crashes += 1
        node.crash()
        if kind in {FaultKind.LOST_DISK, FaultKind.REPLACED}:
            self.tally.lost_disks += 1
            node.lose_disk()
            self.checks.on_lost_disk(node)
        if kind in {FaultKind.REPLACED, FaultKind.LOWERED}:
            node.config = node.config._replace(max_ttl_ns=node.config.max_ttl_ns // 2)

    def bring_back(self, process: Process) -> None:
        """Begin a new life."""
        if not process.up:
            self.note(process.name, "begins", "")
            process.begin()  # type: ignore[attr-defined]

    def mend(self, groups: list[frozenset[str]], group: frozenset[str]) -> None:
        """End a partition."""
        if group in groups:
            groups.remove(group)

    def become_calm(self) -> None:
        """Let nothing go wrong any more."""
        self.note("all", "calm", "")
        self.calm = True
        self.network.calm()
        for process in self.processes.values():
            process.still_until = self.now
            self.bring_back(process)
        for node in self.nodes:
            node.config = node.config._replace(max_ttl_ns=self.plan.ttl_ns)
            node.acceptor.config = node.config

    def write(self, resource: str, token: int, owner: str) -> None:
        """Let a write arrive, now or much later."""
        delay = self._rng.random() ** 6 * 2 * self.plan.ttl_ns
        self.at(self.now + int(delay), self.checks.on_write, resource, token, owner)


def simulate(seed: int, cast: Cast | None = None, *, tracing: bool = False) -> World:
    """Make the world of a seed, and live through it."""
    world = World(draw(seed), cast, tracing=tracing)
    world.run()
    return world
