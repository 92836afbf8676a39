from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

import pytest

from lessor.stores.base import Capability
from lessor.testing import Harness, StoreConformance
from tests.servers.postgres import PostgresServer, pgbouncer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lessor.core.clock import Clock
    from lessor.stores.base import Store

serials = itertools.count()


class PostgresHarness(Harness):
    ttl = 1.0
    server: ClassVar[PostgresServer]
    address: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._namespace = f"conformance-{next(serials)}"

    def url(self) -> str:
        return f"{self.address}/postgres?namespace={self._namespace}"

    def collect(self, store: Store) -> None:
        store.collect()  # type: ignore[attr-defined]

    def hanging(self) -> AbstractContextManager[None]:
        return self.server.standing_still()


class PooledHarness(PostgresHarness):
    ttl = 1.5

    def open(self, clock: Clock | None = None) -> Store:
        """Open the store, which has found out that nobody is called through the pooler, and says so."""
        store = super().open(clock)
        assert store.subscribe() is None
        assert Capability.PUSH not in store.guarantees.capabilities
        return store


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    """A server of its own: the suite makes it stand still."""
    with postgres_server("fsync=off", "full_page_writes=off") as server, pgbouncer(server) as pooler:
        PostgresHarness.server = server
        PostgresHarness.address = server.address
        PooledHarness.address = pooler.address
        yield


class TestPostgres(StoreConformance):
    harness = PostgresHarness


@pytest.mark.variant
class TestBehindPgBouncer(StoreConformance):
    """In transaction mode."""

    harness = PooledHarness
