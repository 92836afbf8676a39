"""All cases for ZooKeeper, in two halves that take about as long, for one server and for three."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

from lessor.testing import Harness, StoreConformance
from lessor.testing.conformance.cancellation import Cancellation
from lessor.testing.conformance.holding import Holding
from lessor.testing.conformance.processes import Processes
from lessor.testing.conformance.renewing import Renewing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lessor.stores.base import Store
    from tests.servers.zookeeper import Ensemble, ZooKeeperServer

serials = itertools.count()


class ZooKeeperHarness(Harness):
    ttl = 1.0
    place: ClassVar[ZooKeeperServer | Ensemble]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._namespace = f"conformance-{next(serials)}"

    def url(self) -> str:
        return f"{self.place.url}/test?namespace={self._namespace}"

    def collect(self, store: Store) -> None:
        """A free resource has left nothing to collect: its nodes are gone."""

    def hanging(self) -> AbstractContextManager[None]:
        return self.place.standing_still()


OVER_TIME = (Renewing, Holding, Cancellation, Processes)


class OverTime(*OVER_TIME):  # type: ignore[misc]
    """What takes its time."""

    harness = ZooKeeperHarness


class AtOnce(*(base for base in StoreConformance.__bases__ if base not in OVER_TIME)):  # type: ignore[misc]
    """All the rest."""

    harness = ZooKeeperHarness
