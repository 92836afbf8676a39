"""What a ZooKeeper URL says: which servers, where in their tree, how to log in. What it shows has no password in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from lessor.errors import ConfigError
from lessor.stores.hosts import servers

if TYPE_CHECKING:
    from lessor.stores.base import StoreURL

DEFAULT_PORT: Final = 2181
DEFAULT_CHROOT: Final = "/lessor"
TLS_OPTIONS: Final = (
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_check_hostname",
    "ssl_cert_reqs",
)
SASL_OPTIONS: Final = ("sasl", "sasl_service")
MECHANISMS: Final = ("DIGEST-MD5", "GSSAPI", "PLAIN")
TRUE: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
MAX_TICK_MS: Final = 60_000


class ZooKeeperAddress:
    """A URL, understood."""

    def __init__(self, url: StoreURL) -> None:
        url.only("namespace", "tick", "acl", "tls", *TLS_OPTIONS, *SASL_OPTIONS, secrets=["password", "ssl_password"])
        self.namespace = url.namespace
        self.tls = _flag(url.options, "tls", default=False)
        self.nodes, username, password = servers(url, DEFAULT_PORT)
        self.hosts = ",".join(map(str, self.nodes))
        self.chroot = _chroot(url.path)
        self.tick_ms = _tick(url.options.get("tick"))
        options = url.with_secrets("ssl_password")
        self.settings: dict[str, Any] = {**_tls(options, tls=self.tls), **_login(options, username, password)}
        self.acl = _acl(url.options.get("acl"), known=bool(username) or "sasl" in url.options)
        self._shown = {name: url.options[name] for name in url.options if name not in ("namespace", "ssl_password")}

    def __repr__(self) -> str:
        return f"<ZooKeeperAddress {self}>"

    def __str__(self) -> str:
        """Return the servers: for messages."""
        return self.hosts

    def url(self, url: StoreURL) -> str:
        """Return the URL without user and password."""
        options = "".join(f"&{name}={url.quote(value)}" for name, value in self._shown.items())
        return f"zookeeper://{self.hosts}{url.quote(self.chroot)}?namespace={self.namespace}{options}"


def _chroot(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts) or parts[:1] == ["zookeeper"]:
        raise ConfigError("the path of a zookeeper:// URL is a node of one's own, like /lessor")
    return "/" + "/".join(parts) if parts else DEFAULT_CHROOT


def _tick(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= MAX_TICK_MS:
        raise ConfigError(f"tick is the server's tickTime in milliseconds, from 1 to {MAX_TICK_MS}, not {text!r}")
    return int(text)


def _flag(options: dict[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in TRUE:
        raise ConfigError(f"{name} is true or false")
    return TRUE[text]


def _tls(options: dict[str, str], *, tls: bool) -> dict[str, Any]:
    given = [name for name in TLS_OPTIONS if name in options]
    if not tls:
        if given:
            raise ConfigError(f"{given[0]} goes with tls=true")
        return {}
    if options.get("ssl_cert_reqs", "required") not in ("none", "required"):
        raise ConfigError("ssl_cert_reqs is none or required")
    verify = options.get("ssl_cert_reqs", "required") == "required"
    return {
        "use_ssl": True,
        "ca": options.get("ssl_ca_certs"),
        "certfile": options.get("ssl_certfile"),
        "keyfile": options.get("ssl_keyfile"),
        "keyfile_password": options.get("ssl_password"),
        "verify_certs": verify,
        "check_hostname": _flag(options, "ssl_check_hostname", default=verify),
    }


def _login(options: dict[str, str], username: str, password: str) -> dict[str, Any]:
    mechanism = options.get("sasl")
    if mechanism is None:
        if "sasl_service" in options:
            raise ConfigError("sasl_service goes with sasl")
        return {"auth_data": [("digest", f"{username}:{password}")]} if username else {}
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl is one of {', '.join(MECHANISMS)}")
    try:
        import puresasl  # noqa: F401, PLC0415 - only for those who use it
    except ModuleNotFoundError:
        raise ConfigError("SASL needs pure-sasl: pip install 'kazoo[sasl]'") from None
    named = {"username": username, "password": password}
    return {
        "sasl_options": {
            "mechanism": mechanism,
            "service": options.get("sasl_service", "zookeeper"),
            **{name: value for name, value in named.items() if value},
        }
    }


def _acl(text: str | None, *, known: bool) -> tuple[Any, ...]:
    if text not in (None, "open", "creator"):
        raise ConfigError("acl is open (everybody may do everything) or creator (only this user)")
    if text == "creator" and not known:
        raise ConfigError("acl=creator needs a user in the URL")
    return tuple(CREATOR_ALL_ACL if text == "creator" or (text is None and known) else OPEN_ACL_UNSAFE)
