from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.testing import Harness, StoreConformance

if TYPE_CHECKING:
    from lessor.stores.base import Store


class MemoryHarness(Harness):
    mints_by_our_clock = True
    can_hang = False

    def url(self) -> str:
        return f"memory://{self.folder.name}"

    def collect(self, store: Store) -> None:
        store.collect()  # type: ignore[attr-defined]


class TestMemory(StoreConformance):
    harness = MemoryHarness
