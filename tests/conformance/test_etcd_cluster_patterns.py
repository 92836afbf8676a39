"""Three members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.test_etcd_cluster import ClusterHarness
from tests.conformance.test_etcd_patterns import WhatPatternsNeed
from tests.servers.etcd import EtcdCluster, etcd_cluster, newer_etcd

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.variant


class PatternsHarness(ClusterHarness):
    @property
    def steady(self) -> float:
        """A batch under one lease is taken one by one, with three disks' agreement each: it takes seconds under load."""
        return 6.0


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[EtcdCluster]:
    with etcd_cluster(binary=newer_etcd()) as cluster:
        ClusterHarness.cluster = cluster
        yield cluster


class TestPatternsOnEtcdCluster(WhatPatternsNeed):
    harness = PatternsHarness
