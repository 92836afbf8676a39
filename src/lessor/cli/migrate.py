"""``lessor migrate``: makes the store's schema, or brings an older one up to date. What leases there are stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.cli.screen import Screen
from lessor.client.terms import default_url
from lessor.errors import ConfigError
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Migrating
from lessor.stores.registry import open_store

if TYPE_CHECKING:
    import argparse

TIMEOUT: Final = 60.0
"""Seconds: somebody who is at it already is waited for."""


def migrate(args: argparse.Namespace) -> int:
    """Migrate, or print how, and say what there was and what there is."""
    store = open_store(default_url() if args.url is None else args.url, SYSTEM)
    try:
        if not isinstance(store, Migrating):
            raise ConfigError(f"{store.guarantees.store} has no schema to migrate: it sees to its own")
        Screen().line(store.migration().rstrip("\n") if args.print else store.migrate(timeout=TIMEOUT))
    finally:
        store.close()
    return 0
