"""The script decides as the rules do, whatever is asked and however it is packed into calls.

Memory applies the rules and nothing else, so it is the model. Both run on one fake clock, in whole microseconds, and
count expiry on its wall clock as Redis does: a step of that clock is part of the story. Two Redis stores take turns.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings

from lessor.core import entry
from lessor.core.clock import SECOND
from lessor.core.entry import MOST_TOMBSTONES
from lessor.core.lease import TOKEN_LIMIT
from lessor.core.ops import Acquire, Event, Notice, Release, Renew, Revoke
from lessor.stores.base import StoreURL
from lessor.stores.memory import MemoryStore, MemoryTable
from lessor.stores.redis import RedisStore, script
from lessor.stores.redis.store import APPLY, READ
from tests.scale import scaled
from tests.stores.stories import (
    EPISODES,
    FORGETFUL,
    HERE,
    RESOURCES,
    ServerClock,
    Side,
    follow,
    hear,
    many_on_one_resource,
    more_abandoned_than_remembered,
    stories,
    turns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from lessor.core.entry import Entry
    from lessor.testing.clock import FakeClock
    from tests.servers.redis import RedisServer

pytestmark = pytest.mark.heavy


MARK = "mark"
LAST_WORD = f'["revoked","{MARK}","{MARK}"]'

serials = itertools.count()


class CountingTable(MemoryTable):
    """Raises the floor at every grant, as the namespace's counter does."""

    def save(self, entry: Entry) -> None:
        super().save(entry)
        self.floor = max(self.floor, entry.token)


class RedisSide(Side):
    def __init__(self, stores: list[RedisStore], raw: redis.Redis, model: MemoryTable, *, watched: bool) -> None:
        super().__init__(stores, watched=watched)
        self.raw = raw
        self.model = model

    def news(self) -> list[Event | Notice]:
        """All that came before a last word, which is said now."""
        assert self.raw.publish(f"{self.stores[0]._prefix}n:{self.subscription.address}", LAST_WORD) == 1
        news: list[Event | Notice] = []
        while not (news and isinstance(news[-1], Notice) and news[-1].lease_id == MARK):
            came = self.subscription.get(5)
            assert came
            news += came
        return [item._replace(address=HERE) if isinstance(item, Notice) else item for item in news[:-1]]

    def collect(self) -> None:
        """Forget what the model has forgotten, as Redis does when a record's time is over."""
        for name in set(RESOURCES) - set(self.model.entries):
            self.raw.delete(f"{self.stores[0]._prefix}r:{name}")


