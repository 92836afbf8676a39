from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing.conformance.reentry import Reentry
from leasehold.testing.conformance.semaphores import Semaphores
from leasehold.testing.conformance.sessions import Sessions
from leasehold.testing.conformance.several import Several
from tests.conformance.zookeeper_cases import ZooKeeperHarness
from tests.servers.zookeeper import ZooKeeperServer, zookeeper_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.consensus


@pytest.fixture(scope="module", autouse=True)
def place() -> Iterator[ZooKeeperServer]:
    with zookeeper_server() as place:
        ZooKeeperHarness.place = place
        yield place


class TestPatternsOnZooKeeper(Sessions, Several, Semaphores, Reentry):
    harness = ZooKeeperHarness
