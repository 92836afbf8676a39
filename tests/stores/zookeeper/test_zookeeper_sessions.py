"""Sessions: what the servers allow, who shares one, and what becomes of leases when one ends."""

from __future__ import annotations

import json
import socket
import struct
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from lessor import Client
from lessor.core.holder import State
from lessor.core.ops import Acquire, Granted, Held, Release, Unknown
from lessor.errors import ConfigError, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, Thread, new_id, ns, pass_time, take, taken, until
from tests.servers import free_port
from tests.servers.zookeeper import ZooKeeperServer, zookeeper_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.core.ops import Outcome
    from lessor.stores.zookeeper import ZooKeeperStore
    from tests.stores.zookeeper.tree import Tree

TICK_MS = 400


@pytest.fixture(scope="module")
def ordinary() -> Iterator[ZooKeeperServer]:
    """A server with the usual bounds, 2 to 20 ticks, which says nothing about its settings."""
    settings = f"tickTime={TICK_MS}\nminSessionTimeout=-1\nmaxSessionTimeout=-1\n4lw.commands.whitelist=srvr,mntr\n"
    with zookeeper_server(settings) as server:
        yield server


def end_session(zookeeper: ZooKeeperServer, store: ZooKeeperStore, ttl: float) -> None:
    """End the session of its leases behind the client's back, as the servers do after its timeout."""
    session = store._desk.session_for(ns(ttl), SYSTEM.now() + ns(PATIENCE))
    other = KazooClient(zookeeper.address, client_id=session._client.client_id)
    other.start()
    other.stop()
    other.close()


def test_the_longest_ttl_is_what_the_servers_keep_a_session_for_less_a_tick(ordinary: ZooKeeperServer) -> None:
    store = open_store(ordinary.url, SYSTEM)
    longest = 19 * TICK_MS / 1000
    assert store.guarantees.max_ttl_ns == ns(longest)
    taken(store, "job", longest)
    refused = take(store, "other", longest + 0.1)
    assert isinstance(refused, Unknown)
    assert isinstance(refused.error, ConfigError)
    store.close()
    with Client(ordinary.url) as client, pytest.raises(ConfigError):
        client.acquire("other", ttl=longest + 0.1)


def test_a_ttl_shorter_than_any_session_is_kept_by_the_client(ordinary: ZooKeeperServer) -> None:
    one, other = open_store(ordinary.url, SYSTEM), open_store(ordinary.url, SYSTEM)
    taken(other, "warm", 0.2)  # to connect takes longer, on a busy machine
    start = SYSTEM.now()
    assert taken(one, "short", 0.2).ttl_ns <= ns(0.2)
    assert isinstance(take(other, "short", 0.2), Held)
    until(lambda: isinstance(take(other, "short", 0.2), Granted), "its end")
    assert SYSTEM.now() - start >= ns(0.2)
    one.close()
    other.close()


def test_leases_of_one_ttl_share_a_session(store: ZooKeeperStore, tree: Tree) -> None:
    for at in range(30):
        taken(store, f"r/{at}", 20 + at % 3)
    assert len([path for path in tree.paths() if path.startswith("/sessions/")]) == 3


def test_a_closed_store_leaves_its_leases_for_their_time(opened: Callable[[], ZooKeeperStore]) -> None:
    one, other = opened(), opened()
    token = taken(one, "job", 1).token
    one.close()
    assert isinstance(take(other, "job", 1), Held)
    until(lambda: isinstance(take(other, "job", 1), Granted), "the end of the session")
    record = other.read(["job"], timeout=PATIENCE)[0]
    assert record is not None
    assert record.token > token


def test_the_end_of_a_session_is_told_and_the_client_goes_on(url: str, zookeeper: ZooKeeperServer) -> None:
    with Client(url) as client:
        lease = client.acquire("job", ttl=20)
        end_session(zookeeper, client._engine.store, 20)  # type: ignore[arg-type]
        assert lease.lost.wait(PATIENCE)
        assert lease.loss == "expired"
        again = client.acquire("job", ttl=20, wait=PATIENCE)
        assert again.token > lease.token
        again.renew()
        assert again.state is State.HELD


def test_a_waiter_whose_session_ended_waits_on(url: str, zookeeper: ZooKeeperServer) -> None:
    with Client(url) as one, Client(url) as other:
        lease = one.acquire("job", ttl=20)
        waiting = Thread(lambda: other.acquire("job", ttl=20, wait=PATIENCE))
        until(lambda: len(one.get("job").queue) == 1, "the waiter")  # type: ignore[union-attr]
        main = other._engine.store._desk.main_within(PATIENCE)  # type: ignore[attr-defined]
        before = main.id
        intruder = KazooClient(zookeeper.address, client_id=main._client.client_id)
        intruder.start()
        intruder.stop()
        intruder.close()
        until(lambda: main.id not in {0, before} and len(one.get("job").queue) == 1, "a new place")  # type: ignore[union-attr]
        lease.release()
        waiting.result()


def test_connections_that_break_at_any_time_leave_no_orphans(store: ZooKeeperStore, tree: Tree) -> None:
    """A create whose answer was lost is found again by its id."""
    enough = threading.Event()
    store.apply([], timeout=1)
    taken(store, "warm", 20)

    def disturb() -> None:
        while not enough.wait(0.05):
            for session in list(store._desk._sessions.values()):
                session.drop()

    disturbing = Thread(disturb)
    tokens = []
    for _ in range(60):
        lease_id = new_id()
        outcome = take(store, "job", 20, lease_id)
        while isinstance(outcome, Unknown):
            outcome = take(store, "job", 20, lease_id)
        assert isinstance(outcome, Granted), outcome
        tokens.append(outcome.token)
        while isinstance(store.apply([Release("job", lease_id)], timeout=PATIENCE)[0], Unknown):
            pass
    enough.set()
    disturbing.result()
    assert tokens == sorted(set(tokens)), "tokens out of order"
    until(lambda: not [path for path in tree.left() if "job" in path], "nothing left")


