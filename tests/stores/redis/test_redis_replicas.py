"""``?replicas=N``: what too few replicas have doesn't count, and a grant that doesn't count is taken back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from lessor import Client
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Loss, Lost, Release, Released, Renew, Renewed, Unknown
from lessor.errors import StoreUnavailable
from lessor.testing.conformance.base import until
from tests.servers.redis import RedisServer, redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.core.ops import Outcome
    from lessor.stores.redis import RedisStore


class Flock(NamedTuple):
    """A master with two replicas."""

    master: RedisServer
    replicas: list[RedisServer]

    def url(self, namespace: str, replicas: int, timeout: float = 0.3) -> str:
        return f"{self.master.url}?namespace={namespace}&replicas={replicas}&replica_timeout={timeout}"


@pytest.fixture(scope="module")
def servers() -> Iterator[Flock]:
    with ExitStack() as ending:
        master, *replicas = (ending.enter_context(redis_server()) for _ in range(3))
        for replica in replicas:
            replica.replicate(master)
        yield Flock(master, replicas)


@pytest.fixture
def flock(servers: Flock) -> Flock:
    """All replicas there, and up to date."""
    for replica in servers.replicas:
        if replica.run("ROLE")[:3] != ["slave", "127.0.0.1", servers.master.port]:
            replica.replicate(servers.master)
    until(lambda: len(servers.master.run("ROLE")[2]) == 2, "both replicas")
    servers.master.run("SET", "mark", "1")
    until(lambda: servers.master.run("WAIT", 2, 1000) in (0, 2), "replicas up to date")
    return servers


def ask(store: RedisStore, op: Any, timeout: float = 5) -> Outcome:
    return store.apply([op], timeout=timeout)[0]


def shortage(outcome: Outcome) -> str:
    assert isinstance(outcome, Unknown), outcome
    assert isinstance(outcome.error, StoreUnavailable)
    return str(outcome.error)


def test_a_grant_is_on_the_replicas_when_it_is_answered(flock: Flock, open_store: Callable[[str], RedisStore]) -> None:
    store = open_store(flock.url("there", 2))
    grant = ask(store, Acquire("job", "A", "a", 60 * SECOND))
    assert isinstance(grant, Granted)
    for replica in flock.replicas:
        assert replica.run("GET", "{lessor:there}:token") == str(grant.token)
    assert isinstance(ask(store, Renew("job", "A", grant.token, 60 * SECOND)), Renewed)
    assert ask(store, Release("job", "A")) == Released()


def test_one_replica_short(flock: Flock, open_store: Callable[[str], RedisStore]) -> None:
    """Grants are taken back, renewals are unknown; what needs no replica is answered as ever."""
    store, plain = open_store(flock.url("short", 2)), open_store(f"{flock.master.url}?namespace=short")
    held = ask(store, Acquire("held", "A", "a", 60 * SECOND))
    assert isinstance(held, Granted)
    with flock.replicas[0].standing_still():
        assert "1 of 2 replicas" in shortage(ask(store, Acquire("job", "A", "a", 60 * SECOND)))
        assert store.read(["job"], timeout=5) == [None], "nobody is left with it"
        assert ask(plain, Acquire("job", "A", "a", 60 * SECOND)) == Lost(Loss.RELEASED), "nor by a late request"
        assert "1 of 2 replicas" in shortage(ask(store, Renew("held", "A", held.token, 60 * SECOND)))
        assert isinstance(ask(store, Acquire("held", "B", "b", SECOND)), Held)
        assert ask(store, Release("held", "A")) == Released()
        assert isinstance(ask(open_store(flock.url("enough", 1)), Acquire("job", "A", "a", SECOND)), Granted)
    assert isinstance(ask(store, Acquire("job", "B", "b", 60 * SECOND)), Granted)


def test_what_was_handed_over_is_not_lost_with_a_grant_that_is_taken_back(
    flock: Flock, open_store: Callable[[str], RedisStore]
) -> None:
    store = open_store(flock.url("handed", 2))
    assert isinstance(ask(store, Acquire("job", "A", "a", 60 * SECOND)), Granted)
    ask(store, Release("job", "A", "b", state="left", reserve_ns=60 * SECOND))
    with flock.replicas[0].standing_still():
        shortage(ask(store, Acquire("job", "B", "b", 60 * SECOND)))
        assert isinstance(ask(store, Acquire("job", "C", "c", 60 * SECOND)), Held)
    granted = ask(store, Acquire("job", "D", "b", 60 * SECOND))
    assert isinstance(granted, Granted)
    assert granted.state == "left"


def test_a_grant_that_is_merely_confirmed_has_to_be_on_the_replicas_too(
    flock: Flock, open_store: Callable[[str], RedisStore]
) -> None:
    """It was made over another connection, and confirming it writes nothing that replicas could acknowledge."""
    store, plain = open_store(flock.url("again", 2)), open_store(f"{flock.master.url}?namespace=again")
    ask(store, Acquire("before", "A", "a", SECOND))
    with flock.replicas[0].standing_still():
        assert isinstance(ask(plain, Acquire("job", "A", "a", 60 * SECOND)), Granted)
        assert "replicas" in shortage(ask(store, Acquire("job", "A", "a", 60 * SECOND)))


def test_somebody_elses_grant_is_never_taken_back(flock: Flock, open_store: Callable[[str], RedisStore]) -> None:
    store, plain = open_store(flock.url("else", 2)), open_store(f"{flock.master.url}?namespace=else")
    with flock.replicas[0].standing_still():
        theirs = ask(plain, Acquire("theirs", "B", "b", 60 * SECOND))
        ops = [Acquire("theirs", "A", "a", SECOND), Acquire("ours", "A", "a", SECOND)]
        outcomes = store.apply(ops, timeout=5)
        assert isinstance(outcomes[0], Held)
        shortage(outcomes[1])
        (record,) = store.scan("", timeout=5)
        assert isinstance(theirs, Granted)
        assert (record.resource, record.token) == ("theirs", theirs.token)


def test_one_wait_for_a_whole_batch(flock: Flock, open_store: Callable[[str], RedisStore]) -> None:
    store = open_store(flock.url("batch", 2))
    ask(store, Release("nothing", "A"))
    with flock.master.client() as raw:
        raw.config_resetstat()
        outcomes = store.apply([Acquire(f"job/{n}", "A", "a", SECOND) for n in range(50)], timeout=5)
        assert all(isinstance(outcome, Granted) for outcome in outcomes)
        store.apply([Release(f"job/{n}", "A") for n in range(50)], timeout=5)
        assert raw.info("commandstats")["cmdstat_wait"]["calls"] == 1
        with flock.replicas[1].standing_still():
            outcomes = store.apply([Acquire(f"job/{n}", "B", "b", SECOND) for n in range(50)], timeout=5)
            assert {shortage(outcome) for outcome in outcomes} == {shortage(outcomes[0])}
            assert list(store.scan("", timeout=5)) == []


def test_too_few_replicas_at_the_start(flock: Flock, open_store: Callable[[str], RedisStore]) -> None:
    text = shortage(ask(open_store(flock.url("start", 3)), Acquire("job", "A", "a", SECOND)))
    assert "has 2 of the 3 replicas that the URL asks for" in text


def test_a_replica_that_left(flock: Flock, open_store: Callable[[str], RedisStore]) -> None:
    store = open_store(flock.url("left", 2))
    assert isinstance(ask(store, Acquire("job", "A", "a", SECOND)), Granted)
    flock.replicas[0].run("REPLICAOF", "NO", "ONE")
    until(lambda: len(flock.master.run("ROLE")[2]) == 1, "the parting")
    shortage(ask(store, Acquire("other", "A", "a", SECOND)))


def test_a_holder_without_replicas_stops_in_time(flock: Flock) -> None:
    """Its renewals are unknown, so it ends at the deadline that it can be sure of."""
    with Client(flock.url("holder", 2, timeout=0.2)) as leases:
        lease = leases.acquire("job", ttl=2)
        with flock.replicas[0].standing_still():
            until(lambda: lease.state == "jeopardy", "a renewal that doesn't count")
            until(lambda: lease.state == "lost", "the end")
