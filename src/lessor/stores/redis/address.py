"""What a Redis URL says: which servers, how to log in there, and what else. What it shows has no password in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lessor.errors import ConfigError
from lessor.stores.hosts import servers

if TYPE_CHECKING:
    from lessor.stores.base import StoreURL

DEFAULT_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
TLS_OPTIONS: Final = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "ssl_password",
)
SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")
OWN_OPTIONS: Final = ("replicas", "replica_timeout", "eviction")
SECRET_OPTIONS: Final = ("ssl_password", *SENTINEL_OPTIONS)
TRUE: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
REPLICA_TIMEOUT: Final = 1.0
MAX_REPLICAS: Final = 100


class Login(NamedTuple):
    """How to connect, whatever the server."""

    tls: bool
    settings: dict[str, Any]
    """For redis-py's connection."""

    def __repr__(self) -> str:
        return "<Login>"


class RedisAddress:
    """A URL, understood. Its scheme names one server, or ``+sentinel``, or ``+cluster``; with TLS it is ``rediss``.

    ``valkey`` and ``valkeys`` say the same.
    """

    def __init__(self, url: StoreURL) -> None:
        self.scheme = url.scheme
        base, _, self.kind = url.scheme.partition("+")
        tls = base in ("rediss", "valkeys")
        sentinel = self.kind == "sentinel"
        tls_options = TLS_OPTIONS if tls else ()
        secrets = ("password", *(["ssl_password"] if tls else ()), *(["sentinel_password"] if sentinel else ()))
        url.only("namespace", *OWN_OPTIONS, *tls_options, *(SENTINEL_OPTIONS if sentinel else ()), secrets=secrets)
        options = url.with_secrets(*secrets[1:])
        self.namespace = url.namespace
        self.nodes, username, password = servers(url, SENTINEL_PORT if sentinel else DEFAULT_PORT)
        if len(self.nodes) > 1 and not self.kind:
            raise ConfigError(
                f"{url.scheme}:// takes one server; for several there are {url.scheme}+sentinel://HOST,HOST,HOST/NAME "
                f"and {url.scheme}+cluster://HOST,HOST,HOST"
            )
        self.service, self.db = _path(url, self.kind)
        self.replicas, self.replica_timeout = _replicas(url.options)
        self.accepts_eviction = _eviction(url.options)
        tls_settings = _tls(options)
        self.login = Login(tls, {"db": self.db, **_credentials(username, password), **tls_settings})
        own = (options.get(option, "") for option in SENTINEL_OPTIONS)
        self.sentinel_login = Login(tls, {**_credentials(*own), **tls_settings})
        self._shown = {name: value for name, value in url.options.items() if name not in ("namespace", *SECRET_OPTIONS)}

    def __repr__(self) -> str:
        return f"<RedisAddress {self}>"

    def __str__(self) -> str:
        """Return the servers: for messages."""
        return ",".join(map(str, self.nodes))

    def url(self, url: StoreURL) -> str:
        """Return the URL without the passwords."""
        options = "".join(f"&{name}={url.quote(value)}" for name, value in self._shown.items())
        path = {"": f"{self.db}", "sentinel": f"{url.quote(self.service)}/{self.db}", "cluster": ""}[self.kind]
        return f"{self.scheme}://{self}/{path}?namespace={self.namespace}{options}"


def _path(url: StoreURL, kind: str) -> tuple[str, int]:
    """Return the name that Sentinel has for the master, and the number of the database."""
    parts = url.path.strip("/")
    service = ""
    if kind == "sentinel":
        service, _, parts = parts.partition("/")
        if not service:
            raise ConfigError(
                f"a {url.scheme}:// URL names the master as Sentinel does: {url.scheme}://{_shown(url)}/mymaster/0"
            )
    if parts and not (parts.isascii() and parts.isdecimal()):
        raise ConfigError("what comes last in the path of a Redis URL is the number of a database")
    database = int(parts or 0)
    if kind == "cluster" and database != 0:
        raise ConfigError(f"a Redis Cluster has only database 0, not {database}; ?namespace= keeps leases apart")
    return service, database


def _shown(url: StoreURL) -> str:
    return url.netloc.rpartition("@")[2]


def _replicas(options: dict[str, str]) -> tuple[int, float]:
    text = options.get("replicas", "0")
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_REPLICAS:
        raise ConfigError(f"replicas is a number from 0 to {MAX_REPLICAS}, not {text!r}")
    try:
        seconds = float(options.get("replica_timeout", REPLICA_TIMEOUT))
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= 60:
        raise ConfigError("replica_timeout is a number of seconds from 0.001 to 60")
    if "replica_timeout" in options and int(text) == 0:
        raise ConfigError("replica_timeout goes with replicas")
    return int(text), seconds


def _eviction(options: dict[str, str]) -> bool:
    """Return whether a server may be used that drops keys when memory runs short."""
    wanted = options.get("eviction", "refuse")
    if wanted not in ("accept", "refuse"):
        raise ConfigError("eviction is accept or refuse")
    return wanted == "accept"


def _tls(options: dict[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {name: value for name, value in options.items() if name in TLS_OPTIONS}
    check = settings.get("ssl_check_hostname", "true").lower()
    if check not in TRUE:
        raise ConfigError("ssl_check_hostname is true or false")
    if settings.get("ssl_cert_reqs", "required") not in ("none", "optional", "required"):
        raise ConfigError("ssl_cert_reqs is none, optional or required")
    if "ssl_check_hostname" in settings:
        settings["ssl_check_hostname"] = TRUE[check]
    return settings


def _credentials(username: str, password: str) -> dict[str, str]:
    given = {"username": username, "password": password}
    return {name: value for name, value in given.items() if value}
