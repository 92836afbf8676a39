from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing.conformance.reentry import Reentry
from leasehold.testing.conformance.semaphores import Semaphores
from leasehold.testing.conformance.sessions import Sessions
from leasehold.testing.conformance.several import Several
from tests.conformance.test_etcd import EtcdHarness
from tests.servers.etcd import EtcdServer, etcd_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.consensus


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        EtcdHarness.place = server
        yield server


class TestPatternsOnEtcd(Sessions, Several, Semaphores, Reentry):
    harness = EtcdHarness
