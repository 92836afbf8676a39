"""A node: the real acceptor, with a disk that loses what was not synced."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.paxos.acceptor import Acceptor, Config, Durable
from lessor.core.paxos.messages import Push, Reply, Request, Seed, SeedQuery
from lessor.core.paxos.starting import Seeding, Snapshot, shut_down, start
from lessor.sim.process import Process

if TYPE_CHECKING:
    from lessor.core.paxos.acceptor import Answer
    from lessor.sim.clock import SimClock
    from lessor.sim.world import World

COLLECT_NS = SECOND
TOP_UP_NS = 4 * SECOND
ASK_AGAIN_NS = 200 * MILLISECOND


class Disk:
    """What is on it, and what is on its way there."""

    def __init__(self) -> None:
        self.durable: Durable | None = None
        self.snapshot: Snapshot | None = None
        self.unsynced: list[Durable] = []

    def synced(self, durable: Durable) -> None:
        """Make a write certain. Writes that overtake each other never take a mark back."""
        had = self.durable or Durable(0, 0)
        self.durable = Durable(max(had.high_water, durable.high_water), max(had.span_ns, durable.span_ns))


class Node(Process):
    """One acceptor's process."""

    seeding_class = Seeding

    def __init__(self, world: World, name: str, clock: SimClock, wall_us: int) -> None:
        super().__init__(world, name, clock, wall_us)
        plan = world.plan
        self.config = Config(name, max_ttl_ns=plan.ttl_ns, max_lock_delay_ns=plan.lock_delay_ns, drift=plan.drift)
        self.disk = Disk()
        self._rates = Random(f"{plan.seed}/{name}/rates")
        self.ready = False
        self.clean = False
        """Whether it is down after a clean shutdown."""
        self.begin(new_cluster=True)

    # --- its life -------------------------------------------------------------------------------------------------

    def begin(self, *, new_cluster: bool = False) -> None:
        """Start with what is on the disk."""
        self.up, self.ready = True, False
        if self.world.plan.new_rates and not new_cluster:
            self.clock.change_rate(self.world.now, 1 + self.world.plan.drift * self._rates.choice((-1, 0, 1)))
        disk = self.disk
        begun = start(
            self.config,
            self.life,
            self.now,
            durable=disk.durable,
            snapshot=disk.snapshot,
            new_cluster=new_cluster,
            make=self.world.cast.acceptor,
        )
        if begun.persist is not None:
            disk.synced(begun.persist)
        self.acceptor: Acceptor = begun.acceptor
        self.seeding = self.seeding_class(begun.acceptor, len(self.world.plan.nodes))
        if begun.delete_snapshot:
            self.after(self._sync_ns(), self._open, True)
        else:
            self._open(delete_snapshot=False)

    def _open(self, delete_snapshot: bool) -> None:  # noqa: FBT001 - planned, hence without a name
        if delete_snapshot:
            self.delete_snapshot()
        self.ready = True
        self.world.checks.on_start(self)
        self.clean = False
        if self.acceptor.is_silent(self.now):
            self.world.span(self.name, "silence", begins=True)
            self.after(max(0, self.acceptor.silent_until_ns - self.now), self.world.end_of, self.name, "silence")
        self.after(self.rng.randrange(1, COLLECT_NS), self._collect)
        self._top_up()
        if not self.acceptor.seeded:
            self._ask_for_seed()

    def delete_snapshot(self) -> None:
        """Take the file of the clean shutdown off the disk, for good."""
        self.disk.snapshot = None

    def crash(self) -> None:
        """Die, with what was not synced: some of it may have reached the disk all the same."""
        for durable in self.disk.unsynced:
            if self.rng.random() < 0.5:
                self.disk.synced(durable)
        self.disk.unsynced.clear()
        self.clean = self.clean and not self.ready  # nothing was answered since the shutdown
        self.die()

    def shut_down(self) -> None:
        """End cleanly: all that is known goes to the disk."""
        for durable in self.disk.unsynced:
            self.disk.synced(durable)
        self.disk.unsynced.clear()
        if self.ready:
            self.disk.snapshot = shut_down(self.acceptor, self.now)
        self.clean = self.disk.snapshot is not None
        self.die()

    def lose_disk(self) -> None:
        """Have nothing any more."""
        self.disk = Disk()

    # --- its work -------------------------------------------------------------------------------------------------

    def receive(self, source: str, message: object) -> None:
        """Answer."""
        if not self.ready:
            return
        if isinstance(message, Request):
            checks = self.world.checks
            before = checks.before(self, message)
            answer = self.acceptor.handle(message, self.now, self.wall_us)
            checks.after(self, message, answer, before)
            self._write_then_send(source, message, answer)
        elif isinstance(message, SeedQuery):
            seed = self.acceptor.seed(message, self.now)
            if seed is not None:
                self._send(source, seed)
        elif isinstance(message, Seed):
            durable = self.seeding.on_seed(message, self.now)
            if durable is not None:
                self._write(durable, self._finish_seeding, durable)

    def _finish_seeding(self, durable: Durable) -> None:
        self.seeding.finish(durable)
        self.world.checks.on_seeded(self)

    def _write_then_send(self, source: str, request: Request, answer: Answer) -> None:
        if answer.persist is None:
            self._tell(source, request, answer)
        else:
            self._write(answer.persist, self._written, answer.persist, source, request, answer)

    def _written(self, durable: Durable, source: str, request: Request, answer: Answer) -> None:
        self.acceptor.persisted(durable)
        self._tell(source, request, answer)

    def _write(self, durable: Durable, then: object, *details: object) -> None:
        self.disk.unsynced.append(durable)
        self.after(self._sync_ns(), self._synced, durable, then, details)

    def _synced(self, durable: Durable, then: object, details: tuple[object, ...]) -> None:
        self.disk.unsynced.remove(durable)
        self.disk.synced(durable)
        then(*details)  # type: ignore[operator]

    def _sync_ns(self) -> int:
        return int(self.rng.random() ** 4 * 100 * MILLISECOND) + 1

    def _tell(self, source: str, request: Request, answer: Answer) -> None:
        if answer.reply is not None:
            self.world.checks.vouched(self, request, answer)
            self._send(source, answer.reply)
        if answer.push is not None:
            for address in dict.fromkeys(notice.address for notice in answer.push.notices):
                self._send(address, answer.push)

    def _send(self, target: str, message: Reply | Push | SeedQuery | Seed) -> None:
        self.world.checks.on_send(self, message)
        self.world.note(self.name, "sends", target, message)
        self.world.network.send(self.name, target, message)

    def _collect(self) -> None:
        self.acceptor.collect(self.now)
        self.world.checks.all_holding()
        self.after(COLLECT_NS, self._collect)

    def _top_up(self) -> None:
        mark = self.acceptor.top_up(self.wall_us)
        if mark is not None:
            self._write(mark, self.acceptor.persisted, mark)
        self.after(TOP_UP_NS, self._top_up)

    def _ask_for_seed(self) -> None:
        if self.acceptor.seeded:
            return
        if self.seeding.may_ask(self.now):
            for name in self.world.plan.nodes:
                if name != self.name:
                    # A question is no promise: it may be asked by one that must not answer.
                    self.world.network.send(self.name, name, self.seeding.query())
        self.after(ASK_AGAIN_NS, self._ask_for_seed)
