"""Three nodes, as people run them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

import pytest

from lessor.testing import Harness, StoreCases
from tests.servers.paxos import PaxosCluster, paxos_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lessor.stores.base import Store

serials = itertools.count()


class PaxosHarness(Harness):
    mints_by_our_clock = True
    cluster: ClassVar[PaxosCluster]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._namespace = f"conformance-{next(serials)}"

    def url(self) -> str:
        return f"{self.cluster.url}?namespace={self._namespace}"

    def collect(self, store: Store) -> None:
        for node in self.cluster.nodes:
            node.collect()

    def hanging(self) -> AbstractContextManager[None]:
        return self.cluster.standing_still()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[PaxosCluster]:
    with paxos_cluster(3, "--max-ttl", "1h") as cluster:
        PaxosHarness.cluster = cluster
        yield cluster


class TestPaxos(StoreCases):
    harness = PaxosHarness
