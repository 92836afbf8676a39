"""Three members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.testing.conformance.renewing import Renewing
from tests.conformance.test_etcd_cluster import ClusterHarness
from tests.servers.etcd import EtcdCluster, etcd_cluster, newer_etcd

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.variant


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[EtcdCluster]:
    with etcd_cluster(binary=newer_etcd()) as cluster:
        ClusterHarness.cluster = cluster
        yield cluster


class TestEtcdClusterRenewing(Renewing):
    harness = ClusterHarness
