from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.testing import PatternCases
from tests.conformance.test_zookeeper import ZooKeeperHarness
from tests.servers.zookeeper import ZooKeeperServer, zookeeper_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def place() -> Iterator[ZooKeeperServer]:
    with zookeeper_server() as place:
        ZooKeeperHarness.place = place
        yield place


class TestPatternsOnZooKeeper(PatternCases):
    harness = ZooKeeperHarness
