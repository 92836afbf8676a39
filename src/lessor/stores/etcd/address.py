"""What an etcd URL says: which members, how to log in there, and what else. What it shows has no password in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError
from lessor.stores.hosts import TLS_OPTIONS, servers, tls_context

if TYPE_CHECKING:
    from lessor.stores.base import StoreURL

DEFAULT_PORT: Final = 2379


class EtcdAddress:
    """A URL, understood: ``etcd://USER:PASSWORD@HOST,HOST,HOST``, or ``etcds://`` with TLS."""

    def __init__(self, url: StoreURL) -> None:
        tls = url.scheme == "etcds"
        url.only("namespace", *(TLS_OPTIONS if tls else ()), secrets=["password"])
        if url.path.strip("/"):
            raise ConfigError(f"an {url.scheme}:// URL has no path; ?namespace= keeps leases apart")
        self.nodes, self.user, self.password = servers(url, DEFAULT_PORT)
        if bool(self.user) != bool(self.password):
            raise ConfigError(f"the {url.scheme}:// URL names a user without a password, or the other way round")
        self.context = tls_context(url.options) if tls else None
        if self.context is not None:
            self.context.set_alpn_protocols(["h2"])
        shown = "".join(f"&{n}={url.quote(v)}" for n, v in url.options.items() if n != "namespace")
        self.url = f"{url.scheme}://{self}/?namespace={url.namespace}{shown}"

    def __repr__(self) -> str:
        return f"<EtcdAddress {self}>"

    def __str__(self) -> str:
        """Return the members: for messages."""
        return ",".join(map(str, self.nodes))
