from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.testing.conformance.cancellation import Cancellation
from lessor.testing.conformance.holding import Holding
from lessor.testing.conformance.processes import Processes
from lessor.testing.conformance.renewing import Renewing
from tests.conformance.test_etcd import EtcdHarness
from tests.servers.etcd import EtcdServer, etcd_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        EtcdHarness.place = server
        yield server


class WhoHoldsIt(Holding, Cancellation, Processes):
    """The second half of all cases, but for renewals, which take long."""


class TestEtcdOverTime(Renewing, WhoHoldsIt):
    harness = EtcdHarness
