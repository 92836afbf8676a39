"""Behind Sentinel: the master dies, hangs or steps down, and clients go on with the next one by themselves."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lessor import Client
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Release, Renew, Renewed, Unknown
from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.hosts import Node
from lessor.testing.conformance.base import Thread, new_id, until
from tests.crossprocess.stalls import Stalls
from tests.servers import free_port
from tests.servers.redis import redis_server
from tests.servers.redis_sentinel import SERVICE, Sentinel, SentinelGroup, sentinel_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lessor.core.ops import Outcome
    from lessor.stores.redis import RedisStore
    from tests.servers.redis import RedisServer


@pytest.fixture(scope="module")
def shared() -> Iterator[SentinelGroup]:
    with sentinel_group(replicas=2, down_after_ms=1000) as group:
        yield group


@pytest.fixture
def group(shared: SentinelGroup) -> SentinelGroup:
    until(shared.settled, "a group at rest", 90)
    return shared


def ask(store: RedisStore, op: Any, timeout: float = 5) -> Outcome:
    return store.apply([op], timeout=timeout)[0]


def port_in_use(store: RedisStore) -> int:
    return store._connections._idle[-1].node.port


def goes_on(store: RedisStore, op: Acquire) -> Granted:
    """Ask until somebody grants; what comes before is silence, and never a refusal for good."""
    granted: list[Granted] = []

    def asked() -> bool:
        outcome = ask(store, op, timeout=1)
        if isinstance(outcome, Granted):
            granted.append(outcome)
            return True
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, StoreUnavailable), outcome
        return False

    until(asked, "a grant by the next master", 60)
    return granted[0]


class Contender(Thread):
    """Takes and gives back, over and over; each token has to be above all that were known before."""

    tokens: list[int]

    def __init__(self, url: str, tokens: list[int], stop: threading.Event) -> None:
        self.turns = 0

        def work() -> None:
            with Client(url, timeout=2) as leases:
                while not stop.is_set():
                    known = max(tokens, default=0)
                    try:
                        with leases.acquire("contended", ttl=5, wait=20) as lease:
                            assert lease.token > known
                            tokens.append(lease.token)
                            self.turns += 1
                    except LessorError:
                        continue  # lost, or nobody there, in the middle of it

        super().__init__(work)


@pytest.mark.parametrize("fate", ["killed", pytest.param("silent", marks=pytest.mark.long)])
def test_the_master_goes_in_the_middle_of_everything(
    fate: str, group: SentinelGroup, open_store: Callable[[str], RedisStore]
) -> None:
    """Holders, waiters and a crowd in turns live on, and nobody believes an old master that comes back."""
    namespace = f"{group.url}?namespace=midst-{fate}"
    store = open_store(namespace)
    held = ask(store, Acquire("held", "A", "a", 60 * SECOND))
    assert isinstance(held, Granted)
    tokens: list[int] = []
    stop = threading.Event()
    with Client(namespace) as holder, Client(namespace) as waiter:
        lease = holder.acquire("waited-for", ttl=60)
        waiting = Thread(lambda: waiter.acquire("waited-for", ttl=5))
        crowd = [Contender(namespace, tokens, stop) for _ in range(3)]
        until(lambda: len(tokens) > 20, "some turns")
        until(lambda: bool(store.read(["waited-for"], timeout=5)[0].queue), "a waiter")  # type: ignore[union-attr]
        old = group.master
        until(lambda: old.run("WAIT", 2, 1000) == 2, "replicas that have all of it")
        if fate == "killed":
            old.kill()
        else:
            old.stop()
        start = SYSTEM.now()
        assert isinstance(ask(store, Renew("held", "A", held.token, 60 * SECOND), timeout=0.5), (Unknown, Renewed))
        assert (SYSTEM.now() - start) / SECOND < 60
        fresh = goes_on(store, Acquire("fresh", new_id(), "a", SECOND))
        assert fresh.token > held.token
        assert port_in_use(store) != old.port
        if fate == "killed":
            old.start()
        else:
            old.go_on()
        # It takes itself for the master until Sentinel tells it otherwise, and it knows nothing, or too little.
        assert isinstance(ask(store, Acquire("held", "B", "b", SECOND)), Held)
        assert isinstance(ask(store, Renew("held", "A", held.token, 60 * SECOND)), Renewed)
        known = len(tokens)
        until(lambda: len(tokens) > known + 20, "more turns", 60)
        lease.check()
        lease.release()
        assert waiting.result(30).token > lease.token
        stop.set()
        for contender in crowd:
            contender.result(60)
            assert contender.turns > 0
    until(lambda: old.run("ROLE")[0] == "slave", "the old master among the replicas", 60)
    assert isinstance(ask(store, Acquire("held", "B", "b", SECOND)), Held)
    assert port_in_use(store) == group.master.port != old.port


def test_a_master_that_steps_down_is_left(group: SentinelGroup, open_store: Callable[[str], RedisStore]) -> None:
    store = open_store(f"{group.url}?namespace=steps-down")
    listening = store.subscribe("")
    assert isinstance(ask(store, Acquire("job", "A", "a", 60 * SECOND)), Granted)
    assert listening.get(5)
    group.fail_over()
    until(lambda: listening.get(1) is None, "the word that something may have been missed")
    goes_on(store, Acquire("other", "A", "a", SECOND))
    until(lambda: bool(listening.get(1)), "the event")
    assert listening.address
    listening.close()


def test_a_replica_that_sentinel_names_too_early_is_not_used(
    group: SentinelGroup, open_store: Callable[[str], RedisStore]
) -> None:
    """The address is followed by the question: are you the master?"""
    store = open_store(group.url)
    replica = next(server for server in group.servers if server is not group.master)
    with pytest.raises(StoreUnavailable, match="replica at present"):
        store._where.examine(replica.run("ROLE"), Node("127.0.0.1", replica.port))


def test_one_sentinel_is_enough_and_a_silent_one_is_passed_over(
    group: SentinelGroup, open_store: Callable[[str], RedisStore]
) -> None:
    live = group.sentinels[2]
    with group.sentinels[0].standing_still():
        ports = [group.sentinels[0].port, free_port(), live.port]
        store = open_store(f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/{SERVICE}")
        assert isinstance(ask(store, Acquire("job", new_id(), "a", SECOND), timeout=3), (Granted, Held))
        store._connections._drop_idle()
        with Stalls() as stalls:
            start = SYSTEM.host_ns()
            ask(store, Acquire("job", new_id(), "a", SECOND), timeout=3)
            end = SYSTEM.host_ns()
        assert (end - start) / SECOND - stalls.between(start, end) < 1, "the one that answered last is asked first"
    until(group.agreed, "a Sentinel that has caught up", 60)


def test_nobody_names_a_master(open_store: Callable[[str], RedisStore]) -> None:
    store = open_store(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/{SERVICE}")
    outcome = ask(store, Acquire("job", "A", "a", SECOND))
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, StoreUnavailable)
    assert "no Sentinel names the master" in str(outcome.error)


def test_what_is_wrong_with_the_url_is_said(
    group: SentinelGroup, server: RedisServer, open_store: Callable[[str], RedisStore]
) -> None:
    a_sentinel = f"127.0.0.1:{group.sentinels[0].port}"
    for url, says in [
        (f"redis://{a_sentinel}", f"is a Sentinel: write redis+sentinel://{a_sentinel}/NAME"),
        (f"redis+sentinel://{a_sentinel}/nobody", "knows no master named 'nobody'"),
        (f"redis+sentinel://127.0.0.1:{server.port}/{SERVICE}", "is no Sentinel; for a single server write redis://"),
    ]:
        outcome = ask(open_store(url), Acquire("job", "A", "a", SECOND))
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, ConfigError)
        assert says in str(outcome.error)


def test_sentinels_and_servers_have_passwords_of_their_own(
    tmp_path: Path, open_store: Callable[[str], RedisStore]
) -> None:
    with redis_server("--requirepass", "for-redis") as master, contextlib.ExitStack() as ending:
        settings = ["requirepass for-sentinel", f"sentinel auth-pass {SERVICE} for-redis"]
        sentinel = Sentinel(str(tmp_path), master, 20_000, *settings)
        ending.callback(sentinel.end)
        place = f"127.0.0.1:{sentinel.port}/{SERVICE}"
        right = f"redis+sentinel://:for-redis@{place}?sentinel_password=for-sentinel"
        store = open_store(right)
        goes_on(store, Acquire("job", "A", "a", SECOND))
        assert "for-" not in store.url + repr(store) + repr(store._address) + repr(vars(store._address))
        for wrong, where in [
            (f"redis+sentinel://:for-redis@{place}", sentinel.port),
            (f"redis+sentinel://:for-redis@{place}?sentinel_password=wrong-w0rd", sentinel.port),
            (right.replace("for-redis", "wrong-w0rd"), master.port),
        ]:
            outcome = ask(open_store(wrong), Release("job", "A"))
            assert isinstance(outcome, Unknown)
            assert isinstance(outcome.error, ConfigError)
            assert "password" in str(outcome.error)
            assert str(where) in str(outcome.error)
            assert "w0rd" not in str(outcome.error)
