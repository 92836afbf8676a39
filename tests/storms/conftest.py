"""The stores that storms run on: one in memory, a file and a server."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.redis import RedisServer

serials = itertools.count()


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{os.urandom(8).hex()}"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/leases.db"
    return f"{request.getfixturevalue('redis').url}?namespace=storm-{next(serials)}"
