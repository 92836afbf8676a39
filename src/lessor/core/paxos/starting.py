"""How an acceptor begins. What it forgot may still be relied upon, so it is silent for as long as that can be.

==========================  ========================================================================================
after a crash               nothing is known but what is on the disk: silence, and no number up to the high-water mark
after a clean shutdown      all is known, and it goes on at once; the file is gone from the disk before it answers, or
                            the next crash would find it
with an empty disk          silence, for as long as anybody may have been kept out by its predecessor, by its own
                            settings and the others'; and then, not earlier, it asks these how high the numbers may
                            have gone
in a new cluster            nothing was ever promised: said by hand, since no node can know it
==========================  ========================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lessor.core.paxos.acceptor import Acceptor, Durable
from lessor.core.paxos.ballots import majority
from lessor.core.paxos.messages import SeedQuery
from lessor.core.paxos.slot import Frozen  # noqa: TC001 - whatever makes a file of snapshots reads their types

if TYPE_CHECKING:
    from lessor.core.paxos.acceptor import Config
    from lessor.core.paxos.messages import Seed

NOTHING_PROMISED = Durable(0, 0)


class Snapshot(NamedTuple):
    """What a clean shutdown leaves."""

    floor: int
    slots: tuple[Frozen, ...]
    silence_left_ns: int = 0
    """What was left of an earlier silence."""
    version: int = 1


class Start(NamedTuple):
    """A new acceptor, and what has to be on the disk, and synced, before its first answer."""

    acceptor: Acceptor
    delete_snapshot: bool
    """The snapshot's file has to be gone."""
    persist: Durable | None = None
    """This has to be written: from here on the disk is not empty, and the cluster not new."""


def start(
    config: Config,
    incarnation: int,
    now: int,
    *,
    durable: Durable | None,
    snapshot: Snapshot | None = None,
    new_cluster: bool = False,
    make: type[Acceptor] = Acceptor,
) -> Start:
    """Make an acceptor from what is on the disk. ``durable`` is None where there is nothing."""
    if durable is None and new_cluster:
        acceptor = make(config, NOTHING_PROMISED, incarnation)
        return Start(acceptor, snapshot is not None, persist=NOTHING_PROMISED)
    if durable is None:
        silent_until = now + silence(config.longest_span_ns, config.drift)
        acceptor = make(config, NOTHING_PROMISED, incarnation, silent_until_ns=silent_until)
        acceptor.seeded = False
        return Start(acceptor, snapshot is not None)
    if snapshot is None:
        acceptor = make(config, durable, incarnation, silent_until_ns=now + silence(durable.span_ns, config.drift))
        acceptor.floor = durable.high_water
        return Start(acceptor, delete_snapshot=False)
    acceptor = make(config, durable, incarnation, silent_until_ns=now + snapshot.silence_left_ns)
    acceptor.floor = snapshot.floor
    for frozen in snapshot.slots:
        acceptor.adopt(frozen.thaw(now))
    return Start(acceptor, delete_snapshot=True)


def silence(span_ns: int, drift: float) -> int:
    """Return how long to be silent, so that it is at least the span by the clock of before: the rates may differ.

    No holder's deadline rests on the difference: it counts from before the request, and is short of the span by the drift
    of two clocks, so even the bare span outlasts it. The difference is for all others: a restart opens no resource before
    its record, or the lock delay after it, would have run out without the restart.
    """
    return int(span_ns * (1 + drift) / (1 - drift)) + 1


def shut_down(acceptor: Acceptor, now: int) -> Snapshot | None:
    """Return what to write at a clean shutdown, after the last answer; None where the next start must seed as well."""
    if not acceptor.seeded:
        return None
    slots = tuple([slot.freeze(now) for slot in acceptor.slots.values()])
    return Snapshot(acceptor.floor, slots, max(0, acceptor.silent_until_ns - now))


class Seeding:
    """How a node that lost its disk learns how high the numbers may have gone. It asks after the silence only.

    Every majority that its predecessor was part of meets the others that answer here, if these are a majority of the
    others. During the silence such a majority may still have been completed: hence after it.

    How long that silence has to be, the node's own settings don't say: they may not be its predecessor's. So if any of
    the others may keep somebody out for longer, it goes on for as long as they do, and they are asked once more.
    """

    def __init__(self, acceptor: Acceptor, acceptors: int) -> None:
        self.acceptor = acceptor
        self.needed = majority(acceptors - 1)
        self._began_ns = acceptor.silent_until_ns - silence(acceptor.config.longest_span_ns, acceptor.config.drift)
        self._round = 0
        self._heard: dict[str, int] = {}

    def may_ask(self, now: int) -> bool:
        """Whether it is time to ask the others."""
        return not self.acceptor.seeded and now >= self.acceptor.silent_until_ns

    def query(self) -> SeedQuery:
        """Return what to ask them."""
        return SeedQuery(self.acceptor.incarnation << 16 | self._round)

    def on_seed(self, seed: Seed, now: int) -> Durable | None:
        """Take an answer in. Once they are enough, return what to write before `finish`."""
        if not self.may_ask(now) or seed.acceptor == self.acceptor.config.id or seed.serial != self.query().serial:
            return None
        silent_until = self._began_ns + silence(seed.span_ns, self.acceptor.config.drift)
        if silent_until > self.acceptor.silent_until_ns:
            self.acceptor.silent_until_ns = silent_until
            self._round += 1
            self._heard.clear()
            return None
        self._heard[seed.acceptor] = max(seed.high_water, self._heard.get(seed.acceptor, 0))
        if len(self._heard) < self.needed:
            return None
        return Durable(max(self._heard.values()), 0)

    def finish(self, durable: Durable) -> None:
        """Begin to answer: the mark is on the disk."""
        self.acceptor.persisted(durable)
        self.acceptor.floor = max(self.acceptor.floor, durable.high_water)
        self.acceptor.seeded = True
