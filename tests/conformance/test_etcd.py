from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

import pytest

from lessor.testing import Harness, StoreCases
from tests.servers.etcd import EtcdServer, etcd_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lessor.stores.base import Store

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
        self.place.ctl("del", "--prefix", f"/lessor/{self._namespace}/lease/")

    def hanging(self) -> AbstractContextManager[None]:
        return self.place.standing_still()


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[EtcdServer]:
    with etcd_server() as server:
        EtcdHarness.place = server
        yield server


class TestEtcd(StoreCases):
    harness = EtcdHarness
