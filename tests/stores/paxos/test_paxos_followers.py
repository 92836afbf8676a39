"""Who waits for another one to read is forgotten when its call is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lessor.core.ops import Release
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, Thread, new_id, taken, until
from tests.servers.paxos import paxos_cluster

if TYPE_CHECKING:
    import pytest

    from lessor.stores.paxos.calls import Call


def test_a_call_that_is_over_before_it_has_begun_to_wait_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where a thread is kept from running between the two."""
    with paxos_cluster() as cluster:
        store: Any = open_store(cluster.url, SYSTEM)
        engine = store._engine
        look = engine._look_at_watch

        def late(call: Call, now: int) -> int:
            due: int = look(call, now)
            return min(due, now)  # it is time to look again at once

        def work(number: int) -> None:
            for _ in range(5):
                lease_id = new_id()
                taken(store, f"job/{number}", 30, lease_id)
                store.apply([Release(f"job/{number}", lease_id)], timeout=PATIENCE)

        monkeypatch.setattr(engine, "_look_at_watch", late)
        for thread in [Thread(lambda number=number: work(number)) for number in range(8)]:  # type: ignore[misc]
            thread.result(60)
        until(lambda: not engine._followers, "the end of all", 2)
        store.close()