@contextmanager
def sides(server: RedisServer, clock: FakeClock, *, watched: bool) -> Iterator[tuple[Side, RedisSide]]:
    model = MemoryStore(StoreURL.parse("memory://equivalence-redis"), clock)
    model._table = table = CountingTable()
    place = StoreURL.parse(f"{server.url}?namespace=equivalence-{next(serials)}")
    stores = [RedisStore(place, clock), RedisStore(place, clock)]
    for store in stores:
        store._now_us = clock.wall_us
    with server.client() as raw:
        raw.flushall()
        memory, there = Side([model], watched=watched), RedisSide(stores, raw, table, watched=watched)
        try:
            yield memory, there
        finally:
            there.subscription.close()
            for store in stores:
                store.close()


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
@settings(max_examples=scaled(1000), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
@given(story=stories)
def test_redis_does_what_memory_does(server: RedisServer, *, watched: bool, story: list[Any]) -> None:
    clock = ServerClock()
    with sides(server, clock, watched=watched) as both:
        for step in story:
            follow(clock, step, both)
            hear(both)


@settings(max_examples=scaled(2000), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
@given(story=turns)
def test_turns_go_from_one_to_the_next_as_in_memory(server: RedisServer, story: list[Any]) -> None:
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        for step in story:
            follow(clock, step, both)
            hear(both)


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
@pytest.mark.parametrize("episode", EPISODES)
def test_an_episode(server: RedisServer, episode: str, *, watched: bool) -> None:
    clock = ServerClock()
    with sides(server, clock, watched=watched) as both:
        for step in EPISODES[episode]:
            follow(clock, step, both)
            hear(both)


def test_a_batch_with_one_resource_many_times_over(server: RedisServer) -> None:
    clock = ServerClock()
    with sides(server, clock, watched=False) as both:
        follow(clock, (many_on_one_resource(), 0), both)


def test_more_is_abandoned_than_is_remembered(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = "local MOST_TOMBSTONES = {}\n".format
    text = script.source(*APPLY)
    assert bound(MOST_TOMBSTONES) in text
    forgetful = {APPLY: text.replace(bound(MOST_TOMBSTONES), bound(FORGETFUL)), READ: script.source(*READ)}
    monkeypatch.setattr(script, "source", lambda *names: forgetful[names])
    monkeypatch.setattr(entry, "MOST_TOMBSTONES", FORGETFUL)
    clock = ServerClock()
    with sides(server, clock, watched=False) as both:
        for step in more_abandoned_than_remembered():
            follow(clock, step, both)


@pytest.mark.parametrize("step", ["back", "forward"])
def test_the_server_clock_is_set_while_something_is_held(server: RedisServer, step: str) -> None:
    """The shortcuts count on a clock that goes forward, and leave the rest to the rules."""
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        for turn in range(3):
            follow(clock, ([Acquire("x", f"A{turn}", "h", SECOND)], 0), both)
            follow(clock, step, both)
            follow(clock, ([Release("x", f"A{turn}")], 0), both)
            follow(clock, ([Acquire("x", f"B{turn}", "h", SECOND)], 0), both)
            follow(clock, ([Acquire("y", f"A{turn}", "h", SECOND), Release("y", f"A{turn}")], 1), both)
            follow(clock, 7200, both)


@pytest.mark.parametrize("later", [0.000001, 0.05, 0.1, 0.2, 7])
@pytest.mark.parametrize("asker", ["A", "B", "C", "D"])
def test_a_free_resource_that_somebody_waits_for(server: RedisServer, asker: str, later: float) -> None:
    """One call an operation, as the shortcuts like it: they must see the queue."""
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h-A", SECOND)], 0), both)
        for waiter in ("B", "C"):
            follow(clock, ([Acquire("x", waiter, f"h-{waiter}", SECOND, queue=True, notify=HERE)], 0), both)
        follow(clock, ([Release("x", "A")], 1), both)
        follow(clock, later, both)
        for ask in (asker, "D", "B", "C"):
            follow(clock, ([Acquire("x", ask, f"h-{ask}", SECOND)], 0), both)
            follow(clock, ([Release("x", ask)], 0), both)
        hear(both)


@pytest.mark.parametrize("between", [0.000001, 0.1, 4, 6.5])
def test_turns_that_go_from_one_to_the_next(server: RedisServer, between: float) -> None:
    """One call an operation: who holds it renews while others queue up, some of them more urgent, or unheard, or gone."""
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h-A", 60 * SECOND)], 0), both)
        for waiter, priority, notify in (("B", 0, HERE), ("C", 0, HERE), ("D", 1, HERE), ("E", 0, ""), ("F", 0, HERE)):
            queued = Acquire("x", waiter, f"h-{waiter}", 60 * SECOND, queue=True, notify=notify, priority=priority)
            follow(clock, ([queued], 0), both)
        follow(clock, ([Release("x", "C")], 1), both)
        for turn in "ADBEF":
            follow(clock, ([Renew("x", turn, 0, 30 * SECOND)], 0), both)
            follow(clock, ([Acquire("x", "G", "h-G", SECOND, queue=True, notify=HERE)], 1), both)
            follow(clock, between, both)
            follow(clock, ([Release("x", turn)], 0), both)
            follow(clock, ([Renew("x", turn, 0, 30 * SECOND)], 0), both)
            for asker in "DBEF":
                follow(clock, ([Acquire("x", asker, f"h-{asker}", 60 * SECOND)], 1), both)
            hear(both)


def test_a_family_of_leases(server: RedisServer) -> None:
    """A parent renewed for days carries a child that has no time of its own, and its child, along; all end at once."""
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h", 10 * SECOND)], 0), both)
        follow(clock, ([Acquire("y", "B", "h", 0, parent=("x", 0))], 0), both)
        follow(
            clock, ([Acquire("y/z", "C", "h", 0, parent=("y", 0)), Acquire("x", "D", "d", SECOND, queue=True)], 1), both
        )
        for _ in range(3):
            follow(clock, ([Renew("x", "A", 0, 86_400 * SECOND)], 0), both)
            follow(clock, 86_000, both)
        prefix = both[1].stores[0]._prefix
        assert all(both[1].raw.pttl(f"{prefix}{key}") > 3_600_000 for key in ("r:y", "r:y/z", "c:x", "c:y"))
        follow(clock, ([Release("x", "A")], 0), both)
        hear(both)
        assert both[1].raw.exists(f"{prefix}c:x", f"{prefix}c:y") == 0


def test_levels_and_cycles(server: RedisServer) -> None:
    clock = ServerClock()
    with sides(server, clock, watched=False) as both:
        for side in both:
            side.latest |= {f"l{n}": 0 for n in range(12)}
        follow(clock, ([Acquire("l0", "A", "h", SECOND)], 0), both)
        for n in range(1, 12):
            follow(clock, ([Acquire(f"l{n}", "A", "h", SECOND, parent=(f"l{n - 1}", 0))], 0), both)
        follow(clock, ([Acquire("l0", "B", "h", SECOND, parent=("l3", 0))], 0), both)
        follow(clock, ([Acquire("x", "B", "h", SECOND, parent=("x", 0))], 0), both)


@pytest.mark.parametrize("token", [TOKEN_LIMIT - 2, TOKEN_LIMIT - 1, 2**52 + 1, 4_503_599_627_370_497])
def test_tokens_are_exact_up_to_the_limit(server: RedisServer, token: int) -> None:
    clock = ServerClock()
    with sides(server, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h", SECOND, seen_token=token - 1)], 0), both)
        follow(clock, ([Renew("x", "A", 0, SECOND), Revoke("x", token=token - 1), Revoke("x", token=token)], 0), both)
        hear(both)
        assert both[1].raw.get(f"{both[1].stores[0]._prefix}token") == str(token)
        follow(clock, ([Acquire("y", "B", "h", SECOND)], 1), both)
