"""Where the database is, and how to log in there. What it shows of itself never has a password in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.conninfo import make_conninfo

from lessor.errors import ConfigError
from lessor.stores.base import ESCAPE, WAYS, StoreURL

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRETS: Final = ("password", "sslpassword")
OURS: Final = ("namespace", "schema", "listen")
WHERE: Final = tuple(f"{name}_{way}" for name in SECRETS for way in WAYS)
"""Options that say where a secret is."""
SHOWN: Final = frozenset((
    "application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname", "fallback_application_name",
    "gssdelegation", "gssencmode", "gsslib", "host", "hostaddr", "keepalives", "keepalives_count", "keepalives_idle",
    "keepalives_interval", "krbsrvname", "load_balance_hosts", "max_protocol_version", "min_protocol_version",
    "oauth_client_id", "oauth_issuer", "oauth_scope", "options", "passfile", "port", "require_auth", "requirepeer",
    "service", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcertmode", "sslcompression",
    "sslcrl", "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslrootcert", "sslsni", "target_session_attrs",
    "tcp_user_timeout", "user",
))  # fmt: skip
"""What may be shown of libpq's settings. All others, those of its versions to come too, may be secrets."""
DEFAULTS: Final = {
    "fallback_application_name": "lessor",
    "client_encoding": "utf8",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""So that the system notices a dead peer on a connection that is only listened to."""


class PostgresAddress:
    """A ``postgresql://`` URL, understood: our options apart, all others for libpq."""

    def __init__(self, url: StoreURL) -> None:
        self.namespace = url.namespace
        self.schema = url.options.get("schema", "lessor")
        if not 1 <= len(self.schema.encode()) <= 63 or "\0" in self.schema or self.schema.startswith("pg_"):
            raise ConfigError("a schema's name has 1 to 63 bytes, and doesn't start with pg_")
        self._settings = DEFAULTS | _login(url) | {k: v for k, v in url.options.items() if k not in (*OURS, *WHERE)}
        for name in SECRETS:
            if secret := url.secret(name, self._settings.get(name, "")):
                self._settings[name] = secret
        self._where = {k: v for k, v in url.options.items() if k in WHERE}
        self._hosts = _hosts(self._settings)
        listen = url.options.get("listen")
        self.listening = self if listen is None else PostgresAddress(_at(listen, self))
        """Where to listen: some other address of the same database, where a pooler is before this one."""
        try:
            make_conninfo(**self._settings)
        except psycopg.Error:
            raise _wrong(url) from None

    def __repr__(self) -> str:
        return f"<PostgresAddress {self}>"

    def __str__(self) -> str:
        """Return hosts and database: for messages."""
        places = [_place(host or "the default host", port) for host, port in self._hosts]
        return f"{','.join(places)}/{self._settings.get('dbname', '')}"

    def url(self) -> str:
        """Return the URL without passwords."""
        known = {k: v for k, v in self._settings.items() if k in SHOWN and v != DEFAULTS.get(k)}
        user = known.pop("user", "")
        database = known.pop("dbname", "")
        known.pop("host", None), known.pop("port", None)
        places = [_place(host if ":" in host else _quoted(host), port) for host, port in self._hosts]
        options = {"namespace": self.namespace} | ({} if self.schema == "lessor" else {"schema": self.schema}) | known
        options |= self._where
        if self.listening is not self:
            options["listen"] = self.listening.url()
        query = "&".join(f"{name}={_quoted(value)}" for name, value in options.items())
        return f"postgresql://{_quoted(user)}{'@' * bool(user)}{','.join(places)}/{_quoted(database)}?{query}"

    def attempts(self) -> Iterator[bytes]:
        """Return how to connect, to one host after the other."""
        for host, port in self._hosts:
            one = {k: v for k, v in self._settings.items() if k not in ("host", "port")}
            one |= ({"host": host} if host else {}) | ({"port": port} if port else {})
            yield make_conninfo(**one).encode()

    def scrub(self, text: object) -> str:
        """Return the text without passwords, should one be in it."""
        said = str(text)
        for name, value in self._settings.items():
            if name not in SHOWN and value:
                said = said.replace(value, "***")
        return said


def _wrong(url: StoreURL) -> ConfigError:
    """Return the error for options of which one is not known to libpq."""
    known = [option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()]
    for name in url.options:
        if name not in (*OURS, *WHERE, *known):
            ours = f"{', '.join((*OURS, *WHERE))}, and libpq's parameters"
            return url.unknown(name, (*OURS, *WHERE, *known), also=ours)
    return ConfigError(f"the {url.scheme}:// URL has an option whose value libpq can't use ({ESCAPE})")


def _place(host: str, port: str) -> str:
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")


def _quoted(text: str) -> str:
    return StoreURL.quote(text).replace("/", "%2F")


def _login(url: StoreURL) -> dict[str, str]:
    """Return what the URL says before its '?', in libpq's words."""
    from urllib.parse import unquote  # noqa: PLC0415 - as in StoreURL

    login, at, places = url.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    settings = {}
    if at and user:
        settings["user"] = unquote(user)
    if colon:
        settings["password"] = unquote(password)
    hosts, ports = [], []
    for place in places.split(","):
        host, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
        if not colon:
            host, port = place, ""
        if port and not (port.isascii() and port.isdecimal() and int(port) < 65536):
            raise ConfigError(f"the port of the {url.scheme}:// URL is no number up to 65535: {ESCAPE}")
        hosts.append(unquote(host.strip("[]")))
        ports.append(port)
    if any(hosts):
        settings["host"] = ",".join(hosts)
    if any(ports):
        settings["port"] = ",".join(ports)
    if database := url.path.removeprefix("/"):
        settings["dbname"] = database
    return settings


def _hosts(settings: dict[str, str]) -> list[tuple[str, str]]:
    hosts = settings.get("host", "").split(",")
    ports = settings.get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    if len(ports) != len(hosts):
        raise ConfigError(f"{len(hosts)} hosts and {len(ports)} ports: name one port, or one for each host")
    return list(zip(hosts, ports, strict=True))


def _at(listen: str, other: PostgresAddress) -> StoreURL:
    url = StoreURL.parse(listen)
    if not url.scheme.startswith("postgres") or "listen" in url.options:
        raise ConfigError("listen= is a postgresql:// URL, with nothing of the kind in it")
    return url._replace(options={**url.options, "namespace": other.namespace, "schema": other.schema})
