"""Where the server is, and how to log in there. What it shows of itself never has a password in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leasehold.errors import ConfigError

if TYPE_CHECKING:
    from leasehold.stores.base import StoreURL

DEFAULT_PORT: Final = 6379
TLS_OPTIONS: Final = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "ssl_password",
)
SECRET_OPTIONS: Final = ("ssl_password",)
TRUE: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class RedisAddress:
    """A ``redis://`` or ``rediss://`` URL, understood."""

    def __init__(self, url: StoreURL) -> None:
        self.tls = url.scheme == "rediss"
        url.only("namespace", *(TLS_OPTIONS if self.tls else ()))
        self.namespace = url.namespace
        self.host, self.port, self._username, self._password = _server(url)
        self.db = _database(url.path)
        self._tls_options = {name: value for name, value in url.options.items() if name != "namespace"}
        check = self._tls_options.get("ssl_check_hostname", "true").lower()
        if check not in TRUE:
            raise ConfigError("ssl_check_hostname is true or false")
        if self._tls_options.get("ssl_cert_reqs", "required") not in ("none", "optional", "required"):
            raise ConfigError("ssl_cert_reqs is none, optional or required")

    def __repr__(self) -> str:
        return f"<RedisAddress {self}>"

    def __str__(self) -> str:
        """Return host and port: for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, url: StoreURL) -> str:
        """Return the URL without the password."""
        shown = {name: value for name, value in self._tls_options.items() if name not in SECRET_OPTIONS}
        options = "".join(f"&{name}={url.quote(value)}" for name, value in shown.items())
        return f"{url.scheme}://{self}/{self.db}?namespace={self.namespace}{options}"

    def settings(self) -> dict[str, Any]:
        """Return what redis-py's connection takes."""
        settings: dict[str, Any] = {"host": self.host, "port": self.port, "db": self.db, **self._tls_options}
        if self._username:
            settings["username"] = self._username
        if self._password:
            settings["password"] = self._password
        if "ssl_check_hostname" in settings:
            settings["ssl_check_hostname"] = TRUE[settings["ssl_check_hostname"].lower()]
        return settings


def _server(url: StoreURL) -> tuple[str, int, str, str]:
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - as in StoreURL

    if "," in url.netloc.rpartition("@")[2]:
        raise ConfigError(f"{url.scheme}:// takes one server; Sentinel and Cluster are not supported yet")
    parts = urlsplit(f"{url.scheme}://{url.netloc}")
    try:
        port = parts.port
    except ValueError:
        raise ConfigError(f"the port of the {url.scheme}:// URL is no number up to 65535") from None
    host = unquote(parts.hostname or "localhost")
    return host, port or DEFAULT_PORT, unquote(parts.username or ""), unquote(parts.password or "")


def _database(path: str) -> int:
    number = path.strip("/")
    if number and not (number.isascii() and number.isdecimal()):
        raise ConfigError(f"what follows the host in a Redis URL is the number of a database, not {number!r}")
    return int(number or 0)
