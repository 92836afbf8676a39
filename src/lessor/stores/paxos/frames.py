"""What goes over the wire between a client and a node: length-prefixed MessagePack, each message an array with a tag.

The messages of the protocol itself are those of `core.paxos.messages`; here they get tags, and around them is what two
processes need besides: a greeting that settles the version, proofs of a shared secret, refusals, and what a node shows
of itself. Whatever doesn't fit the types is refused while it is decoded.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from lessor.core.ops import Event, Notice  # noqa: TC001 - here and below: the decoders read the types
from lessor.core.paxos import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC: Final = "lessor"
VERSION: Final = 4
MAX_REQUEST: Final = 8 * 1024 * 1024
"""Bytes of a frame that a node takes."""
MAX_GREETING: Final = 1024
"""Bytes of a frame that a node takes from somebody who hasn't said hello yet."""
MAX_REPLY: Final = 256 * 1024 * 1024
"""Bytes of a frame that a client takes from a node."""
MAX_ITEMS: Final = 1000
"""Items in one request."""

_LENGTH: Final = struct.Struct(">I")


class Frame(msgspec.Struct, array_like=True, gc=False):
    """A message, as an array that begins with its tag."""


# --- items and verdicts -------------------------------------------------------------------------------------------

Body = TypeVar("Body")


class Tagged(Frame, Generic[Body]):
    """A message of the protocol with a tag."""

    body: Body


class AcceptItem(Tagged[m.Accept], tag=1):
    """See `messages.Accept`, and so on."""


class PrepareItem(Tagged[m.Prepare], tag=2):
    """Prepare."""


class ExtendItem(Tagged[m.Extend], tag=3):
    """Extend."""


class WithdrawItem(Tagged[m.Withdraw], tag=4):
    """Withdraw."""


class DropItem(Tagged[m.Drop], tag=5):
    """Drop."""


class EndItem(Tagged[m.End], tag=6):
    """End."""


class LookItem(Tagged[m.Look], tag=7):
    """Look."""


class ScanItem(Tagged[m.Scan], tag=8):
    """Scan."""


class AckVerdict(Tagged[m.Ack], tag=1):
    """Ack."""


class PromisedVerdict(Tagged[m.Promised], tag=2):
    """Promised."""


class HeldByVerdict(Tagged[m.HeldBy], tag=3):
    """HeldBy."""


class LowVerdict(Tagged[m.Low], tag=4):
    """Low."""


class GoneVerdict(Tagged[m.Gone], tag=5):
    """Gone."""


class DroppedVerdict(Tagged[m.Dropped], tag=6):
    """Dropped."""


class NothingVerdict(Tagged[m.Nothing], tag=7):
    """Nothing."""


class RefusedVerdict(Tagged[m.Refused], tag=8):
    """Refused."""


class SeenVerdict(Tagged[m.Seen], tag=9):
    """Seen."""


ItemFrame: TypeAlias = AcceptItem | PrepareItem | ExtendItem | WithdrawItem | DropItem | EndItem | LookItem | ScanItem
VerdictFrame: TypeAlias = (
    AckVerdict
    | PromisedVerdict
    | HeldByVerdict
    | LowVerdict
    | GoneVerdict
    | DroppedVerdict
    | NothingVerdict
    | RefusedVerdict
    | SeenVerdict
)
ITEMS: Final[dict[type, Any]] = {
    m.Accept: AcceptItem,
    m.Prepare: PrepareItem,
    m.Extend: ExtendItem,
    m.Withdraw: WithdrawItem,
    m.Drop: DropItem,
    m.End: EndItem,
    m.Look: LookItem,
    m.Scan: ScanItem,
}
VERDICTS: Final[dict[type, Any]] = {
    m.Ack: AckVerdict,
    m.Promised: PromisedVerdict,
    m.HeldBy: HeldByVerdict,
    m.Low: LowVerdict,
    m.Gone: GoneVerdict,
    m.Dropped: DroppedVerdict,
    m.Nothing: NothingVerdict,
    m.Refused: RefusedVerdict,
    m.Seen: SeenVerdict,
}

# --- what a client says -------------------------------------------------------------------------------------------


class Hello(Frame, tag=1):
    """The first word of a connection."""

    magic: str
    version: int
    nonce: bytes
    """Fresh for each connection, so that no proof serves twice."""
    who: str = ""
    """For the node's log."""


