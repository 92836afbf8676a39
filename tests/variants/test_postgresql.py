from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.stores.base import Capability
from lessor.testing import PatternCases, StoreConformance
from tests.conformance.test_postgresql import PostgresHarness
from tests.servers.postgres import pgbouncer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.core.clock import Clock
    from lessor.stores.base import Store


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
    """Of their own: the suite makes them stand still."""
    with postgres_server("fsync=off", "full_page_writes=off") as server, pgbouncer(server) as pooler:
        PostgresHarness.server = server
        PostgresHarness.address = server.address
        PooledHarness.address = pooler.address
        yield


class TestPatternsOnPostgres(PatternCases):
    harness = PostgresHarness


class TestBehindPgBouncer(StoreConformance):
    """In transaction mode."""

    harness = PooledHarness
