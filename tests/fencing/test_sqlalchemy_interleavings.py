from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fencing.interleavings import PostgresInterleavings
from tests.fencing.sql_places import PostgresPlace

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.heavy


class TestSqlalchemyOnPostgres(PostgresInterleavings):
    @pytest.fixture
    def place(self, postgres: PostgresServer) -> PostgresPlace:
        return PostgresPlace(postgres.database(), alchemy=True)
