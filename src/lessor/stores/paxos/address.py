"""What a paxos URL says: which nodes, which secret, and how to trust them. What it shows has no secret in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError
from lessor.stores.base import ESCAPE
from lessor.stores.hosts import TLS_OPTIONS, Node, tls_context

if TYPE_CHECKING:
    from lessor.stores.base import StoreURL

DEFAULT_PORT: Final = 7420
SHORTEST_SECRET: Final = 16


class Place(Node):
    """Where a node of ours is."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read HOST, HOST:PORT or [HOST]:PORT."""
        from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - as in StoreURL

        try:
            parts = urlsplit(f"//{text}")
            port = parts.port
        except ValueError:
            raise ConfigError(f"{text!r} is no HOST:PORT") from None
        if not parts.hostname or parts.path or "@" in text:
            raise ConfigError(f"{text!r} is no HOST:PORT")
        return cls(unquote(parts.hostname), port or DEFAULT_PORT)


class PaxosAddress:
    """A URL, understood: ``paxos://HOST,HOST,HOST``, with a secret ``paxos://:SECRET@…``, with TLS ``paxoss://…``."""

    def __init__(self, url: StoreURL) -> None:
        tls = url.scheme == "paxoss"
        url.only("namespace", *(TLS_OPTIONS if tls else ()), secrets=["secret"])
        if url.path.strip("/"):
            raise ConfigError(f"a {url.scheme}:// URL has no path; ?namespace= keeps leases apart")
        login, _, nodes = url.netloc.rpartition("@")
        try:
            self.nodes = [Place.parse(node) for node in nodes.split(",")]
        except ConfigError:
            raise ConfigError(f"a node in the {url.scheme}:// URL is no HOST:PORT: {ESCAPE}") from None
        if len(set(self.nodes)) != len(self.nodes):
            raise ConfigError(f"the {url.scheme}:// URL names a node twice")
        if len(self.nodes) % 2 == 0:
            raise ConfigError(f"the {url.scheme}:// URL names {len(self.nodes)} nodes: name all 3 or 5 of the cluster")
        self.secret = _secret(login, url)
        self.context = tls_context(url.options) if tls else None
        self.namespace = url.namespace
        shown = "".join(f"&{n}={url.quote(v)}" for n, v in url.options.items() if n != "namespace")
        self.url = f"{url.scheme}://{self}/?namespace={url.namespace}{shown}"

    def __repr__(self) -> str:
        return f"<PaxosAddress {self}>"

    def __str__(self) -> str:
        """Return the nodes: for messages."""
        return ",".join(map(str, self.nodes))


def read_secret(path: str) -> bytes:
    """Read the shared secret from a file; the white space around it doesn't count."""
    try:
        with open(path, "rb") as file:
            secret = file.read(4096).strip()
    except OSError as error:
        raise ConfigError(f"the secret can't be read from {path!r}: {error.strerror}") from error
    return _long_enough(secret)


def _secret(login: str, url: StoreURL) -> bytes:
    from urllib.parse import unquote_to_bytes  # noqa: PLC0415 - as in StoreURL

    user, colon, secret = login.partition(":")
    if login and (user or not colon or not secret):
        raise ConfigError(f"a {url.scheme}:// URL has no users; a secret is written as :SECRET@")
    if "secret_file" in url.options and not secret and "secret_env" not in url.options:
        return read_secret(url.options["secret_file"])
    elsewhere = url.secret("secret", secret)
    given = unquote_to_bytes(secret) if secret else elsewhere.encode()
    return _long_enough(given) if given else b""


def _long_enough(secret: bytes) -> bytes:
    if len(secret) < SHORTEST_SECRET:
        raise ConfigError(
            f"the secret has {len(secret)} bytes; {SHORTEST_SECRET} are the least, 32 at random are better"
        )
    return secret
