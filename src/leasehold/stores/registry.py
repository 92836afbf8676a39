"""Finds the store for a URL: scheme -> "module:Class". A store's module is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from leasehold.errors import ConfigError
from leasehold.stores.base import StoreURL

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.core.clock import Clock
    from leasehold.stores.base import Guarantees, Store


class Entry(NamedTuple):
    """Where a store is, and what to install for it."""

    target: str
    extra: str | None = None


KNOWN = {
    "memory": Entry("leasehold.stores.memory:MemoryStore"),
    "sqlite": Entry("leasehold.stores.sqlite:SqliteStore"),
}
ENTRY_POINTS = "leasehold.stores"
"""Other packages add theirs here: ``scheme = "package.module:Class"``, called with a `StoreURL` and a `Clock`."""


def open_store(url: str, clock: Clock) -> Store:
    """Open the store that the URL names."""
    parsed = StoreURL.parse(url)
    return _load(parsed.scheme)(parsed, clock)


def guarantees() -> list[Guarantees]:
    """Return what each known store promises, without opening any."""
    return [_load(scheme).guarantees for scheme in KNOWN]  # type: ignore[attr-defined]


def _load(scheme: str) -> Callable[[StoreURL, Clock], Store]:
    entry = KNOWN.get(scheme) or _from_entry_points(scheme)
    if entry is None:
        known = ", ".join(f"{name}://" for name in KNOWN)
        raise ConfigError(f"no store for {scheme}:// URLs; there are: {known}")
    module, _, name = entry.target.partition(":")
    try:
        factory: Callable[[StoreURL, Clock], Store] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if entry.extra is None:
            raise
        raise ConfigError(f"{scheme}:// needs {error.name}: pip install 'leasehold[{entry.extra}]'") from error
    return factory


def _from_entry_points(scheme: str) -> Entry | None:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 15 ms, and hardly anybody needs it

    found = entry_points(group=ENTRY_POINTS, name=scheme)
    return Entry(next(iter(found)).value) if found else None
