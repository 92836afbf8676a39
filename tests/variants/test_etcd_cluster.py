"""Three members, of a newer etcd than the distribution's, where there is a wheel with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from lessor.testing import PatternCases, StoreCases
from tests.conformance.test_etcd import EtcdHarness
from tests.servers.etcd import EtcdCluster, etcd_cluster, newer_etcd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from lessor.stores.base import Store


class ClusterHarness(EtcdHarness):
    ttl = 2.0
    cluster: ClassVar[EtcdCluster]

    def url(self) -> str:
        return f"{self.cluster.url}?namespace=three-{self._namespace}"

    def collect(self, store: Store) -> None:
        self.cluster.members[0].ctl("del", "--prefix", f"/lessor/three-{self._namespace}/lease/")

    def hanging(self) -> AbstractContextManager[None]:
        return self.cluster.standing_still()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[EtcdCluster]:
    with etcd_cluster(binary=newer_etcd()) as cluster:
        ClusterHarness.cluster = cluster
        yield cluster


class PatternsHarness(ClusterHarness):
    @property
    def steady(self) -> float:
        """A batch under one lease is taken one by one, with three disks' agreement each: it takes seconds under load."""
        return 6.0


class TestEtcdCluster(StoreCases):
    harness = ClusterHarness


class TestPatternsOnEtcdCluster(PatternCases):
    harness = PatternsHarness
