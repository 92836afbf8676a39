"""All cases on a Redis Cluster of three masters, over which their namespaces are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from lessor.testing import StoreConformance
from tests.conformance.test_redis import RedisHarness
from tests.servers.redis_cluster import Cluster, redis_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.redis import RedisServer


class ClusterHarness(RedisHarness):
    cluster: ClassVar[Cluster]

    def url(self) -> str:
        return f"{self.cluster.url}?namespace={self._namespace}"

    def master(self) -> RedisServer:
        return self.cluster.master_of(f"{{lessor:{self._namespace}}}:token")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Cluster]:
    with redis_cluster(masters=3) as cluster:
        ClusterHarness.cluster = cluster
        yield cluster


class TestRedisCluster(StoreConformance):
    harness = ClusterHarness
