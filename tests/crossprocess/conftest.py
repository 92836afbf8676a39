"""For tests with several processes: an empty store of each kind that processes can share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "redis", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/leases.db"
    elif request.param == "redis":
        with redis_server() as server:
            yield server.url
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        yield postgres.database()
