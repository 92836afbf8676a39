"""What a batch tells: in the order in which it happened, whoever else is told something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Event, EventKind, Release
from lessor.testing.conformance.base import until

if TYPE_CHECKING:
    from lessor.core.ops import Op
    from lessor.stores.postgresql import PostgresStore

TURNS = 15


def test_events_of_one_batch_come_in_their_order_also_with_a_call_among_them(store: PostgresStore) -> None:
    watching = store.subscribe("")
    assert watching is not None
    store.apply([Acquire("other", "h" * 32, "h", SECOND)], timeout=5)
    store.apply([Acquire("other", "w" * 32, "h", SECOND, queue=True, notify=watching.address)], timeout=5)
    ids = [f"{turn:032}" for turn in range(TURNS)]
    turns: list[Op] = [op for one in ids for op in (Acquire("job", one, "h", SECOND), Release("job", one))]
    store.apply([*turns[:TURNS], Release("other", "h" * 32), *turns[TURNS:]], timeout=5)
    told: list[Event] = []

    def all_told() -> bool:
        news = watching.get(0.1) or []
        told.extend(event for event in news if isinstance(event, Event) and event.resource == "job")
        return len(told) == 2 * TURNS

    until(all_told, "all events")
    watching.close()
    assert [event.kind for event in told] == [EventKind.GRANTED, EventKind.RELEASED] * TURNS
    assert [event.token for event in told] == sorted(event.token for event in told), "tokens out of order"
