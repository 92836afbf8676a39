"""Ctrl-C while somebody listens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.testing.conformance.base import PATIENCE, Thread, taken
from tests.stores.interrupting import interrupted_everywhere

if TYPE_CHECKING:
    from types import ModuleType

    from lessor.stores.base import Store
    from lessor.stores.postgresql.subscription import PostgresSubscription
    from lessor.stores.redis.subscription import RedisSubscription


def hides_no_event(
    store: Store, subscribed: RedisSubscription | PostgresSubscription, prefix: str, module: ModuleType
) -> None:
    """Interrupt whoever listens at each line of the module: it hears of what has happened, or that it may have missed it."""
    names: list[str] = []

    def hear() -> list[str] | None:
        news = subscribed.get(PATIENCE)
        return None if news is None else [event.resource for event in news]

    def happen_and_hear() -> None:
        names.append(f"{prefix}{len(names)}")
        Thread(lambda: taken(store, names[-1], 30)).result()
        assert hear() == [names[-1]]

    for where in interrupted_everywhere(module, happen_and_hear):
        heard = hear()
        assert heard is None or heard == [names[-1]], where
        if heard is None and subscribed._news:
            assert hear() == [names[-1]], where
