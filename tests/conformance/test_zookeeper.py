from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

import pytest

from lessor.testing import Harness, StoreCases
from tests.servers.zookeeper import Ensemble, ZooKeeperServer, zookeeper_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lessor.stores.base import Store

serials = itertools.count()


class ZooKeeperHarness(Harness):
    ttl = 1.0
    place: ClassVar[ZooKeeperServer | Ensemble]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._namespace = f"conformance-{next(serials)}"

    def url(self) -> str:
        return f"{self.place.url}/test?namespace={self._namespace}"

    def collect(self, store: Store) -> None:
        """A free resource has left nothing to collect: its nodes are gone."""

    def hanging(self) -> AbstractContextManager[None]:
        return self.place.standing_still()


@pytest.fixture(scope="module", autouse=True)
def place() -> Iterator[ZooKeeperServer]:
    with zookeeper_server() as place:
        ZooKeeperHarness.place = place
        yield place


class TestZooKeeper(StoreCases):
    harness = ZooKeeperHarness
