"""Interleavings of three holders for the Redis guard, 10,000 in a full proof: no stale write after a newer one."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lessor import Fenced
from lessor.fencing import fence
from tests.scale import scaled
from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.heavy


A_TIME = 50
EXAMPLES = scaled(200)
STEPS = 14
HOLDERS = 3
DATA, HASH, KEPT = "doc", "index", "lessor_fence:job"
SCRIPT = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('HSET', KEYS[2], 'token', ARGV[1])"
FAILING = f"{SCRIPT} error('half-way')"


class Seen(NamedTuple):
    """What came of an interleaving."""

    written: list[int]
    """The tokens of the writes in the order in which they were made, since the server last lost everything."""
    fenced: int


class Arena:
    """Holders that keep their tokens until they take the lease again, and a world that is unkind to their data."""

    def __init__(self, port: int, *, guarded: bool) -> None:
        self.guarded = guarded
        self.clients = [redis.Redis(port=port, decode_responses=who == 0) for who in range(HOLDERS)]
        self.judge = redis.Redis(port=port, decode_responses=True)

    def close(self) -> None:
        for client in [*self.clients, self.judge]:
            client.close()

    def play(self, numbers: list[int]) -> Seen:
        """Play one interleaving. Each number says who is next, and what it does."""
        self.judge.flushall()
        tokens = list(range(1, HOLDERS + 1))
        written: list[int] = []
        fenced = 0
        for number in numbers:
            who, choice = number % HOLDERS, number // HOLDERS % 16
            if choice == 0:
                self.judge.delete(DATA)  # somebody tidies up
            elif choice == 1:
                self.judge.pexpire(DATA, 0)  # its time is over
            elif choice == 2:
                self.judge.script_flush()
            elif choice == 3 and number > 200:
                self.judge.flushall()  # with the data go the tokens
                written = []
            elif choice < 6:
                tokens[who] = max(tokens) + 1  # it takes the lease again, and is the newest from here on
            else:
                token = tokens[who]
                try:
                    self.write(self.clients[who], token, choice - 6)
                except Fenced as refused:
                    assert token < refused.newest == written[-1]  # noqa: PT017 - it may be raised or not
                    fenced += 1
                else:
                    written.append(token)
                    self.look(written)
        self.look(written)
        return Seen(written, fenced)

    def write(self, client: redis.Redis, token: int, how: int) -> None:
        if not self.guarded:
            client.set(DATA, token)
            return
        guarded = fence(client, ("job", token))
        ways: list[Callable[[], Any]] = [
            lambda: guarded.set(DATA, token),
            lambda: guarded.set(DATA, token, ex=100),
            lambda: guarded.set(DATA, token, nx=True),
            lambda: guarded.hset(HASH, "token", token),
            lambda: guarded.delete(DATA, HASH),
            lambda: guarded.eval(SCRIPT, [DATA, HASH], [token]),
            lambda: self.fail(guarded, token),
        ]
        ways[how % len(ways)]()

    def fail(self, guarded: Any, token: int) -> None:
        with pytest.raises(redis.ResponseError, match="half-way"):
            guarded.eval(FAILING, [DATA, HASH], [token])

    def look(self, written: list[int]) -> None:
        """What is there was written by one of those that were let in, and the newest of them is remembered."""
        with self.judge.pipeline() as pipeline:
            pipeline.get(DATA)
            pipeline.hget(HASH, "token")
            pipeline.get(KEPT)
            data, token, kept = pipeline.execute()
        assert {data, token} <= {None, *map(str, written)}
        if self.guarded:
            assert kept == (str(written[-1]) if written else None)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with redis_server() as server:
        yield server.port


def is_stale(seen: Seen) -> bool:
    return any(later < earlier for earlier, later in itertools.pairwise(seen.written))


@pytest.mark.timeout(600)
def test_no_stale_write_after_a_newer_one(port: int) -> None:
    played: list[Seen] = []
    arena = Arena(port, guarded=True)

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(min_size=A_TIME * STEPS, max_size=A_TIME * STEPS))
    def play(data: bytes) -> None:
        for at in range(0, len(data), STEPS):
            numbers = list(data[at : at + STEPS])
            seen = arena.play(numbers)
            played.append(seen)
            assert not is_stale(seen), (numbers, seen)

    play()
    arena.close()
    assert len(played) >= scaled(10_000)
    assert sum(len(set(seen.written)) > 1 for seen in played) > scaled(500)
    assert sum(seen.fenced > 0 for seen in played) > scaled(500)


def test_without_the_guard_stale_writes_get_through(port: int) -> None:
    dice = random.Random(1)
    arena = Arena(port, guarded=False)
    stale = sum(is_stale(arena.play(list(dice.randbytes(STEPS)))) for _ in range(300))
    arena.close()
    assert stale > 10
