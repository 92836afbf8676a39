"""The acceptor, driven by frames: what is asked of it, what it pushes, and what it must have on disk before either.

All of it runs on the event loop's thread, so nothing here needs a lock. The disk has a thread of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from lessor import __version__
from lessor.core.clock import SECOND
from lessor.core.paxos.acceptor import REPLY_ROOM, Durable
from lessor.core.paxos.messages import Refused, Request, SeedQuery
from lessor.node.checking import problem
from lessor.node.connection import LADEN
from lessor.node.log import log
from lessor.stores.paxos import frames
from lessor.stores.paxos.frames import VERDICTS, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.paxos.messages import Push
    from lessor.node.acceptor import NodeAcceptor
    from lessor.node.connection import Connection
    from lessor.node.scribe import Scribe
    from lessor.node.settings import Settings
    from lessor.runtime.clock import AcceptorClock, SystemClock

KEEP_NS: Final = 10 * SECOND
"""How long a free resource is remembered: so that its last holder can be told what became of its lease."""
COUNT_EVERY_NS: Final = 5 * SECOND
"""To count the leases takes time, where there are a million."""
MOST_KEPT: Final = 256 * 1024 * 1024
"""Bytes that are kept for all clients together: of what they have yet to read, and of requests that aren't complete."""


class Pending(NamedTuple):
    """What is to be done once this is on the disk."""

    durable: Durable
    then: Callable[[], object]


class Census(NamedTuple):
    """How many there were when they were last counted."""

    live: int
    waiting: int
    at_ns: int


