"""What happens in one world: its size, its network, its clocks, and the faults, all drawn from one seed beforehand.

A plan is data, so a failing one can be made shorter, one fault after the other, and be run again.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import NamedTuple

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.timing import UNSLEWED_DRIFT

DRIFT = UNSLEWED_DRIFT
"""The bound on a clock's rate that the protocol assumes by default."""


class FaultKind(StrEnum):
    """What can go wrong."""

    CRASH = "crash"
    """A node dies, with what its disk had not synced, and comes back. Now and then all of them do, at once."""
    SHUTDOWN = "shutdown"
    """A node is restarted cleanly."""
    LOST_DISK = "lost disk"
    """A node dies and is replaced by one with its name and an empty disk."""
    REPLACED = "replaced"
    """The same, and its successor has a setting that allows only shorter leases."""
    LOWERED = "lowered maximum"
    """A node dies and comes back with a setting that allows only shorter leases."""
    STOP = "stop"
    """A process stands still, and then goes on as if nothing had been."""
    STALL = "stall"
    """A client stands still as soon as its next request has left."""
    DEATH = "death"
    """A client dies, and a new one begins."""
    PARTITION = "partition"
    """Some hear nothing of the others, nor the others of them."""
    DEAFNESS = "deafness"
    """Some hear nothing of the others, and are heard."""
    REVOCATION = "revocation"
    """Somebody revokes a lease, and only some nodes hear of it."""
    FORCE = "forced revocation"
    """The same by force: the lease ends there at once, while its holder still believes in it."""
    JUMP = "clock jump"
    """A clock leaves the bound that is assumed of it."""
    FREEZE = "freeze"
    """A process stands still together with its clock, as a paused virtual machine does."""


class Fault(NamedTuple):
    """One thing that goes wrong."""

    at_ns: int
    kind: FaultKind
    who: tuple[str, ...]
    for_ns: int
    """How long it lasts; for a jump, how far."""


class Plan(NamedTuple):
    """One world."""

    seed: int
    nodes: tuple[str, ...]
    clients: tuple[str, ...]
    resources: tuple[str, ...]
    ttl_ns: int
    lock_delay_ns: int
    active_ns: int
    """For how long there are faults. Then the world is calm, and what is free must be had soon."""
    delay_ns: int
    loss: float
    copies: float
    straying: float
    """Messages that arrive after a long time, when nobody expects them any more."""
    sessions: bool
    clock_failures: bool
    rates: tuple[tuple[str, float], ...]
    faults: tuple[Fault, ...]
    ahead: tuple[str, ...] = ()
    """Nodes whose wall clocks are a month ahead in the first half of the faults. A crash makes that their floor."""
    drift: float = DRIFT
    """The bound on the rates of the clocks that all assume. With a wide one, the rates matter more."""
    whims: bool = False
    """Whether clients ask for more than a TTL: priorities, a grace, soft limits, handovers."""
    grows: bool = False
    """Whether leases are acquired for half of the TTL, and then renewed for all of it."""
    fickle: bool = False
    """Whether clients abandon acquisitions that have just begun, some of them by the lease id alone."""
    echoes: float = 0.0
    """Copies of requests that arrive after a long time."""
    new_rates: bool = False
    """Whether a node that begins again has a clock of another rate."""

    @property
    def calm_ns(self) -> int:
        """How long the calm lasts: long enough for any silence, any lease, and some retries."""
        return 4 * (self.ttl_ns + self.lock_delay_ns) + 3 * SECOND


