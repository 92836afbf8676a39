from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

import pytest

from leasehold.testing import Harness
from leasehold.testing.conformance.batches import Batches
from leasehold.testing.conformance.ending import Ending
from leasehold.testing.conformance.exclusion import Exclusion
from leasehold.testing.conformance.family import Family
from leasehold.testing.conformance.grace import Grace
from leasehold.testing.conformance.handover import Handover
from leasehold.testing.conformance.limits import Limits
from leasehold.testing.conformance.naming import Naming
from leasehold.testing.conformance.ordering import Ordering
from leasehold.testing.conformance.queueing import Queueing
from leasehold.testing.conformance.tokens import Tokens
from leasehold.testing.conformance.waiting import Waiting
from leasehold.testing.conformance.watching import Watching
from tests.servers.etcd import EtcdServer, etcd_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from leasehold.stores.base import Store

serials = itertools.count()


class EtcdHarness(Harness):
    ttl = 1.0
    lag = 1.5
    place: ClassVar[EtcdServer]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._namespace = f"conformance-{next(serials)}"

    def url(self) -> str:
        return f"{self.place.url}?namespace={self._namespace}"

    def collect(self, store: Store) -> None:
        """Delete the notes that etcd would let go of by itself in a minute."""
        self.place.ctl("del", "--prefix", f"/leasehold/{self._namespace}/lease/")

    def hanging(self) -> AbstractContextManager[None]:
        return self.place.standing_still()


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        EtcdHarness.place = server
        yield server


class WhatALeaseIs(
    Exclusion, Tokens, Grace, Ending, Waiting, Queueing, Ordering, Handover, Limits, Family, Watching, Batches, Naming
):
    """The first half of all cases. The others, about time, faults and processes, take as long, in another file."""


class TestEtcd(WhatALeaseIs):
    harness = EtcdHarness
