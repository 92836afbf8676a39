"""Whatever a server forgets, tokens never go back; exclusion may be gone, and then the fence still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Loss, Lost, Renew
from lessor.errors import Fenced
from lessor.fencing import Fence
from lessor.testing.conformance.base import new_id, until
from tests.servers import free_port
from tests.servers.redis import RedisServer, redis_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.stores.redis import RedisStore

COUNTER = "{lessor:default}:token"


def granted(store: RedisStore, lease_id: str, **fields: Any) -> int:
    outcome = store.apply([Acquire("job", lease_id, lease_id, 60 * SECOND, **fields)], timeout=5)[0]
    assert isinstance(outcome, Granted), outcome
    return outcome.token


def flushed(server: RedisServer) -> None:
    server.run("FLUSHALL")


def without_scripts(server: RedisServer) -> None:
    server.run("SCRIPT", "FLUSH")
    server.run("FLUSHDB")


def restarted_empty(server: RedisServer) -> None:
    server.kill()
    server.start()


def without_the_counter(server: RedisServer) -> None:
    server.run("DEL", COUNTER, "{lessor:default}:r:job")


@pytest.mark.parametrize("forget", [flushed, without_scripts, restarted_empty, without_the_counter])
def test_a_server_that_forgets_goes_on_above_all_that_it_granted(
    forget: Callable[[RedisServer], None], open_store: Callable[[str], RedisStore]
) -> None:
    with redis_server() as server:
        tokens = []
        for _ in range(5):
            store = open_store(server.url)  # somebody new each time, who knows of no token
            tokens.append(granted(store, new_id()))
            forget(server)
    assert tokens == sorted(set(tokens)), "tokens out of order"


def test_a_replica_that_lagged_behind_takes_over(open_store: Callable[[str], RedisStore]) -> None:
    """It grants again what it never heard of: two holders, and the older one's writes are refused."""
    with redis_server() as master, redis_server() as replica:
        replica.replicate(master)
        before = open_store(master.url)
        replica.run("REPLICAOF", "127.0.0.1", free_port())  # cut off: it keeps what it has
        older = granted(before, "A")
        master.kill()
        replica.run("REPLICAOF", "NO", "ONE")
        after = open_store(replica.url)
        assert after.read(["job"], timeout=5) == [None]
        newer = granted(after, "B")
        assert newer > older
        renewal = Renew("job", "A", older, 60 * SECOND)
        assert after.apply([renewal], timeout=5) == [Lost(Loss.TAKEN)]
        fence = Fence()
        fence.check(("job", newer))
        with pytest.raises(Fenced):
            fence.check(("job", older))


def test_a_replica_that_kept_up_goes_on_with_the_lease(open_store: Callable[[str], RedisStore]) -> None:
    with redis_server() as master, redis_server() as replica:
        replica.replicate(master)
        older = granted(open_store(f"{master.url}?replicas=1"), "A")
        master.kill()
        replica.run("REPLICAOF", "NO", "ONE")
        after = open_store(replica.url)
        until(lambda: replica.run("ROLE")[0] == "master", "the promotion")
        record = after.read(["job"], timeout=5)[0]
        assert record is not None
        assert record.token == older


def test_the_declared_exception_is_a_clock_set_back_together_with_a_lost_counter(
    server: RedisServer, store: RedisStore
) -> None:
    """And even then a client gets no token below what it has seen itself."""
    noon = 1_800_000_000_000_000
    store._now_us = lambda: noon
    older = granted(store, "A")
    assert older == noon
    store._now_us = lambda: noon - 3_600_000_000
    server.run("DEL", "{lessor:default}:r:job")
    assert granted(store, "B") > older, "the counter is there"
    server.run("FLUSHALL")
    assert granted(store, "C") < older, "nobody knows any more"
    server.run("FLUSHALL")
    assert granted(store, "D", seen_token=older) > older, "the asker knows"