def test_a_request_that_nobody_settles_is_settled_by_the_store(store: ZooKeeperStore, tree: Tree) -> None:
    """Its answer was lost, and whoever asked never came back."""
    taken(store, "warm", 1)
    desk = store._desk
    session = desk.session_for(ns(1), SYSTEM.now() + ns(PATIENCE))
    original = session.call
    session.call = lambda request: (original(request), original.__self__._client.handler.async_result())[1]  # type: ignore[method-assign, attr-defined]
    assert isinstance(store.apply([Acquire("job", new_id(), "h", ns(1))], timeout=0.1)[0], Unknown)
    session.call = original  # type: ignore[method-assign]
    until(lambda: "/leases/job" in tree.paths(), "the grant that nobody heard of")
    until(lambda: "/leases/job" not in tree.paths(), "its end")


def test_nothing_runs_on_after_a_client_is_closed(url: str) -> None:
    before = set(threading.enumerate())
    with Client(url) as client, client.watch("x/"):
        client.acquire("job", ttl=5)
        client.acquire("other", ttl=6)
    until(lambda: set(threading.enumerate()) <= before, "the end of all threads", 5)


def test_no_server_is_an_error_within_the_timeout() -> None:
    start = SYSTEM.now()
    client = Client(f"zookeeper://127.0.0.1:{free_port()}", timeout=1)
    with pytest.raises(StoreUnavailable):
        client.acquire("job", ttl=5)
    client.close()
    assert SYSTEM.now() - start < ns(10)


def test_a_server_that_ends_the_session_before_it_has_begun_is_asked_later() -> None:
    """A busy one answers the request for the shortest session there is with its end: a bare header."""
    header = struct.pack("!iqi", 0, 0, -112)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(struct.pack("!i", len(header)) + header)

        thread = Thread(answer)
        store = open_store(f"zookeeper://127.0.0.1:{server.getsockname()[1]}", SYSTEM)
        thread.result()
        assert store.guarantees.max_ttl_ns == type(store).guarantees.max_ttl_ns
        store.close()


def test_what_rides_on_a_lease_is_in_its_session(store: ZooKeeperStore, tree: Tree) -> None:
    token = taken(store, "top", 10).token
    before = tree.paths("/sessions")
    for n in range(5):
        pass_time(0.01)
        taken(store, f"part/{n}", 0, parent=("top", token))
    assert tree.paths("/sessions") == before


def test_those_who_ask_at_once_do_not_exceed_the_bound_of_a_queue(opened: Callable[[], ZooKeeperStore]) -> None:
    stores = [opened() for _ in range(4)]
    taken(stores[0], "job", 10)
    asking = [Thread(partial(take, s, "job", 10, queue=True, queue_limit=2)) for s in stores for _ in range(3)]
    answers = [thread.result() for thread in asking]
    assert sorted(isinstance(answer, Held) and answer.refused for answer in answers) == [False] * 2 + [True] * 10
    assert len(stores[0].waiters("job", timeout=PATIENCE)) == 2


def test_whoever_is_overtaken_does_not_take_its_turn_without_a_look(opened: Callable[[], ZooKeeperStore]) -> None:
    """Who is first in the queue, and is called, asks at once; unless somebody with a higher priority came meanwhile."""
    here, there = opened(), opened()
    holder, low, high = new_id(), new_id(), new_id()
    taken(here, "job", 10, holder)
    subscription = there.subscribe()
    try:
        assert isinstance(take(there, "job", 10, low, queue=True, notify=subscription.address), Held)
        assert isinstance(take(here, "job", 10, high, queue=True, priority=1), Held)
        here.apply([Release("job", holder)], timeout=PATIENCE)
        until(lambda: bool(subscription.get(0.1)), "the call")
        assert isinstance(take(there, "job", 10, low, queue=True, notify=subscription.address), Held)
        taken(here, "job", 10, high, queue=True, priority=1)
    finally:
        subscription.close()


def test_what_rides_on_a_lease_is_held_towards_other_clients_too(opened: Callable[[], ZooKeeperStore]) -> None:
    here, there = opened(), opened()
    token = taken(here, "top", 10).token
    taken(here, "part", 0, parent=("top", token))
    assert isinstance(take(there, "part", 10), Held)
    assert isinstance(take(there, "part", 10, queue=True), Held)


def test_requests_larger_than_the_buffers_on_the_way_arrive_whole(store: ZooKeeperStore) -> None:
    """Sent by several threads at once, so that some find one half sent, and queue up behind it."""
    connection = store._desk.session_for(ns(30), SYSTEM.now() + ns(PATIENCE))._client._connection
    connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    texts = [json.dumps({"text": f"{n % 10}" * 50_000}) for n in range(80)]

    def take_some(numbers: range) -> list[Outcome]:
        ops = [Acquire(f"r/{n}", new_id(), "me", ns(30), metadata=texts[n]) for n in numbers]
        return store.apply(ops, timeout=60)

    threads = [Thread(lambda n=n: take_some(range(n, 80, 4))) for n in range(4)]  # type: ignore[misc]
    assert all(isinstance(outcome, Granted) for thread in threads for outcome in thread.result(60))
    for n, record in enumerate(store.read([f"r/{n}" for n in range(80)], timeout=60)):
        assert record is not None
        assert record.metadata == json.loads(texts[n])
