"""What an etcd URL says: which members, how to log in there, and what else. What it shows has no password in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from leasehold.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from leasehold.stores.base import StoreURL

DEFAULT_PORT: Final = 2379
TLS_OPTIONS: Final = ("ca", "cert", "key", "verify")


class Node(NamedTuple):
    """A member's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class EtcdAddress:
    """A URL, understood: ``etcd://USER:PASSWORD@HOST,HOST,HOST``, or ``etcds://`` with TLS."""

    def __init__(self, url: StoreURL) -> None:
        tls = url.scheme == "etcds"
        url.only("namespace", *(TLS_OPTIONS if tls else ()))
        if url.path.strip("/"):
            raise ConfigError(f"a {url.scheme}:// URL has no path; ?namespace= keeps leases apart")
        self.nodes, self.user, self.password = _members(url)
        self.context = _context(url.options) if tls else None
        shown = "".join(f"&{n}={url.quote(v)}" for n, v in url.options.items() if n != "namespace")
        self.url = f"{url.scheme}://{self}/?namespace={url.namespace}{shown}"

    def __repr__(self) -> str:
        return f"<EtcdAddress {self}>"

    def __str__(self) -> str:
        """Return the members: for messages."""
        return ",".join(map(str, self.nodes))


def _members(url: StoreURL) -> tuple[list[Node], str, str]:
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - as in StoreURL

    login, _, members = url.netloc.rpartition("@")
    nodes = []
    for member in members.split(","):
        parts = urlsplit(f"//{member}")
        try:
            port = parts.port
        except ValueError:
            raise ConfigError(f"a port of the {url.scheme}:// URL is no number up to 65535") from None
        if not parts.hostname and "," in members:
            raise ConfigError(f"the {url.scheme}:// URL has a member without a name")
        nodes.append(Node(unquote(parts.hostname or "localhost"), port or DEFAULT_PORT))
    user, colon, password = login.partition(":")
    if bool(user) != bool(colon):
        raise ConfigError(f"the {url.scheme}:// URL names a user without a password, or the other way round")
    return nodes, unquote(user), unquote(password)


def _context(options: dict[str, str]) -> ssl.SSLContext:
    import ssl  # noqa: PLC0415 - 10 ms, which only those pay who use it

    verify = options.get("verify", "true").lower()
    if verify not in ("true", "false"):
        raise ConfigError("verify is true or false")
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if options.get("cert"):
            context.load_cert_chain(options["cert"], options.get("key"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificates of the etcds:// URL can't be used: {error}") from None
    context.set_alpn_protocols(["h2"])
    if verify == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
