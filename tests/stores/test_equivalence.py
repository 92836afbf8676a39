"""The stores that run the rules give the same answers, whatever is asked and however it is packed into calls.

Memory applies the rules and nothing else, so it is the model. SQLite has shortcuts for the common cases; this is what
keeps them honest. Two SQLite stores share the file and take turns, as two processes would.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Release
from lessor.stores.base import StoreURL
from lessor.stores.memory import MemoryStore
from lessor.stores.sqlite import SqliteStore
from lessor.testing.clock import FakeClock
from tests.scale import scaled
from tests.stores.stories import EPISODES, RESOURCES, Side, follow, hear, many_on_one_resource, stories

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy


QUICK_DISK = "/dev/shm" if os.path.isdir("/dev/shm") else None

serials = itertools.count()


@contextmanager
def sides(clock: FakeClock, *, watched: bool) -> Iterator[tuple[Side, Side]]:
    url = StoreURL.parse(f"memory://equivalence-{os.getpid()}-{next(serials)}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=QUICK_DISK))
        place = StoreURL.parse(f"sqlite:///{folder}/leases.db")
        files = [SqliteStore(place, clock), SqliteStore(place, clock)]
        for store in files:
            stack.callback(store.close)
        memory, sqlite = Side([MemoryStore(url, clock)], watched=watched), Side(files, watched=watched)
        stack.callback(memory.subscription.close)
        stack.callback(sqlite.subscription.close)
        yield memory, sqlite


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
@settings(max_examples=scaled(1000), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
@given(story=stories)
def test_sqlite_does_what_memory_does(*, watched: bool, story: list[Any]) -> None:
    clock = FakeClock()
    with sides(clock, watched=watched) as both:
        for step in story:
            follow(clock, step, both)
            hear(both)


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
@pytest.mark.parametrize("episode", EPISODES)
def test_an_episode(episode: str, *, watched: bool) -> None:
    clock = FakeClock()
    with sides(clock, watched=watched) as both:
        for step in EPISODES[episode]:
            follow(clock, step, both)
            hear(both)


def test_a_batch_with_one_resource_many_times_over() -> None:
    clock = FakeClock()
    with sides(clock, watched=False) as both:
        follow(clock, (many_on_one_resource(), 0), both)


@pytest.mark.parametrize("size", [1, 2])
def test_a_common_day(size: int) -> None:
    """What the shortcuts are made for, one call at a time and two: take, hold, give back, again."""
    clock = FakeClock()
    with sides(clock, watched=False) as both:
        for turn in range(50):
            mine = [Acquire(name, f"id{turn}", "h", SECOND, metadata='{"n":"1"}') for name in RESOURCES[:size]]
            back = [Release(op.resource, op.lease_id) for op in mine]
            for ops in (mine, mine, [op._replace(lease_id="B") for op in mine], back, back):
                follow(clock, (ops, turn), both)
                clock.advance(0.001)
            if turn % 10 == 9:
                follow(clock, "back", both)
                follow(clock, "collect", both)


def test_an_id_abandoned_while_it_holds() -> None:
    clock = FakeClock()
    ask = Acquire("x", "A", "h", SECOND)
    with sides(clock, watched=False) as both:
        for ops in ([ask], [Release("x", "A")], [ask], [Release("x", "A", abandon=True)], [ask]):
            follow(clock, (ops, 0), both)


def test_children_that_ended_with_their_parent_are_forgotten() -> None:
    clock = FakeClock()
    with sides(clock, watched=False) as both:
        follow(clock, ([Acquire("x", "A", "h", SECOND)], 0), both)
        follow(clock, ([Acquire("y", "A", "h", 0, parent=("x", 0))], 0), both)
        follow(clock, 0.5, both)
        follow(clock, "collect", both)
        follow(clock, 7, both)
        follow(clock, "collect", both)
        follow(clock, ([Acquire("y", "A", "h", SECOND)], 0), both)
