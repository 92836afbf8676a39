from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.testing import PatternCases
from tests.conformance.test_etcd import EtcdHarness
from tests.servers.etcd import EtcdServer, etcd_server

if TYPE_CHECKING:
    from collections.abc import Iterator


class PatternsHarness(EtcdHarness):
    @property
    def steady(self) -> float:
        """A batch under one lease is taken one by one: it takes seconds under load."""
        return 6.0


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        EtcdHarness.place = server
        yield server


class TestPatternsOnEtcd(PatternCases):
    harness = PatternsHarness
