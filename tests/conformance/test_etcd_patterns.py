from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.testing import StoreConformance
from tests.conformance import test_etcd_over_time as over_time
from tests.conformance.test_etcd import EtcdHarness, WhatALeaseIs
from tests.servers.etcd import EtcdServer, etcd_server

if TYPE_CHECKING:
    from collections.abc import Iterator

ELSEWHERE = {*WhatALeaseIs.__mro__, *over_time.TestEtcdOverTime.__mro__}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        EtcdHarness.place = server
        yield server


class PatternsHarness(EtcdHarness):
    @property
    def steady(self) -> float:
        """A batch under one lease is taken one by one: it takes seconds under load."""
        return 6.0


class WhatPatternsNeed(*(base for base in StoreConformance.__bases__ if base not in ELSEWHERE)):  # type: ignore[misc]
    """All cases that are in no other file."""


class TestPatternsOnEtcd(WhatPatternsNeed):
    harness = PatternsHarness
