"""What to begin with: frames as clients send them, and choices that make requests."""

from __future__ import annotations

from random import Random

from lessor.core import ops
from lessor.core.paxos import messages as m
from lessor.stores.paxos import frames
from tests.fuzz.harness import BUILT, DEAF, NO_GREETING, RAW, WALL_US

N = WALL_US + 2_000_000
ITEMS: list[m.Item] = [
    m.Accept(ops.Acquire("a", "p", "holder", 10**9), N),
    m.Accept(ops.Acquire("a", "q", "holder", 10**9, queue=True, notify="here"), N + 1),
    m.Accept(ops.Acquire("a/b", "r", "h", 0, parent=("a", N), metadata='{"a":"b"}'), N + 2),
    m.Extend(ops.Renew("a", "p", N, 10**9), N, riders=0),
    m.Prepare("b", "s", N),
    m.Withdraw("b", "s", N),
    m.Look("a"),
    m.Scan("", "", 10),
    m.End(ops.Revoke("a")),
    m.Drop(ops.Release("a", "q", abandon=True)),
    m.Drop(ops.Release("a", "p", "q"), N),
]
FRAMES: list[frames.Frame] = [
    *(frames.Ask(serial, [frames.ITEMS[type(item)](item)]) for serial, item in enumerate(ITEMS)),
    frames.Ask(99, [frames.ITEMS[type(item)](item) for item in ITEMS]),
    frames.Listen("here", ""),
    frames.AskSeed(1),
    frames.AskStatus(2),
    frames.Ping(3),
]
GREETING: list[frames.Frame] = [frames.Hello(frames.MAGIC, frames.VERSION, b"nonce", "somebody"), frames.Proof(b"")]


def seeds() -> list[bytes]:
    """Return some."""
    found = [bytes([0]) + _chunk(_body(frame)) for frame in FRAMES]
    found.append(bytes([DEAF]) + b"".join(_chunk(_body(frame)) for frame in FRAMES))
    found.append(bytes([NO_GREETING]) + b"".join(_chunk(_body(frame)) for frame in [*GREETING, *FRAMES]))
    whole = b"".join(bytes(frames.encode(frame)) for frame in [*GREETING, *FRAMES])
    found.append(bytes([NO_GREETING | RAW]) + _chunk(whole[:700]) + _chunk(whole[700:]))
    chance = Random(1)
    found += [bytes([BUILT | how]) + chance.randbytes(200) for how in (0, DEAF) for _ in range(30)]
    return found


def _body(frame: frames.Frame) -> bytes:
    return bytes(frames.encode(frame)[4:])


def _chunk(body: bytes) -> bytes:
    return len(body).to_bytes(2) + body
