"""Five nodes, of which two are away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.testing import StoreConformance
from tests.conformance.test_paxos import PaxosHarness
from tests.servers.paxos import PaxosCluster, paxos_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from lessor.stores.base import Store


class FiveHarness(PaxosHarness):
    def collect(self, store: Store) -> None:
        for node in self.cluster.nodes[2:]:
            node.collect()

    def hanging(self) -> AbstractContextManager[None]:
        return PaxosCluster(self.cluster.nodes[2:]).standing_still()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[PaxosCluster]:
    """One is dead, and one stands still."""
    with paxos_cluster(5, "--max-ttl", "1h") as cluster:
        cluster.nodes[0].kill()
        cluster.nodes[1].stop()
        FiveHarness.cluster = cluster
        yield cluster


class TestFiveNodes(StoreConformance):
    harness = FiveHarness
