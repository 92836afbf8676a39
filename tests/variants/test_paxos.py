from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.testing import PatternCases
from tests.conformance.test_paxos import PaxosHarness
from tests.servers.paxos import PaxosCluster, paxos_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[PaxosCluster]:
    with paxos_cluster(3, "--max-ttl", "1h") as cluster:
        PaxosHarness.cluster = cluster
        yield cluster


class TestPatternsOnPaxos(PatternCases):
    harness = PaxosHarness
