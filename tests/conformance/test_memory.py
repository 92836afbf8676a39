from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from leasehold.testing import Harness, StoreConformance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.stores.base import Store


class MemoryHarness(Harness):
    mints_by_our_clock = True

    def url(self) -> str:
        return f"memory://{self.folder.name}"

    def collect(self, store: Store) -> None:
        store.collect()  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        with self.open()._table.lock:  # type: ignore[attr-defined]
            yield


class TestMemory(StoreConformance):
    harness = MemoryHarness
