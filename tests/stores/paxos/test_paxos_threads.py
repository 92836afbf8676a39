"""Many threads on one store, and its end while they wait."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.core.ops import Acquire, Granted, Held, Notice, Release, Released, Renew, Renewed, Unknown
from lessor.core.paxos.ballots import Ballots
from lessor.errors import StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.paxos.calls import Call
from lessor.stores.paxos.engine import Engine
from lessor.stores.paxos.store import PaxosStore
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, Thread, new_id, ns, take, taken, until
from tests.servers.paxos import PaxosCluster, paxos_cluster
from tests.stores.interrupting import interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from lessor.stores.base import Store


@pytest.fixture(scope="module")
def cluster() -> Iterator[PaxosCluster]:
    with paxos_cluster() as cluster:
        yield cluster


@pytest.fixture
def store(cluster: PaxosCluster, request: pytest.FixtureRequest) -> Iterator[Store]:
    store = open_store(f"{cluster.url}?namespace={request.node.name[:60].replace('[', '.').replace(']', '')}", SYSTEM)
    yield store
    store.close()


def test_forty_threads_each_with_a_resource_of_its_own(store: Store) -> None:
    def work(number: int) -> None:
        for _ in range(10):
            lease_id = new_id()
            taken(store, f"job/{number}", 30, lease_id)
            assert store.read([f"job/{number}"], timeout=PATIENCE)[0] is not None
            (released,) = store.apply([Release(f"job/{number}", lease_id)], timeout=PATIENCE)
            assert not isinstance(released, Unknown)

    for thread in [Thread(lambda number=number: work(number)) for number in range(40)]:  # type: ignore[misc]
        thread.result(60)


def test_an_interrupt_just_before_reading_leaves_a_store_that_works(store: Store) -> None:
    taken(store, "job", 30)
    with interrupted(Engine._await, "if reading:"):
        take(store, "other", 30)
    taken(store, "another", 30)
    taken(store, "yet another", 30)


@pytest.mark.parametrize(
    ("function", "where"),
    [
        (Engine.run, "with self.lock:"),
        (Engine._act, "if step.attempt and step.to is None and not step.aside and not task.done:"),
    ],
)
def test_an_interrupt_before_a_request_is_sent_takes_it_back(
    store: Store, function: Callable[..., object], where: str
) -> None:
    taken(store, "job", 30)
    with interrupted(function, where):
        take(store, "mine", 60)
    taken(store, "another", 30)  # with which it would have been sent
    assert store.read(["mine"], timeout=PATIENCE) == [None]


def test_an_interrupt_while_others_calls_are_begun_loses_none_of_them(store: Store) -> None:
    assert isinstance(store, PaxosStore)
    begun = store._engine
    taken(store, "job", 30)
    with begun.lock:
        other = Thread(lambda: taken(store, "others", 30))
        until(lambda: bool(begun._arrivals), "the other one's call")
        with interrupted(Engine._admit, "if not call.admitted:  # else an interrupt fell into this loop"):
            begun._admit()
    other.result()


def test_an_interrupt_while_another_thread_is_woken_leaves_a_store_that_works(
    store: Store, cluster: PaxosCluster
) -> None:
    taken(store, "job", 30)
    for node in cluster.nodes:
        node.stop()
    reading = threading.Event()

    def follow() -> None:
        reading.wait(PATIENCE)
        time.sleep(0.3)
        follower = Thread(lambda: take(store, "followers", 30))
        time.sleep(0.5)
        for node in cluster.nodes:
            node.go_on()
        follower.result(PATIENCE)

    other = Thread(follow)
    with interrupted(Call.ring, "self.bell.release()"):
        reading.set()
        take(store, "mine", 30)
    other.result(2 * PATIENCE)
    Thread(lambda: taken(store, "another", 30)).result(PATIENCE)


def test_forty_threads_and_one_resource(store: Store) -> None:
    """Without a queue: most find it held, one at a time has it, and a split vote comes to an end."""
    inside = threading.Lock()
    tokens: list[int] = []

    def work() -> None:
        for _ in range(5):
            lease_id = new_id()
            (outcome,) = store.apply([Acquire("job", lease_id, "h", ns(30))], timeout=PATIENCE)
            if isinstance(outcome, Granted):
                assert inside.acquire(blocking=False), "two holders at once"
                tokens.append(outcome.token)
                inside.release()
                store.apply([Release("job", lease_id)], timeout=PATIENCE)
            else:
                assert isinstance(outcome, Held), outcome

    for thread in [Thread(work) for _ in range(40)]:
        thread.result(60)
    assert tokens == sorted(set(tokens)), "tokens out of order"
    assert tokens


def test_contenders_with_stores_of_their_own_settle_a_split_vote(cluster: PaxosCluster) -> None:
    clients = [Client(f"{cluster.url}?namespace=split") for _ in range(5)]
    start = threading.Barrier(len(clients))

    def work(client: Client) -> int:
        with client:
            client.get("job")
            start.wait(30)
            return sum(client.try_acquire("job", ttl=30) is not None for _ in range(3))

    won = [thread.result(60) for thread in [Thread(lambda c=client: work(c)) for client in clients]]  # type: ignore[misc]
    assert sum(won) >= 1


def test_closing_ends_the_calls_that_wait(cluster: PaxosCluster, store: Store) -> None:
    taken(store, "warm", 5)
    with cluster.standing_still():
        calls = [Thread(lambda: store.apply([Acquire("job", new_id(), "h", ns(5))], timeout=60)) for _ in range(6)]
        until(lambda: len(store._engine._followers) >= 5, "the calls")  # type: ignore[attr-defined]
        store.close()
        for call in calls:
            assert isinstance(call.result()[0], Unknown)
    with pytest.raises(StoreUnavailable):
        store.read(["job"], timeout=1)


def test_a_closed_store_leaves_nothing_open(cluster: PaxosCluster) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def once() -> None:
        with Client(f"{cluster.url}?namespace=closing") as client:
            client.acquire("job", ttl=5).release()

    once()
    before = descriptors()
    for _ in range(5):
        once()
    until(lambda: descriptors() <= before, "the end of the connections")


def test_a_scan_of_many_pages(store: Store) -> None:
    ids = [new_id() for _ in range(2500)]
    for start in range(0, 2500, 500):
        ops = [Acquire(f"many/{n:05}", ids[n], "h", ns(60)) for n in range(start, start + 500)]
        assert all(isinstance(outcome, Granted) for outcome in store.apply(ops, timeout=PATIENCE))
    names = [record.resource for record in store.scan("many/", timeout=PATIENCE)]
    assert names == [f"many/{n:05}" for n in range(2500)]
    assert len(list(store.scan("many/0001", timeout=PATIENCE))) == 10
    for start in range(0, 2500, 500):
        store.apply([Release(f"many/{n:05}", ids[n]) for n in range(start, start + 500)], timeout=PATIENCE)


def test_a_ttl_that_is_too_long_is_refused_with_the_numbers(store: Store) -> None:
    (outcome,) = store.apply([Acquire("job", new_id(), "h", ns(61))], timeout=PATIENCE)
    assert isinstance(outcome, Unknown)
    assert str(outcome.error) == "the TTL is 61 s, and 60 s are the most here: see the nodes' --max-ttl"


class Guarded(Ballots):
    """Sees that nobody uses it without the lock: two threads could draw one number, or take it back."""

    __slots__ = ("lock",)

    def __init__(self, acceptors: int, lock: Any) -> None:
        super().__init__(acceptors)
        self.lock = lock

    def __getattribute__(self, name: str) -> object:
        if name != "lock":
            assert self.lock._is_owned(), f"{name} without the lock"
        return super().__getattribute__(name)


def test_numbers_are_drawn_and_noted_under_the_lock_of_the_client(store: Store) -> None:
    assert isinstance(store, PaxosStore)
    engine = store._engine
    with store._engine.lock:
        engine.ballots = Guarded(engine.acceptors, engine.lock)
    subscription = store.subscribe("")
    mine, rivals = new_id(), new_id()
    (granted,) = store.apply([Acquire("job", mine, "h", ns(30), seen_token=5)], timeout=PATIENCE)
    assert isinstance(granted, Granted)
    waiting = Acquire("job", rivals, "rival", ns(30), queue=True, notify=subscription.address, seen_token=5)
    (held,) = store.apply([waiting], timeout=PATIENCE)
    assert isinstance(held, Held)
    store._known.clear()  # as in a process that takes the lease over
    (renewed,) = store.apply([Renew("job", mine, granted.token, ns(30))], timeout=PATIENCE)
    assert isinstance(renewed, Renewed)
    (released,) = store.apply([Release("job", mine)], timeout=PATIENCE)
    assert isinstance(released, Released)
    until(lambda: any(isinstance(news, Notice) for news in subscription.get(0.1) or ()), "the call")
    subscription.close()


def test_more_is_read_and_listed_than_fits_one_reply(store: Store) -> None:
    names = [f"large/{number:03}" for number in range(150)]
    blob = '{"text":"' + 60_000 * "x" + '"}'
    held = [Acquire(name, new_id(), "h", ns(60), metadata=blob) for name in names]
    for start in range(0, 150, 50):
        assert all(isinstance(done, Granted) for done in store.apply(held[start : start + 50], timeout=PATIENCE))
    found = store.read(names, timeout=PATIENCE)
    assert [record and record.resource for record in found] == names
    assert [record.resource for record in store.scan("large/", timeout=PATIENCE)] == names
    store.apply([Release(op.resource, op.lease_id) for op in held], timeout=PATIENCE)
