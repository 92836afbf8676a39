from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

import pytest

from lessor.testing import Harness, StoreConformance
from tests.servers.redis import RedisServer, redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lessor.stores.base import Store

KEPT_MS = 60_000
"""How long the record of a free resource is kept."""

serials = itertools.count()


class RedisHarness(Harness):
    ttl = 0.8  # a good part of it is kept for the drift of the server's clock
    place: ClassVar[RedisServer]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._namespace = f"conformance-{next(serials)}"

    def url(self) -> str:
        return f"{self.place.url}?namespace={self._namespace}"

    def master(self) -> RedisServer:
        """The server that has this test's leases."""
        return self.place

    def collect(self, store: Store) -> None:
        """Delete the records that Redis would let go of by itself in a minute."""
        with self.master().client() as client:
            for key in client.scan_iter(f"{{lessor:{self._namespace}}}:r:*"):
                if client.pttl(key) <= KEPT_MS:
                    client.delete(key)

    def hanging(self) -> AbstractContextManager[None]:
        return self.master().standing_still()


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        RedisHarness.place = server
        yield server


class TestRedis(StoreConformance):
    harness = RedisHarness
