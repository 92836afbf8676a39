"""Interleavings of two holders for an SQL guard, 10,000 in a full proof: no stale write after a newer one committed."""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lessor import Fenced
from lessor.fencing import postgresql
from tests.fencing.sql_places import PostgresPlace
from tests.fencing.two_holders import Arena, Seen
from tests.scale import scaled

if TYPE_CHECKING:
    from lessor.fencing import Stamp
    from lessor.fencing.steps import Steps
    from lessor.fencing.table import Table
    from tests.fencing.sql_places import Place

A_TIME = 25
"""Interleavings in one example: hypothesis' own work on an example takes longer than playing it."""
EXAMPLES = scaled(400)
STEPS = 14


def interleavings(data: bytes) -> list[list[int]]:
    """Cut what hypothesis drew into interleavings."""
    return [list(data[at : at + STEPS]) for at in range(0, len(data), STEPS)]


def is_stale(seen: Seen) -> bool:
    return any(later < earlier for earlier, later in itertools.pairwise(seen.committed))


class Interleavings:
    """For each guard in a file of its own, so that they run at the same time."""

    @pytest.mark.timeout(600)
    def test_no_stale_write_after_a_newer_one_committed(self, place: Place) -> None:
        played: list[Seen] = []
        with closing(Arena(place, guarded=True)) as arena:

            @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(st.binary(min_size=A_TIME * STEPS, max_size=A_TIME * STEPS))
            def play(data: bytes) -> None:
                for numbers in interleavings(data):
                    seen = arena.play(numbers)
                    played.append(seen)
                    assert not is_stale(seen), (numbers, seen)
                    assert seen.remembered == (seen.committed[-1] if seen.committed else None), (numbers, seen)

            play()
        # It was worth something: writes got through, were refused, and got into each other's way.
        assert len(played) >= scaled(10_000)
        assert sum(len(set(seen.committed)) > 1 for seen in played) > scaled(200)
        assert sum(seen.fenced > 0 for seen in played) > scaled(200)
        assert sum(seen.conflicts > 0 for seen in played) > scaled(200)
        assert sum(seen.waited > 0 for seen in played) > (scaled(200) if isinstance(place, PostgresPlace) else -1)

    def test_without_the_guard_stale_writes_get_through(self, place: Place) -> None:
        dice = random.Random(1)
        with closing(Arena(place, guarded=False)) as arena:
            stale = sum(is_stale(arena.play(list(dice.randbytes(STEPS)))) for _ in range(800))
        assert stale > 10


class PostgresInterleavings(Interleavings):
    """Where one waits for the other's row, there is more to go wrong."""

    def test_a_guard_that_looks_first_and_writes_then_is_found_out(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def admit(table: Table, stamp: Stamp) -> Steps:
            _, row = yield table.newest, {"resource": stamp.resource}
            if row is not None and row[0] > stamp.token:
                raise Fenced(stamp.resource, token=stamp.token, newest=row[0])
            blindly = table.admit.partition(" WHERE ")[0]
            yield blindly, {"resource": stamp.resource, "token": stamp.token}

        monkeypatch.setattr(postgresql, "admit", admit)
        dice = random.Random(1)
        with closing(Arena(place, guarded=True)) as arena:
            assert any(is_stale(arena.play(list(dice.randbytes(STEPS)))) for _ in range(2000))
