from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.zookeeper_cases import OverTime, ZooKeeperHarness
from tests.servers.zookeeper import Ensemble, ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.variant


@pytest.fixture(scope="module", autouse=True)
def place() -> Iterator[Ensemble]:
    with ensemble() as place:
        ZooKeeperHarness.place = place
        yield place


class TestZooKeeperEnsembleOverTime(OverTime):
    pass