class Proof(Frame, tag=2):
    """Shows that the client knows the secret. Empty where there is none."""

    proof: bytes


class Ask(Frame, tag=3):
    """A request: some items, carried out in order."""

    serial: int
    items: list[ItemFrame]


class Listen(Frame, tag=4):
    """From now on, push calls for this address and, with a prefix, what happens under it."""

    address: str
    prefix: str | None = None


class AskSeed(Frame, tag=5):
    """Ask how high the numbers may have gone: from a node that lost its disk."""

    serial: int


class AskStatus(Frame, tag=6):
    """Ask how it is."""

    serial: int


class Ping(Frame, tag=7):
    """Ask whether it is there, and answers."""

    serial: int


FromClient: TypeAlias = Hello | Proof | Ask | Listen | AskSeed | AskStatus | Ping

# --- what a node says ---------------------------------------------------------------------------------------------


class Welcome(Frame, tag=1):
    """The answer to a greeting."""

    version: int
    acceptor: str
    incarnation: int
    cluster: tuple[str, ...]
    """The ids of all its nodes, so that nobody counts a majority of too few, or of some that belong to another one."""
    nonce: bytes
    needs_proof: bool


class Accepted(Frame, tag=2):
    """The client may ask. The node shows that it knows the secret, too."""

    proof: bytes


class Refusal(Frame, tag=3):
    """The node closes the connection, and this is why."""

    why: str
    for_good: bool = False
    """It will say so again: some setting is wrong."""


class Answer(Frame, tag=4):
    """A verdict for each item of a request."""

    serial: int
    verdicts: list[VerdictFrame]


class Silent(Frame, tag=5):
    """No answer: the node forgot what it knew, and waits until nobody relies on it any more."""

    serial: int
    left_ns: int


class News(Frame, tag=6):
    """What happened, for those who listen."""

    floor: int
    events: list[Event]
    notices: list[Notice]


class Seeded(Frame, tag=7):
    """No number above this one was promised here, and for so long anybody was kept out, or may be."""

    serial: int
    high_water: int
    span_ns: int = 0


class Status(Frame, tag=8):
    """What a node shows of itself."""

    serial: int
    acceptor: str
    state: str
    """serving, silent or seeding"""
    silence_left_ns: int
    floor: int
    high_water: int
    live: int
    waiting: int
    connections: int
    up_ns: int
    clock_rate_ppm: float
    """By how much the node's two clocks disagree."""
    version: str


class Pong(Frame, tag=9):
    """Here, and not silent."""

    serial: int


FromNode: TypeAlias = Welcome | Accepted | Refusal | Answer | Silent | News | Seeded | Status | Pong

# --- bytes --------------------------------------------------------------------------------------------------------

Payload: TypeAlias = bytes | bytearray | memoryview
_encoder = msgspec.msgpack.Encoder()
decode_client: Callable[[Payload], FromClient] = msgspec.msgpack.Decoder(FromClient).decode
decode_node: Callable[[Payload], FromNode] = msgspec.msgpack.Decoder(FromNode).decode


def encode(message: Frame) -> bytearray:
    """Return the message as a frame."""
    frame = bytearray(64)
    _encoder.encode_into(message, frame, 4)
    _LENGTH.pack_into(frame, 0, len(frame) - 4)
    return frame


NOT_UNDERSTOOD: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""What decoding raises."""


class TooLongError(ValueError):
    """A frame says that it is longer than any that is taken."""


class Splitter:
    """Cuts a stream of bytes into frames. Holds no more than one frame that isn't complete."""

    __slots__ = ("_buffer", "_wanted", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._wanted = 4
        """With how many bytes there is more to say."""

    @property
    def held(self) -> int:
        """How many bytes there are of a frame that isn't complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Payload]:
        """Take bytes in, and return the payloads that are complete now."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return
            data = bytes(self._buffer)
            self._buffer = bytearray()
        at, size, view = 0, len(data), memoryview(data)
        self._wanted = 4
        while size - at >= 4:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > self.limit:
                raise TooLongError(f"a frame of {length} bytes, and {self.limit} are the most")
            end = at + 4 + length
            if end > size:
                self._wanted = 4 + length
                break
            yield view[at + 4 : end]
            at = end
        self._buffer += view[at:]