def draw(seed: int) -> Plan:
    """Draw a world."""
    rng = Random(f"lessor/{seed}")
    nodes = tuple("abcde"[: 5 if rng.random() < 0.2 else 3])
    clients = tuple(f"c{number}" for number in range(rng.choice((2, 3, 3, 4))))
    resources = ("x", "y")[: rng.choice((1, 1, 2))]
    ttl = rng.choice((600, 1000, 1500)) * MILLISECOND
    clock_failures = rng.random() < 0.15
    active = rng.randrange(5, 11) * ttl
    everybody = (*nodes, *clients)
    whims = Random(f"whims/{seed}").random() < 0.4
    drift = DRIFT * Random(f"drift/{seed}").choice((1, 1, 10))
    faults = sorted(
        _fault(rng, nodes, clients, ttl, active, clock_failures=clock_failures) for _ in range(rng.randrange(2, 9))
    )
    return Plan(
        seed=seed,
        nodes=nodes,
        clients=clients,
        resources=resources,
        ttl_ns=ttl,
        lock_delay_ns=rng.choice((0, 0, ttl // 2)),
        active_ns=active,
        delay_ns=rng.choice((1, 5, 30)) * MILLISECOND,
        loss=rng.choice((0.0, 0.02, 0.1)),
        copies=rng.choice((0.0, 0.05)),
        straying=rng.choice((0.0, 0.02, 0.05)),
        sessions=rng.random() < 0.25,
        clock_failures=clock_failures,
        rates=tuple((who, 1 + drift * rng.choice((-1, -1, 1, 1, 0, rng.uniform(-1, 1)))) for who in everybody),
        faults=_few_lost_disks(
            sorted(
                [
                    *_replacing(seed, faults),
                    *_revocations(seed, nodes, active),
                    *([] if whims else _forced(seed, nodes, active)),
                    *_stalls(seed, clients, ttl, active),
                    *_deafness(seed, everybody, ttl, active),
                    *(_freezes(seed, everybody, ttl, active) if clock_failures else ()),
                ]
            ),
            len(nodes),
        ),
        ahead=_ahead(Random(f"lessor/{seed}/ahead"), nodes),
        drift=drift,
        whims=whims,
        grows=Random(f"grows/{seed}").random() < 0.3,
        fickle=Random(f"fickle/{seed}").random() < 0.3,
        echoes=Random(f"echoes/{seed}").choice((0.0, 0.0, 0.2)),
        new_rates=Random(f"new rates/{seed}").random() < 0.5,
    )


def _ahead(rng: Random, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Draw a minority, now and then."""
    return tuple(rng.sample(nodes, rng.randrange(1, len(nodes) // 2 + 1))) if rng.random() < 0.2 else ()


def _replacing(seed: int, faults: list[Fault]) -> list[Fault]:
    """Let some of the nodes that lose their disk have a successor with another setting."""
    rng = Random(f"lessor/{seed}/replaced")
    lost = FaultKind.LOST_DISK
    return [
        fault._replace(kind=FaultKind.REPLACED) if fault.kind is lost and rng.random() < 0.3 else fault
        for fault in faults
    ]


def _revocations(seed: int, nodes: tuple[str, ...], active: int) -> list[Fault]:
    """Draw some, from a seed of their own."""
    rng = Random(f"lessor/{seed}/revocations")
    if rng.random() < 0.5:
        return []
    told = [tuple(rng.sample(nodes, rng.randrange(1, len(nodes) + 1))) for _ in range(rng.randrange(1, 6))]
    return [Fault(rng.randrange(active), FaultKind.REVOCATION, who, 0) for who in told]


def _forced(seed: int, nodes: tuple[str, ...], active: int) -> list[Fault]:
    """Draw some, likewise."""
    rng = Random(f"lessor/{seed}/forced")
    if rng.random() < 0.7:
        return []
    told = [tuple(rng.sample(nodes, rng.randrange(1, len(nodes) + 1))) for _ in range(rng.randrange(1, 13))]
    return [Fault(rng.randrange(active), FaultKind.FORCE, who, 0) for who in told]


def _stalls(seed: int, clients: tuple[str, ...], ttl: int, active: int) -> list[Fault]:
    """Draw some, likewise."""
    rng = Random(f"lessor/{seed}/stalls")
    if rng.random() < 0.7:
        return []
    stalled = [(rng.choice(clients),) for _ in range(rng.randrange(1, 5))]
    return [Fault(rng.randrange(active), FaultKind.STALL, who, int(ttl * rng.uniform(0.5, 2))) for who in stalled]


def _freezes(seed: int, everybody: tuple[str, ...], ttl: int, active: int) -> list[Fault]:
    """Draw some, likewise."""
    rng = Random(f"lessor/{seed}/freezes")
    frozen = [(rng.choice(everybody),) for _ in range(rng.randrange(4))]
    return [Fault(rng.randrange(active), FaultKind.FREEZE, who, int(ttl * rng.uniform(0.5, 3))) for who in frozen]


def _deafness(seed: int, everybody: tuple[str, ...], ttl: int, active: int) -> list[Fault]:
    """Draw some, likewise."""
    rng = Random(f"lessor/{seed}/deafness")
    if rng.random() < 0.7:
        return []
    deaf = [tuple(rng.sample(everybody, rng.randrange(1, len(everybody) - 1))) for _ in range(rng.randrange(1, 4))]
    return [Fault(rng.randrange(active), FaultKind.DEAFNESS, who, int(ttl * rng.uniform(0.01, 2))) for who in deaf]


def _fault(
    rng: Random, nodes: tuple[str, ...], clients: tuple[str, ...], ttl: int, active: int, *, clock_failures: bool
) -> Fault:
    apart = {
        FaultKind.REPLACED,
        FaultKind.STALL,
        FaultKind.REVOCATION,
        FaultKind.FORCE,
        FaultKind.DEAFNESS,
        FaultKind.FREEZE,
    }
    left_out = apart if clock_failures else apart | {FaultKind.JUMP}
    kinds = [kind for kind in FaultKind if kind not in left_out]
    kind = rng.choice([*kinds, FaultKind.CRASH, FaultKind.STOP, FaultKind.PARTITION])
    at = rng.randrange(active)
    lasts = int(ttl * rng.choice((0.01, 0.1, 0.5, 1, 2)) * rng.uniform(0.5, 1.5))
    if kind is FaultKind.CRASH and rng.random() < 0.15:
        return Fault(at, kind, nodes, lasts)
    if kind in {FaultKind.CRASH, FaultKind.SHUTDOWN, FaultKind.LOST_DISK, FaultKind.LOWERED}:
        return Fault(at, kind, (rng.choice(nodes),), lasts)
    if kind is FaultKind.PARTITION:
        everybody = [*nodes, *clients]
        return Fault(at, kind, tuple(rng.sample(everybody, rng.randrange(1, len(everybody) - 1))), lasts)
    if kind is FaultKind.DEATH:
        return Fault(at, kind, (rng.choice(clients),), lasts)
    if kind is FaultKind.STOP:
        return Fault(at, kind, (rng.choice([*nodes, *clients, *clients]),), lasts)
    return Fault(at, kind, (rng.choice([*nodes, *clients]),), lasts * rng.choice((-1, 1)))


def _few_lost_disks(faults: list[Fault], nodes: int) -> tuple[Fault, ...]:
    """Leave those of a minority: the loss of a majority's disks is beyond what is promised."""
    kinds = {FaultKind.LOST_DISK, FaultKind.REPLACED}
    lost = dict.fromkeys(fault.who for fault in faults if fault.kind in kinds)
    may = list(lost)[: (nodes - 1) // 2]
    return tuple(fault for fault in faults if fault.kind not in kinds or fault.who in may)
