"""A world without chance: nothing happens but what a test says, and messages take a millisecond unless it says so."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.ops import Loss, Release
from lessor.core.paxos.messages import Reply, Request
from lessor.sim.client import Client
from lessor.sim.network import Network
from lessor.sim.node import Node
from lessor.sim.plan import Plan
from lessor.sim.session_client import SessionClient
from lessor.sim.world import Cast, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.sim.tenancy import Tenancy

FOR_EVER = 10**15
NODES = ("a", "b", "c")
CLIENTS = ("c0", "c1", "c2")


class Told(Client):
    """Does what it is told, and holds what it gets."""

    def rest(self) -> None:
        pass

    def next_turn(self) -> None:
        pass

    def queues_up(self) -> bool:
        return False

    def hold_ns(self) -> int:
        return FOR_EVER

    def release(self, resource: str) -> None:
        self.give_back(self.tenancies[resource])

    def renew(self, resource: str) -> None:
        tenancy = self.tenancies[resource]
        self.do(tenancy, self.renewal(tenancy))

    def want_again(self, resource: str) -> None:
        self.turns += 1
        self.want(resource)

    def hand_over(self, resource: str, heir: str) -> None:
        tenancy = self.tenancies[resource]
        state = f"{tenancy.proposer.token}/{heir}"
        op = Release(resource, tenancy.owner, successor=heir, state=state, reserve_ns=10 * SECOND)
        self.let_go(tenancy, Loss.RELEASED)
        self.do(tenancy, tenancy.proposer.release(op, self.now))

    def has(self, resource: str) -> bool:
        tenancy: Tenancy | None = self.tenancies.get(resource)
        return tenancy is not None and tenancy.is_valid(self.now)


class Actor(Told):
    pass


class SessionActor(Told, SessionClient):
    """Holds what it gets under a session."""

    def renew_the_session(self) -> None:
        assert self.session is not None
        self.do(self.session, self.renewal(self.session))


class Fate(NamedTuple):
    """What becomes of messages of one kind between two processes: they arrive after each of these spans."""

    source: str
    target: str
    kind: type
    """Of the first item of a request, or of the first verdict of a reply."""
    delays_ns: tuple[int, ...]
    until_ns: int = FOR_EVER
    from_ns: int = 0


class StageNetwork(Network):
    """Delays, copies and loses what it is told to."""

    def __init__(self, world: World, fates: list[Fate]) -> None:
        super().__init__(world, world.plan, world._rng)
        self.fates = fates

    def send(self, source: str, target: str, message: object) -> None:
        for delay in self._delays(source, target, message):
            self.world.at(self.world.now + delay, self.arrive, source, target, message)

    def _delays(self, source: str, target: str, message: object) -> tuple[int, ...]:
        first: object = message
        if isinstance(message, Request):
            first = message.items[0]
        elif isinstance(message, Reply):
            first = message.verdicts[0]
        for fate in self.fates:
            here = (fate.source, fate.target) == (source, target) and fate.from_ns <= self.world.now < fate.until_ns
            if here and isinstance(first, fate.kind):
                return fate.delays_ns
        return (MILLISECOND,)


class _Steady(Node):
    """Has a disk that is always as quick, and forgets nothing."""

    def _sync_ns(self) -> int:
        return MILLISECOND

    def _collect(self) -> None:
        pass


class Stage:
    """Three nodes, three clients, good clocks."""

    def __init__(
        self,
        cast: Cast,
        *,
        ttl_ns: int = SECOND,
        fates: tuple[Fate, ...] = (),
        clocks: bool = True,
        sessions: bool = False,
    ) -> None:
        plan = Plan(
            seed=0,
            nodes=NODES,
            clients=CLIENTS,
            resources=("x",),
            ttl_ns=ttl_ns,
            lock_delay_ns=0,
            active_ns=FOR_EVER,
            delay_ns=MILLISECOND,
            loss=0.0,
            copies=0.0,
            straying=0.0,
            sessions=sessions,
            clock_failures=not clocks,
            rates=tuple((name, 1.0) for name in (*NODES, *CLIENTS)),
            faults=(),
        )
        node = type("StageNode", (_Steady, cast.node), {})
        self.world = World(plan, cast._replace(client=Actor, session_client=SessionActor, node=node))
        self.world.network = StageNetwork(self.world, list(fates))
        for process in self.world.processes.values():
            process._wall_us = 1_700_000_000_000_000
        self.clients = {client.name: client for client in self.world.clients}
        self.nodes = {node.name: node for node in self.world.nodes}

    def client(self, name: str) -> Told:
        actor = self.clients[name]
        assert isinstance(actor, Told)
        return actor

    def at(self, when_ns: int, action: Callable[..., object], *details: object) -> None:
        self.world.at(when_ns, lambda: (action(*details), None)[1])

    def stand_still(self, name: str, from_ns: int, to_ns: int) -> None:
        """Stop a process together with its clock, as a virtual machine may be."""
        process = self.world.processes[name]
        self.at(from_ns, process.stop, to_ns - from_ns)
        self.at(to_ns - 1, lambda: process.clock.jump(self.world.now, from_ns - to_ns))

    def run(self, until_ns: int) -> None:
        """Let things happen up to this time."""
        events = self.world._events
        while events and events[0][0] <= until_ns:
            self.world.now, _, action, details = heapq.heappop(events)
            action(*details)
