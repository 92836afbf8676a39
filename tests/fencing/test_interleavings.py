"""10,000 interleavings of two holders for each SQL guard: no stale write after a newer one committed."""

from __future__ import annotations

import itertools
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fencing.two_holders import AlchemySession, Arena, PlainSession, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fencing.two_holders import Session

KINDS: dict[str, type[Session]] = {"sqlite3": PlainSession, "sqlalchemy": AlchemySession}
A_TIME = 25
"""Interleavings in one example: hypothesis' own work on an example takes longer than playing it."""
EXAMPLES = 400
STEPS = 14


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    in_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=in_memory if in_memory.is_dir() else None) as name:
        yield Path(name)


def interleavings(data: bytes) -> list[list[int]]:
    """Cut what hypothesis drew into interleavings."""
    return [list(data[at : at + STEPS]) for at in range(0, len(data), STEPS)]


def is_stale(seen: Seen) -> bool:
    return any(later < earlier for earlier, later in itertools.pairwise(seen.committed))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_stale_write_after_a_newer_one_committed(kind: str, folder: Path) -> None:
    played: list[Seen] = []
    arena = Arena(str(folder / f"{kind}.db"), KINDS[kind], guarded=True)

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(min_size=A_TIME * STEPS, max_size=A_TIME * STEPS))
    def play(data: bytes) -> None:
        for numbers in interleavings(data):
            seen = arena.play(numbers)
            played.append(seen)
            assert not is_stale(seen), (numbers, seen)
            assert seen.remembered == (seen.committed[-1] if seen.committed else None), (numbers, seen)

    play()
    arena.close()
    # It was worth something: writes got through, were refused, and got into each other's way.
    assert len(played) >= 10_000
    assert sum(len(set(seen.committed)) > 1 for seen in played) > 500
    assert sum(seen.fenced > 0 for seen in played) > 500
    assert sum(seen.locked > 0 for seen in played) > 500


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_without_the_guard_stale_writes_get_through(kind: str, folder: Path) -> None:
    arena = Arena(str(folder / f"{kind}-unguarded.db"), KINDS[kind], guarded=False)
    dice = random.Random(1)
    stale = sum(is_stale(arena.play(list(dice.randbytes(STEPS)))) for _ in range(300))
    arena.close()
    assert stale > 10
