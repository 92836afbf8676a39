"""What URLs of servers have in common: hosts and ports, a login before them, and how to trust them with TLS."""

from __future__ import annotations

# A host's name is encoded by it. Python looks for it when it is first needed, and never again if it isn't found then: not
# even if that was for want of a file descriptor.
import encodings.idna  # noqa: F401
from typing import TYPE_CHECKING, Final, NamedTuple

from lessor.errors import ConfigError
from lessor.stores.base import ESCAPE

if TYPE_CHECKING:
    import ssl

    from lessor.stores.base import StoreURL

PLAIN_TEXT: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
"""Reasons of OpenSSL's for an answer that is not TLS."""
TLS_OPTIONS: Final = ("ca", "cert", "key", "verify")
"""What `tls_context` goes by."""


class Node(NamedTuple):
    """A server's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def servers(url: StoreURL, default_port: int) -> tuple[list[Node], str, str]:
    """Return the servers that the URL names, separated by commas, the user and the password, wherever that is."""
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - as in StoreURL

    login, _, named = url.netloc.rpartition("@")
    nodes = []
    for server in named.split(","):
        try:
            parts = urlsplit(f"//{server}")
            port = parts.port
        except ValueError:
            raise ConfigError(f"a port of the {url.scheme}:// URL is no number up to 65535: {ESCAPE}") from None
        if not parts.hostname and "," in named:
            raise ConfigError(f"the {url.scheme}:// URL has a server without a name")
        nodes.append(Node(unquote(parts.hostname or "localhost"), port or default_port))
    user, _, password = login.partition(":")
    return nodes, unquote(user), url.secret("password", unquote(password))


def tls_context(options: dict[str, str]) -> ssl.SSLContext:
    """Return how to trust servers and, with a certificate of one's own, how to be trusted by them."""
    import ssl  # noqa: PLC0415 - 10 ms, which only those pay who use it

    verify = options.get("verify", "true").lower()
    if verify not in ("true", "false"):
        raise ConfigError("verify is true or false")
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if options.get("cert"):
            context.load_cert_chain(options["cert"], options.get("key"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificates can't be used: {error}") from None
    if verify == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def no_handshake(error: OSError) -> str:
    """Return why a TLS handshake failed. A server that doesn't speak TLS closes, is silent, or answers in plain text."""
    reason = getattr(error, "reason", None) or ""
    plain = isinstance(error, (TimeoutError, ConnectionError)) or "EOF" in reason or reason in PLAIN_TEXT
    return f"doesn't answer in TLS: is this a port without TLS? ({error})" if plain else f"fails in TLS: {error}"
