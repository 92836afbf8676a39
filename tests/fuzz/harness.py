"""A node's connection, driven by any bytes, in one thread and in virtual time; and what must be true whatever they are.

The first byte says how the client behaves. What follows is either frames, one after the other, with a length of two bytes
each, or what requests are built from, so that also what is well-formed is found out about.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from lessor.core import ops
from lessor.core.clock import MILLISECOND
from lessor.core.lease import TOKEN_LIMIT
from lessor.core.paxos import messages as m
from lessor.core.paxos.acceptor import REPLY_ROOM
from lessor.core.paxos.ballots import DAY_US
from lessor.core.paxos.starting import NOTHING_PROMISED, start
from lessor.node import connection as connections
from lessor.node.acceptor import NodeAcceptor
from lessor.node.connection import MOST_UNREAD, Connection
from lessor.node.service import Service
from lessor.node.settings import Settings
from lessor.stores.paxos import frames, handshake
from lessor.stores.paxos.address import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.paxos.acceptor import Durable

NO_GREETING, DEAF, BUILT, RAW = 1, 2, 4, 8
"""Bits of the first byte: it doesn't greet, it doesn't read, requests are built, and frames have no length of their own."""
WALL_US: Final = 1_790_000_000_000_000
SECONDS_A_FRAME: Final = 2.0
MOST_OUT: Final = 2 * REPLY_ROOM + MOST_UNREAD
"""Bytes that may wait for a client that doesn't read."""
HIGH_WATER: Final = 64 * 1024


class Finding(AssertionError):  # noqa: N818 - it is what one looks for
    """Something that must not be."""


class Turns:
    """As much of an event loop as a connection needs; its turns are taken by hand."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Turns:
        """Return what can be cancelled: it never comes."""
        return self

    def cancel(self) -> None:
        pass


class Pipe(asyncio.Transport):
    """What the node sends; it says when that isn't taken."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = bytearray()
        self.protocol: Connection
        self.closed = self.paused = False
        self._clogged = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unread += data
        if len(self.unread) > HIGH_WATER and not self._clogged:
            self._clogged = True
            self.protocol.pause_writing()

    def read(self) -> bytes:
        data = bytes(self.unread)
        self.unread.clear()
        if self._clogged:
            self._clogged = False
            self.protocol.resume_writing()
        return data

    def get_write_buffer_size(self) -> int:
        return len(self.unread)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class HandClock:
    """Of the acceptor, and of the wall: moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def now(self) -> int:
        return self.now_ns

    def wall_us(self) -> int:
        return WALL_US + self.now_ns // 1000

    def disagreement_ppm(self) -> float:
        return 0.0


class QuickDisk:
    """Has written what it is asked to at once."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def write(self, durable: Durable) -> None:
        self._service.persisted(durable)


class Client:
    """One that is connected."""

    def __init__(self, service: Service, loop: Turns) -> None:
        self._loop = loop
        self.pipe = Pipe()
        self.connection = self.pipe.protocol = Connection(service)
        self.connection.connection_made(self.pipe)
        self._splitter = frames.Splitter(frames.MAX_REPLY)
        self.said: list[frames.FromNode] = []

    def send(self, data: bytes | bytearray) -> None:
        """Let bytes arrive."""
        if self.pipe.closed:
            return
        begun = time.process_time()
        self.connection.data_received(bytes(data))
        took = time.process_time() - begun
        if took > SECONDS_A_FRAME:
            raise Finding(f"{took:.1f} s for {len(data)} bytes")
        if len(self.pipe.unread) > MOST_OUT:
            raise Finding(f"{len(self.pipe.unread)} bytes wait for a client that doesn't read")

    def hear(self) -> list[frames.FromNode]:
        """Read all that comes, and give the node its turns."""
        while True:
            self.said += [frames.decode_node(payload) for payload in self._splitter.feed(self.pipe.read())]
            soon, self._loop.soon = self._loop.soon, []
            if not soon and not self.pipe.unread:
                return self.said
            for callback, args in soon:
                callback(*args)

    def greet(self) -> None:
        self.send(frames.encode(frames.Hello(frames.MAGIC, frames.VERSION, b"nonce")))
        self.send(frames.encode(frames.Proof(handshake.prove(b"", handshake.CLIENT, b"", b""))))
        self.hear()