class Service:
    """One node."""

    def __init__(self, settings: Settings, acceptor: NodeAcceptor, clock: AcceptorClock, wall: SystemClock) -> None:
        self.settings = settings
        self.acceptor = acceptor
        self.clock = clock
        self.wall = wall
        self.scribe: Scribe
        """Set before the first connection."""
        self.closed = False
        """True once the state was taken that the next start goes on with: nothing is answered any more."""
        self.connections: set[Connection] = set()
        """Those that have greeted."""
        self.greeting: dict[Connection, None] = {}
        """Those that have yet to, in the order in which they came."""
        self.laden: set[Connection] = set()
        """Those for which much is kept."""
        self.counts: Counter[str] = Counter()
        self._called: dict[str, set[Connection]] = {}
        self._watching: dict[Connection, str] = {}
        self._pending: list[Pending] = []
        self._was_full = False
        self._census = Census(0, 0, -COUNT_EVERY_NS)

    # --- requests -------------------------------------------------------------------------------------------------

    def ask(self, asked: frames.Ask, connection: Connection) -> float:
        """Carry out a request, and answer once what was promised is on the disk; return how much of a turn it took."""
        if self.closed:
            return 0
        self.counts["requests"] += 1
        self.counts["items"] += len(asked.items)
        items = [frame.body for frame in asked.items]
        refused = {at: Refused(why) for at, item in enumerate(items) if (why := problem(item))}
        sound = [item for at, item in enumerate(items) if at not in refused] if refused else items
        now = self.clock.now()
        answer = self.acceptor.handle(Request(asked.serial, tuple(sound)), now, self.wall.wall_us())
        if answer.reply is None:
            connection.send(encode(frames.Silent(asked.serial, self.silence_left(now))))
            return 0
        verdicts = [VERDICTS[type(verdict)](verdict) for verdict in answer.reply.verdicts]
        for at, refusal in refused.items():
            verdicts.insert(at, VERDICTS[Refused](refusal))
        frame = encode(frames.Answer(asked.serial, verdicts))
        if answer.persist is None:
            connection.send(frame)
            if answer.push is not None:
                self._spread(answer.push)
            return 1 - self.acceptor.room / REPLY_ROOM
        push = answer.push

        connection.owe(frame)

        def tell() -> None:
            connection.pay(frame)
            if push is not None:
                self._spread(push)

        self.persist(answer.persist, tell)
        return 1 - self.acceptor.room / REPLY_ROOM

    def seed(self, serial: int) -> frames.Frame:
        """Answer a node that lost its disk."""
        now = self.clock.now()
        seed = self.acceptor.seed(SeedQuery(serial), now)
        if seed is None:
            return frames.Silent(serial, self.silence_left(now))
        return frames.Seeded(serial, seed.high_water, seed.span_ns)

    def sign_of_life(self, serial: int) -> frames.Frame:
        """Say that it is there; or that it is, and has nothing to tell those who listen."""
        now = self.clock.now()
        return frames.Silent(serial, self.silence_left(now)) if self.acceptor.is_silent(now) else frames.Pong(serial)

    def silence_left(self, now: int) -> int:
        """Return for how long nothing will be answered; 0 also where that depends on the other nodes."""
        return max(0, self.acceptor.silent_until_ns - now)

    @property
    def state(self) -> str:
        """Say in a word how it is."""
        if self.clock.now() < self.acceptor.silent_until_ns:
            return "silent"
        return "serving" if self.acceptor.seeded else "seeding"

    def status(self, serial: int) -> frames.Status:
        """Return what to show of this node."""
        now = self.clock.now()
        census = self.census(now)
        return frames.Status(
            serial,
            self.settings.id,
            self.state,
            self.silence_left(now),
            self.acceptor.floor,
            self.acceptor.durable.high_water,
            census.live,
            census.waiting,
            len(self.connections),
            now,
            round(self.clock.disagreement_ppm(), 3),
            __version__,
        )

    def census(self, now: int) -> Census:
        """Count the leases and those who wait, but not too often."""
        if now - self._census.at_ns >= min(COUNT_EVERY_NS, len(self.acceptor.slots) * 1000):
            live = waiting = 0
            for slot in self.acceptor.slots.values():
                live += slot.lease_id is not None and now < slot.expiry_ns
                if slot.waiting is not None:
                    waiting += sum(waiter.expiry_ns > now for waiter in slot.waiting.queue)
            self._census = Census(live, waiting, now)
        return self._census

    # --- the disk -------------------------------------------------------------------------------------------------

    def persisted(self, durable: Durable) -> None:
        """Go on with what waited for this."""
        self.acceptor.persisted(durable)
        self.counts["writes"] += 1
        on_disk = self.acceptor.durable
        waiting, self._pending = self._pending, []
        for pending in waiting:
            if pending.durable.high_water <= on_disk.high_water and pending.durable.span_ns <= on_disk.span_ns:
                pending.then()
            else:
                self._pending.append(pending)

    def persist(self, durable: Durable, then: Callable[[], object]) -> None:
        """Have this written, and then go on."""
        whole = durable._replace(span_ns=-(-durable.span_ns // SECOND) * SECOND)  # or each longer TTL is a write
        self._pending.append(Pending(whole, then))
        self.scribe.write(whole)

    def tick(self) -> None:
        """Do what is to be done every now and then."""
        self._make_room()
        now = self.clock.now()
        is_full = self.acceptor.is_full
        if is_full and not self._was_full:
            log("no room for more leases: --max-leases", level="error", kept=len(self.acceptor.slots))
        self._was_full = is_full
        self.acceptor.collect(now if is_full else now - KEEP_NS, max(1000, len(self.acceptor.slots) // 60))
        if not self.acceptor.is_silent(now):
            ahead = self.acceptor.top_up(self.wall.wall_us())
            if ahead is not None:
                self.scribe.write(ahead)

    def _make_room(self) -> None:
        """Drop those for which the most is kept, where that is too much for all together."""
        kept = {connection: connection.kept for connection in self.laden}
        self.laden = {connection for connection, size in kept.items() if size > LADEN}
        total = sum(kept.values())
        for connection in sorted(kept, key=kept.__getitem__, reverse=True):
            if total <= MOST_KEPT:
                break
            total -= kept[connection]
            self.counts["dropped for room"] += 1
            connection.drop("dropped: too much is kept for clients that don't read, or don't send to the end")

    def collect(self) -> None:
        """Forget all free resources now."""
        log("forgot free resources", count=self.acceptor.collect(self.clock.now(), len(self.acceptor.slots)))

    # --- those who listen -----------------------------------------------------------------------------------------

    def listen(self, connection: Connection, asked: frames.Listen) -> None:
        """Push to this connection from now on."""
        self._called.setdefault(asked.address, set()).add(connection)
        connection.addresses.add(asked.address)
        if asked.prefix is not None:
            self._watching[connection] = asked.prefix
            self.acceptor.watched = True

    def left(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        self.greeting.pop(connection, None)
        self.laden.discard(connection)
        for address in connection.addresses:
            others = self._called.get(address, set())
            others.discard(connection)
            if not others:
                self._called.pop(address, None)
        if self._watching.pop(connection, None) is not None:
            self.acceptor.watched = bool(self._watching)

    def _spread(self, push: Push) -> None:
        """Tell those whom it concerns."""
        self.counts["pushes"] += 1
        calls: dict[Connection, list[int]] = {}
        for at, notice in enumerate(push.notices):
            for connection in self._called.get(notice.address, ()):
                calls.setdefault(connection, []).append(at)
        for connection, mine in calls.items():
            notices = [push.notices[at] for at in mine]
            connection.push(encode(frames.News(push.floor, [], notices)))
        for connection, prefix in list(self._watching.items()):
            events = [event for event in push.events if event.resource.startswith(prefix)]
            if events:
                connection.push(encode(frames.News(push.floor, events, [])))
