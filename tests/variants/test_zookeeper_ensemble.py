"""Three servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.testing import StoreConformance
from tests.conformance.test_zookeeper import ZooKeeperHarness
from tests.servers.zookeeper import Ensemble, ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def place() -> Iterator[Ensemble]:
    with ensemble() as place:
        ZooKeeperHarness.place = place
        yield place


class TestZooKeeperEnsemble(StoreConformance):
    harness = ZooKeeperHarness