class Source:
    """Bytes as choices; zeros where they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += size
        return part

    def number(self, size: int = 1) -> int:
        return int.from_bytes(self.take(size))

    def pick(self, choices: tuple[Any, ...]) -> Any:
        return choices[self.number() % len(choices)]


def one(data: bytes, acceptor_class: type[NodeAcceptor] = NodeAcceptor) -> None:
    """Let a node live through this. Raises what must not be."""
    loop, clock = Turns(), HandClock()
    before = asyncio._get_running_loop(), vars(connections)["log"]
    asyncio._set_running_loop(loop)  # type: ignore[arg-type]
    vars(connections)["log"] = _log
    try:
        settings = Settings("a", Place("h", 1), {}, "")
        acceptor = start(settings.config, 1, 0, durable=NOTHING_PROMISED, make=acceptor_class).acceptor
        assert isinstance(acceptor, NodeAcceptor)
        service = Service(settings, acceptor, clock, clock)  # type: ignore[arg-type]
        service.scribe = QuickDisk(service)  # type: ignore[assignment]
        _live(data, service, loop, clock)
    finally:
        asyncio._set_running_loop(before[0])
        vars(connections)["log"] = before[1]


def _log(event: str, *, level: str = "info", **fields: object) -> None:
    if level == "error":
        raise Finding(f"{event}: {fields}")


def _live(data: bytes, service: Service, loop: Turns, clock: HandClock) -> None:
    how, source = data[0] if data else 0, Source(data[1:])
    client = Client(service, loop)
    if not how & NO_GREETING:
        client.greet()
    asked: list[int] = []
    floors: dict[str, int] = {}
    while source and not client.pipe.closed:
        if how & BUILT:
            frame = _build(source, clock)
            if isinstance(frame, frames.Ask):
                asked.append(len(frame.items))
            client.send(frames.encode(frame))
        else:
            body = source.take(source.number(2) % 4096)
            client.send(body if how & RAW else len(body).to_bytes(4) + body)
        if not how & DEAF:
            client.hear()
        service.tick()
        _floors_rise(service, floors)
    said = client.hear()
    refused = any(isinstance(message, frames.Refusal) for message in said)
    answers = [len(message.verdicts) for message in said if isinstance(message, frames.Answer)]
    if how & BUILT and answers != (asked[: len(answers)] if refused else asked):
        raise Finding(f"requests of {asked} items, and answers of {answers} verdicts")
    client.connection.connection_lost(None)
    _is_sound(service, clock)
    _serves_others(service, loop, clock)


def _floors_rise(service: Service, floors: dict[str, int]) -> None:
    acceptor = service.acceptor
    for name in {*floors, *acceptor.slots}:
        floor = acceptor.floor_of(acceptor.load(name))
        if floor < floors.get(name, 0):
            raise Finding(f"the floor of {name!r} went back from {floors[name]} to {floor}")
        floors[name] = floor


def _is_sound(service: Service, clock: HandClock) -> None:
    acceptor, now = service.acceptor, clock.now()
    highest = max([acceptor.floor, *(slot.promised_n for slot in acceptor.slots.values())])
    if highest > acceptor.ceiling + DAY_US or acceptor.durable.high_water >= TOKEN_LIMIT:
        raise Finding(f"numbers went up to {highest}, and {acceptor.ceiling} is the most")
    if service._called or service._watching or service.connections or service.greeting or service._pending:
        raise Finding("something is left of a connection that is over")
    longest = max([slot.expiry_ns - now for slot in acceptor.slots.values()], default=0)
    if longest > acceptor.config.longest_span_ns:
        raise Finding(f"a record lasts for {longest} ns")
    for slot in acceptor.slots.values():
        queue = slot.waiting.queue if slot.waiting else []
        if slot.waiting and [slot.waiting.position(waiter) for waiter in queue] != list(range(len(queue))):
            raise Finding("a queue is not what it seems")


def _serves_others(service: Service, loop: Turns, clock: HandClock) -> None:
    """Whatever one did, another gets what is free."""
    other = Client(service, loop)
    other.greet()
    op = ops.Acquire("a name that nobody guesses", "other", "other", 10**9)
    n = max(clock.wall_us(), service.acceptor.floor + 1)
    other.send(frames.encode(frames.Ask(7, [frames.AcceptItem(m.Accept(op, n))])))
    answer = other.hear()[-1]
    if not isinstance(answer, frames.Answer) or not isinstance(answer.verdicts[0].body, m.Ack):
        raise Finding(f"another client got {answer}")


# --- requests that are well-formed --------------------------------------------------------------------------------

NAMES: Final = ("a", "b", "a/b", "", "x" * 600)
IDS: Final = ("p", "q", "r", "s", "", "i" * 300)
TEXTS: Final = ("", "", "", "{}", "{}", '{"a":"b"}', '{"a":"b"}', "[1]", "{", "t" * 70_000)
NUMBERS: Final = (0, 1, -1, 5, 2**53 - 1, 2**53, 2**63 - 1, -(2**63))
TIMES: Final = (0, MILLISECOND, 10**9, 60 * 10**9, 61 * 10**9, -1, 2**62)


def _build(source: Source, clock: HandClock) -> frames.Frame:
    kind = source.number() % 16
    if kind == 0:
        clock.now_ns += source.pick((MILLISECOND, 100 * MILLISECOND, 10**9, 7 * 10**9, 70 * 10**9))
        return frames.Ping(source.number())
    if kind == 1:
        return frames.Listen(source.pick(IDS), source.pick((None, "", "a")))
    if kind == 2:
        return source.pick((frames.AskSeed(1), frames.AskStatus(1), frames.Ping(1)))  # type: ignore[no-any-return]
    items = [_item(source, clock) for _ in range(1 + source.number() % 8)]
    return frames.Ask(source.number(), items * (100 if source.number() > 250 else 1))


def _n(source: Source, clock: HandClock) -> int:
    """Return a number as an attempt carries it: mostly one that is possible."""
    how, more = source.number(), source.number(2)
    return NUMBERS[more % len(NUMBERS)] if how < 32 else clock.wall_us() + (more - 2**15) * (10**7 if how < 64 else 1)


def _item(source: Source, clock: HandClock) -> Any:
    kind, name, owner, n = source.number() % 12, source.pick(NAMES), source.pick(IDS), _n(source, clock)
    if kind == 0:
        return frames.PrepareItem(m.Prepare(name, owner, n))
    if kind == 1:
        renew = ops.Renew(name, owner, _n(source, clock), source.pick(TIMES))
        return frames.ExtendItem(m.Extend(renew, n, riders=source.pick((None, 0, 1))))
    if kind == 2:
        return frames.WithdrawItem(m.Withdraw(name, owner, n))
    if kind in {3, 4}:
        release = ops.Release(name, owner, source.pick((None, "h", "")), bool(source.number() % 2))
        release = release._replace(state=source.pick(TEXTS), reserve_ns=source.pick(TIMES))
        return frames.DropItem(m.Drop(release, source.pick((0, n))))
    if kind == 5:
        return frames.EndItem(m.End(ops.Revoke(name, bool(source.number() % 2), source.pick((None, 0, n)))))
    if kind == 6:
        return frames.LookItem(m.Look(name))
    if kind == 7:
        return frames.ScanItem(m.Scan(name, source.pick(NAMES), source.pick((1, 2, 1000, 0, 1001))))
    op = ops.Acquire(name, owner, source.pick(IDS), source.pick(TIMES), queue=bool(source.number() % 2))
    op = op._replace(notify=source.pick(IDS), priority=source.pick((0, 0, 1, -1, 2**40)), metadata=source.pick(TEXTS))
    if source.number() % 2:
        op = op._replace(
            parent=source.pick((None, (source.pick(NAMES), n))),
            soft_ns=source.pick(TIMES),
            grace_ns=source.pick(TIMES),
            lock_delay_ns=source.pick(TIMES),
            hold_at_least_ns=source.pick(TIMES),
            queue_limit=source.pick((0, 1, 2, -1)),
            recover=bool(source.number() % 2),
        )
    return frames.AcceptItem(m.Accept(op, n, source.pick((0, 0, 1, 7, 2**53)), source.pick((0, 0, n, n // 2, 5))))
