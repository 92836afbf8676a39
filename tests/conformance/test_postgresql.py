from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

import pytest

from lessor.testing import Harness, StoreCases
from tests.servers.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

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


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[PostgresServer]:
    """A server of its own: the suite makes it stand still."""
    with postgres_server("fsync=off", "full_page_writes=off") as server:
        PostgresHarness.server = server
        PostgresHarness.address = server.address
        yield server


class TestPostgres(StoreCases):
    harness = PostgresHarness
