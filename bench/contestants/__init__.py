"""Everybody who takes part. A module put beside this one is found by itself."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from inspect import getmembers, isclass
from typing import TYPE_CHECKING

from bench.contestant import Contestant
from bench.results import KINDS

if TYPE_CHECKING:
    from types import ModuleType


@cache
def everybody() -> tuple[type[Contestant], ...]:
    """Return all contestants: ours first, then the peers, then the floors."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = [kind for module in modules for kind in _contestants(module)]
    return tuple(sorted(found, key=lambda kind: KINDS.index(kind.kind)))


def _contestants(module: ModuleType) -> list[type[Contestant]]:
    """Return those that are defined there; classes without a name are what several share."""
    classes = [kind for _, kind in getmembers(module, isclass) if kind.__module__ == module.__name__]
    return [kind for kind in classes if issubclass(kind, Contestant) and hasattr(kind, "name")]
