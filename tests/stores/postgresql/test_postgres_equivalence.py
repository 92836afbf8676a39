"""PostgreSQL gives the same answers as the rules, whatever is asked and however it is packed into calls.

The server's functions are the rules written again, so this is what keeps the two the same. One fake clock is the time
for both; the schema's owner may put it in the place of the server's. Two stores take turns.
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
from lessor.stores.memory import MemoryStore
from lessor.stores.postgresql import PostgresStore
from tests.scale import scaled
from tests.stores.stories import (
    EPISODES,
    FORGETFUL,
    HERE,
    ServerClock,
    Side,
    follow,
    hear,
    many_on_one_resource,
    more_abandoned_than_remembered,
    stories,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Op, Outcome
    from lessor.testing.clock import FakeClock
    from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.heavy


MARK = "mark"

serials = itertools.count()


class PostgresSide(Side):
    """Tells the server the time before it asks."""

    def __init__(
        self, stores: list[PostgresStore], raw: psycopg.Connection, clock: FakeClock, *, watched: bool
    ) -> None:
        super().__init__(stores, watched=watched)
        self.raw = raw
        self.clock = clock
        self.namespace = stores[0]._address.namespace
        if watched:
            raw.execute("UPDATE lessor.spaces SET watched_until = %s WHERE namespace = %s", (2**62, self.namespace))

    def apply(self, ops: list[Op], which: int) -> list[Outcome]:
        self._set_clock()
        return super().apply(ops, which)

    def state(self) -> tuple[list[Record | None], list[Record], list[list[Contender]]]:
        self._set_clock()
        return super().state()

    def collect(self) -> None:
        self._set_clock()
        super().collect()

    def news(self) -> list[Event | Notice]:
        """All that came before a last word, which is said now."""
        last_word = f'[["revoked","{MARK}","{MARK}"]]'
        self.raw.execute("SELECT pg_notify(%s, %s)", (f"lessor:{self.subscription.address}", last_word))
        news: list[Event | Notice] = []
        while not (news and isinstance(news[-1], Notice) and news[-1].lease_id == MARK):
            news += self.subscription.get(5) or ()
        return [item._replace(address=HERE) if isinstance(item, Notice) else item for item in news[:-1]]

    def _set_clock(self) -> None:
        self.raw.execute("UPDATE lessor.test_clock SET us = %s", (self.clock.wall_us(),))


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def database(postgres: PostgresServer, patch: pytest.MonkeyPatch) -> Iterator[tuple[str, psycopg.Connection]]:
    """A database whose leases take the time from a table."""
    url = postgres.database()
    patch.setattr("lessor.stores.postgresql.store.COLLECT_EVERY", 1e18)  # the stories say when
    store = PostgresStore(StoreURL.parse(url), ServerClock())
    store.read(["x"], timeout=10)
    store.close()
    with postgres.connect(url.rpartition("/")[2]) as raw:
        raw.execute("SET synchronous_commit = off")
        raw.execute("CREATE TABLE lessor.test_clock AS SELECT 0::bigint AS us")
        raw.execute(
            "CREATE OR REPLACE FUNCTION lessor.clock_us() RETURNS bigint LANGUAGE sql VOLATILE "
            "AS 'SELECT us FROM lessor.test_clock'"
        )
        yield url, raw


@contextmanager
def sides(
    database: tuple[str, psycopg.Connection], clock: FakeClock, *, watched: bool
) -> Iterator[tuple[Side, PostgresSide]]:
    url, raw = database
    serial = next(serials)
    model = MemoryStore(StoreURL.parse(f"memory://equivalence-postgresql-{serial}"), clock)
    place = StoreURL.parse(f"{url}?namespace=equivalence-{serial}")
    stores = [PostgresStore(place, clock), PostgresStore(place, clock)]
    memory, there = Side([model], watched=watched), PostgresSide(stores, raw, clock, watched=watched)
    try:
        yield memory, there
    finally:
        memory.subscription.close()
        there.subscription.close()
        there.subscription.get(0)
        for store in stores:
            store.close()


Database = tuple[str, Any]


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
@settings(max_examples=scaled(600), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
@given(story=stories)
def test_postgresql_does_what_memory_does(database: Database, *, watched: bool, story: list[Any]) -> None:
    clock = ServerClock()
    with sides(database, clock, watched=watched) as both:
        for step in story:
            follow(clock, step, both)
            hear(both)


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
@pytest.mark.parametrize("episode", EPISODES)
def test_an_episode(database: Database, episode: str, *, watched: bool) -> None:
    clock = ServerClock()
    with sides(database, clock, watched=watched) as both:
        for step in EPISODES[episode]:
            follow(clock, step, both)
            hear(both)


def test_a_batch_with_one_resource_many_times_over(database: Database) -> None:
    clock = ServerClock()
    with sides(database, clock, watched=False) as both:
        follow(clock, (many_on_one_resource(), 0), both)


def test_more_is_abandoned_than_is_remembered(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ServerClock()
    raw = database[1]
    (function,) = raw.execute("SELECT pg_get_functiondef('lessor.bury'::regproc)").fetchone()
    assert str(MOST_TOMBSTONES) in function
    with sides(database, clock, watched=False) as both:
        monkeypatch.setattr(entry, "MOST_TOMBSTONES", FORGETFUL)
        raw.execute(function.replace(str(MOST_TOMBSTONES), str(FORGETFUL)))
        try:
            for step in more_abandoned_than_remembered():
                follow(clock, step, both)
        finally:
            raw.execute(function)


@pytest.mark.parametrize("step", ["back", "forward"])
def test_the_server_clock_is_set_while_something_is_held(database: Database, step: str) -> None:
    """The shortcuts count on a clock that goes forward, and leave the rest to the rules."""
    clock = ServerClock()
    with sides(database, clock, watched=False) as both:
        for turn in range(3):
            follow(clock, ([Acquire("x", f"A{turn}", "h", SECOND)], 0), both)
            follow(clock, step, both)
            follow(clock, ([Release("x", f"A{turn}")], 0), both)
            follow(clock, ([Acquire("x", f"B{turn}", "h", SECOND)], 0), both)
            follow(clock, ([Acquire("y", f"A{turn}", "h", SECOND), Release("y", f"A{turn}")], 1), both)
            follow(clock, 7200, both)


@pytest.mark.parametrize("size", [1, 2])
def test_a_common_day(database: Database, size: int) -> None:
    """What the shortcuts are made for, one at a time and two: take, hold, give back, again."""
    clock = ServerClock()
    with sides(database, clock, watched=False) as both:
        for turn in range(20):
            mine = [Acquire(name, f"id{turn}", "h", SECOND, metadata='{"n":"1"}') for name in ("x", "y")[:size]]
            held = [Renew(op.resource, op.lease_id, 0, 2 * SECOND) for op in mine]
            back = [Release(op.resource, op.lease_id) for op in mine]
            for ops in (mine, mine, [op._replace(lease_id="B") for op in mine], held, back, back):
                follow(clock, (ops, turn), both)
                clock.advance(0.001)
            if turn % 10 == 9:
                follow(clock, "back", both)
                follow(clock, "collect", both)


@pytest.mark.parametrize("later", [0.000001, 0.05, 0.1, 0.2, 7])
@pytest.mark.parametrize("asker", ["A", "B", "C", "D"])
def test_a_free_resource_that_somebody_waits_for(database: Database, asker: str, later: float) -> None:
    """One call an operation, as the shortcuts like it: they must see the queue."""
    clock = ServerClock()
    with sides(database, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h-A", SECOND)], 0), both)
        for waiter in ("B", "C"):
            follow(clock, ([Acquire("x", waiter, f"h-{waiter}", SECOND, queue=True, notify=HERE)], 0), both)
        follow(clock, ([Release("x", "A")], 1), both)
        follow(clock, later, both)
        for ask in (asker, "D", "B", "C"):
            follow(clock, ([Acquire("x", ask, f"h-{ask}", SECOND)], 0), both)
            follow(clock, ([Release("x", ask)], 0), both)
        hear(both)


def test_a_family_of_leases(database: Database) -> None:
    """A parent renewed for days carries a child that has no time of its own, and its child, along; all end at once."""
    clock = ServerClock()
    with sides(database, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h", 10 * SECOND)], 0), both)
        follow(clock, ([Acquire("y", "B", "h", 0, parent=("x", 0))], 0), both)
        follow(
            clock, ([Acquire("y/z", "C", "h", 0, parent=("y", 0)), Acquire("x", "D", "d", SECOND, queue=True)], 1), both
        )
        for _ in range(3):
            follow(clock, ([Renew("x", "A", 0, 86_400 * SECOND)], 0), both)
            follow(clock, 86_000, both)
            follow(clock, "collect", both)
        follow(clock, ([Release("x", "A")], 0), both)
        hear(both)


def test_levels_and_cycles(database: Database) -> None:
    clock = ServerClock()
    with sides(database, clock, watched=False) as both:
        for side in both:
            side.latest |= {f"l{n}": 0 for n in range(12)}
        follow(clock, ([Acquire("l0", "A", "h", SECOND)], 0), both)
        for n in range(1, 12):
            follow(clock, ([Acquire(f"l{n}", "A", "h", SECOND, parent=(f"l{n - 1}", 0))], 0), both)
        follow(clock, ([Acquire("l0", "B", "h", SECOND, parent=("l3", 0))], 0), both)
        follow(clock, ([Acquire("x", "B", "h", SECOND, parent=("x", 0))], 0), both)


@pytest.mark.parametrize("token", [TOKEN_LIMIT - 2, TOKEN_LIMIT - 1, 2**52 + 1, 4_503_599_627_370_497])
def test_tokens_are_exact_up_to_the_limit(database: Database, token: int) -> None:
    clock = ServerClock()
    with sides(database, clock, watched=True) as both:
        follow(clock, ([Acquire("x", "A", "h", SECOND, seen_token=token - 1)], 0), both)
        follow(clock, ([Renew("x", "A", 0, SECOND), Revoke("x", token=token - 1), Revoke("x", token=token)], 0), both)
        hear(both)
        follow(clock, ([Acquire("y", "B", "h", SECOND)], 1), both)
