"""What a node is told at its start, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lessor.core.clock import SECOND
from lessor.core.paxos.acceptor import Config
from lessor.errors import ConfigError
from lessor.stores.paxos.address import Place

if TYPE_CHECKING:
    import ssl

MOST_ACCEPTORS: Final = 9
LONGEST_ID: Final = 64


class Settings(NamedTuple):
    """All of it."""

    id: str
    listen: Place
    peers: dict[str, Place]
    """The other nodes, by id."""
    data: str
    http: Place | None = None
    secret: bytes = b""
    tls: ssl.SSLContext | None = None
    """For those who connect here."""
    peer_tls: ssl.SSLContext | None = None
    """For the connections to the others."""
    max_ttl_ns: int = 60 * SECOND
    max_leases: int = 2_000_000
    max_connections: int = 10_000
    max_greeting: int = 1024
    """Connections that haven't greeted yet. Whoever opens them and says nothing need not know the secret."""
    json_log: bool = True

    @property
    def cluster(self) -> tuple[str, ...]:
        """The ids of all its nodes."""
        return tuple(sorted([self.id, *self.peers]))

    @property
    def acceptors(self) -> int:
        """How many nodes the cluster has."""
        return len(self.peers) + 1

    @property
    def config(self) -> Config:
        """What the acceptor is told."""
        return Config(self.id, max_ttl_ns=self.max_ttl_ns, max_lock_delay_ns=self.max_ttl_ns)

    def check(self) -> Settings:
        """Refuse what can't work."""
        check_id(self.id)
        for name in self.peers:
            check_id(name)
        if self.id in self.peers:
            raise ConfigError(f"node {self.id!r} is among its own peers")
        names: dict[Place, str] = {self.listen: self.id}
        for name, place in self.peers.items():
            if place in names:
                raise ConfigError(f"{place} is the place of both {names[place]!r} and {name!r}: each node has its own")
            names[place] = name
        if self.http == self.listen:
            raise ConfigError(f"{self.listen} can't be both for clients and for --http")
        if self.acceptors % 2 == 0 or self.acceptors > MOST_ACCEPTORS:
            raise ConfigError(
                f"with its peers, this cluster has {self.acceptors} nodes: an odd number is needed, 3 or 5 as a rule"
            )
        if not SECOND <= self.max_ttl_ns <= 3600 * SECOND:
            raise ConfigError("the longest TTL is from 1 s to 1 h: a node that crashed is silent for that long")
        return self


def check_id(name: str) -> None:
    """Refuse what can't name a node."""
    if not 0 < len(name) <= LONGEST_ID or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name):
        raise ConfigError(f"{name!r} can't name a node: 1 to {LONGEST_ID} of the characters A-Z a-z 0-9 . _ -")


def parse_peers(text: str) -> dict[str, Place]:
    """Read ID=HOST:PORT,ID=HOST:PORT."""
    peers: dict[str, Place] = {}
    for part in text.split(",") if text else ():
        name, equals, place = part.strip().partition("=")
        if not equals:
            raise ConfigError(f"peers are ID=HOST:PORT,ID=HOST:PORT, and {part!r} isn't")
        if name in peers:
            raise ConfigError(f"peer {name!r} is there twice")
        peers[name] = Place.parse(place)
    return peers
