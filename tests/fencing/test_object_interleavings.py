"""Interleavings of two holders for the guard of objects, which looks first and writes then: no stale write gets through.

Its steps are the requests to the store. Each is taken when the numbers say so, and the other holder's come in between.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from obstore.store import MemoryStore

from lessor import Fenced
from lessor.fencing import FencedObject
from tests.scale import scaled

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from obstore.store import ObjectStore

    from tests.servers.s3 import S3Server

pytestmark = pytest.mark.heavy


STEPS = 14
names = itertools.count()


class Pause:
    """Gives the turn to whoever drives the coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Found(NamedTuple):
    meta: Any
    content: Any

    async def bytes_async(self) -> Any:
        return self.content


class Stepwise:
    """A store that pauses before each request."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    async def get_async(self, path: str, *, options: Any) -> Found:
        await Pause()
        found = self.store.get(path, options=options)
        return Found(found.meta, found.bytes())

    async def put_async(self, path: str, content: bytes, *, mode: Any, **more: Any) -> None:
        await Pause()
        self.store.put(path, content, mode=mode, **more)


class Unguarded:
    """Writes what it has, at a time of its own choice."""

    def __init__(self, store: Any, path: str) -> None:
        self.store = store
        self.path = path

    async def write_async(self, _bearer: object, data: bytes) -> None:
        await Pause()
        await self.store.put_async(self.path, data, mode="overwrite")


class Seen(NamedTuple):
    written: list[int]
    """The tokens of the writes, in the order in which they were made."""
    fenced: int


def play(kind: Any, store: ObjectStore, numbers: list[int]) -> Seen:
    """Play one interleaving. Each number says who is next, and what it does if it begins anew."""
    path = f"interleaved/{next(names)}"
    thing = kind(Stepwise(store), path)
    tokens = [1, 2]
    doing: list[tuple[int, Coroutine[Any, Any, None]] | None] = [None, None]
    written: list[int] = []
    fenced = 0
    for number in numbers:
        who, choice = number % 2, number // 2
        if doing[who] is None:
            if choice % 4 == 0:
                tokens[who] = max(tokens) + 1  # it takes the lease again, and is the newest from here on
            # Everybody writes the same, so that only the token can tell one write from another.
            doing[who] = tokens[who], thing.write_async(("job", tokens[who]), b"same")
        token, writing = doing[who] or (0, None)
        assert writing is not None
        try:
            writing.send(None)
        except StopIteration:
            written.append(token)
            doing[who] = None
        except Fenced as refused:
            assert token < refused.newest == max(written)  # noqa: PT017 - it may be raised or not
            fenced += 1
            doing[who] = None
    for left in doing:
        if left is not None:
            left[1].close()
    if kind is FencedObject:
        assert FencedObject(store, path).token == (written[-1] if written else None)
    return Seen(written, fenced)


def is_stale(seen: Seen) -> bool:
    return any(later < earlier for earlier, later in itertools.pairwise(seen.written))


@pytest.mark.parametrize(("kind", "games"), [("memory", scaled(10_000)), ("s3", scaled(2_000))])
@pytest.mark.timeout(300)
def test_no_stale_write_after_a_newer_one(kind: str, games: int, request: pytest.FixtureRequest) -> None:
    server: S3Server | None = request.getfixturevalue("s3") if kind == "s3" else None
    store: ObjectStore = MemoryStore() if server is None else server.store()
    dice = random.Random(3)
    played = []
    for _ in range(games):
        numbers = list(dice.randbytes(STEPS))
        seen = play(FencedObject, store, numbers)
        assert not is_stale(seen), (numbers, seen)
        played.append(seen)
    assert sum(len(set(seen.written)) > 1 for seen in played) > games / 20
    assert sum(seen.fenced > 0 for seen in played) > games / 20


def test_without_the_guard_stale_writes_get_through() -> None:
    dice, store = random.Random(3), MemoryStore()
    assert sum(is_stale(play(Unguarded, store, list(dice.randbytes(STEPS)))) for _ in range(300)) > 10
