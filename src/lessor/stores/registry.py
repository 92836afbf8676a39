"""Finds the store for a URL: scheme -> "module:Class". A store's module is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lessor.errors import ConfigError
from lessor.stores.base import StoreURL

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.clock import Clock
    from lessor.stores.base import Guarantees, Store


class Entry(NamedTuple):
    """Where a store is, and what to install for it."""

    target: str
    extra: str | None = None


class EngineLike(Protocol):
    """An engine of SQLAlchemy, sync or async, as far as it matters here: it knows a URL."""

    @property
    def url(self) -> Any:
        """Where it connects to."""
        ...

    @property
    def dialect(self) -> Any:
        """What it speaks there."""
        ...


KNOWN = {
    "memory": Entry("lessor.stores.memory:MemoryStore"),
    "sqlite": Entry("lessor.stores.sqlite:SqliteStore"),
    "redis": Entry("lessor.stores.redis:RedisStore", "redis"),
    "rediss": Entry("lessor.stores.redis:RedisStore", "redis"),
    "redis+sentinel": Entry("lessor.stores.redis:RedisStore", "redis"),
    "rediss+sentinel": Entry("lessor.stores.redis:RedisStore", "redis"),
    "redis+cluster": Entry("lessor.stores.redis:RedisStore", "redis"),
    "rediss+cluster": Entry("lessor.stores.redis:RedisStore", "redis"),
    "valkey": Entry("lessor.stores.redis:RedisStore", "redis"),
    "valkeys": Entry("lessor.stores.redis:RedisStore", "redis"),
    "valkey+sentinel": Entry("lessor.stores.redis:RedisStore", "redis"),
    "valkeys+sentinel": Entry("lessor.stores.redis:RedisStore", "redis"),
    "valkey+cluster": Entry("lessor.stores.redis:RedisStore", "redis"),
    "valkeys+cluster": Entry("lessor.stores.redis:RedisStore", "redis"),
    "postgresql": Entry("lessor.stores.postgresql:PostgresStore", "postgresql"),
    "postgres": Entry("lessor.stores.postgresql:PostgresStore", "postgresql"),
    "postgresql+psycopg": Entry("lessor.stores.postgresql:PostgresStore", "postgresql"),
    "zookeeper": Entry("lessor.stores.zookeeper:ZooKeeperStore", "zookeeper"),
    "etcd": Entry("lessor.stores.etcd:EtcdStore", "etcd"),
    "etcds": Entry("lessor.stores.etcd:EtcdStore", "etcd"),
    "paxos": Entry("lessor.stores.paxos:PaxosStore", "paxos"),
    "paxoss": Entry("lessor.stores.paxos:PaxosStore", "paxos"),
}
ENTRY_POINTS = "lessor.stores"
"""Other packages add theirs here: ``scheme = "package.module:Class"``, called with a `StoreURL` and a `Clock`."""


def open_store(url: str, clock: Clock) -> Store:
    """Open the store that the URL names."""
    parsed = StoreURL.parse(url)
    factory = _load(parsed.scheme)
    try:
        return factory(parsed, clock)
    except ModuleNotFoundError as error:
        raise _not_installed(parsed.scheme, KNOWN.get(parsed.scheme), error) from error


def url_of(where: str | Store | EngineLike) -> object:
    """Return the URL where an SQLAlchemy engine connects to; whatever else it is, as it is.

    The engine itself is not used: leases need connections that no pool of its user's can run out of.
    """
    url: Any = getattr(where, "url", None)
    render = getattr(url, "render_as_string", None)
    if not callable(render):
        return where
    backend = url.get_backend_name()
    if backend != "postgresql":
        raise ConfigError(f"this engine connects to {backend}: name the store of the leases by its URL")
    return str(url.set(drivername="postgresql").render_as_string(hide_password=False))


def guarantees() -> list[Guarantees]:
    """Return what each known store promises, without opening any."""
    first = {entry.target: scheme for scheme, entry in reversed(KNOWN.items())}
    return [_load(s).guarantees for s in KNOWN if s in first.values()]  # type: ignore[attr-defined]


def _load(scheme: str) -> Callable[[StoreURL, Clock], Store]:
    entry = KNOWN.get(scheme) or _from_entry_points(scheme)
    if entry is None:
        known = ", ".join(f"{name}://" for name in KNOWN)
        raise ConfigError(f"no store for {scheme}:// URLs; there are: {known}")
    module, _, name = entry.target.partition(":")
    try:
        factory: Callable[[StoreURL, Clock], Store] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise _not_installed(scheme, entry, error) from error
    return factory


def _not_installed(scheme: str, entry: Entry | None, error: ModuleNotFoundError) -> Exception:
    """Return the error with the hint, where the store is one of ours that needs a library."""
    if entry is None or entry.extra is None:
        return error
    return ConfigError(f"{scheme}:// needs {error.name}: pip install 'lessor[{entry.extra}]'")


def _from_entry_points(scheme: str) -> Entry | None:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 15 ms, and hardly anybody needs it

    found = entry_points(group=ENTRY_POINTS, name=scheme)
    return Entry(next(iter(found)).value) if found else None
