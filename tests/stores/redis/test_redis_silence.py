"""A server that takes connections and says nothing: nobody waits for it longer than was said, an event loop not at all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lessor import AsyncClient, StoreUnavailable
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Event, Granted, Unknown
from lessor.runtime.clock import SYSTEM
from lessor.stores.hosts import Node
from lessor.stores.limit import Limit
from lessor.stores.redis.address import Login
from lessor.stores.redis.wire import Wire
from lessor.testing.clock import FakeClock
from lessor.testing.conformance.base import PATIENCE, taken, until
from tests.crossprocess.stalls import Stalls
from tests.servers.tunnel import SlowTunnel, TornTunnel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    import redis

    from lessor.stores.redis import RedisStore
    from tests.servers.redis import RedisServer

TIMEOUT = 0.5
LIMIT = 1.5
"""Seconds that a call may take here, with a margin for a busy machine that is less than what would be wrong."""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Return a socket that is connected to by the kernel alone."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_nothing_is_connected_to_when_the_time_is_over(silent: socket.socket) -> None:
    """Another step has taken all of it, such as a wait for a connection, or a Sentinel that was asked."""
    clock = FakeClock()
    limit = Limit(clock, TIMEOUT)
    limit.left()
    clock.advance(1)
    with pytest.raises(StoreUnavailable, match="can't be reached within"):
        Wire(Node("127.0.0.1", silent.getsockname()[1]), Login(tls=False, settings={}), limit)


@pytest.mark.parametrize(
    "use",
    [lambda client: client.acquire("job", ttl=30), lambda client: client.watch("job")],
    ids=["acquire", "watch"],
)
def test_an_event_loop_goes_on_while_a_silent_server_is_connected_to(
    silent: socket.socket, use: Callable[[AsyncClient], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lessor.stores.redis.subscription.CONNECT_TIMEOUT", PATIENCE / 4)
    went_on: list[bool] = []

    async def main() -> None:
        loop, turned = asyncio.get_running_loop(), threading.Event()

        def hang() -> None:
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(PATIENCE)
                connection.recv(1)
                loop.call_soon_threadsafe(turned.set)
                went_on.append(turned.wait(PATIENCE / 8))
            silent.close()  # nobody is kept waiting any longer

        server = threading.Thread(target=hang, daemon=True)
        server.start()
        async with AsyncClient(f"redis://127.0.0.1:{silent.getsockname()[1]}", timeout=TIMEOUT) as client:
            with contextlib.suppress(StoreUnavailable):
                await use(client)
        server.join(PATIENCE)

    asyncio.run(main())
    assert went_on == [True]


# --- one limit for a call, whatever steps it takes ----------------------------------------------------------------


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """See to it that it doesn't take much longer than the limit of one call."""
    with Stalls() as stalls:
        began = SYSTEM.host_ns()
        yield
        ended = SYSTEM.host_ns()
    assert (ended - began) / SECOND - stalls.between(began, ended) < 1.6 * LIMIT


@pytest.fixture
def slow(server: RedisServer) -> Iterator[SlowTunnel]:
    with SlowTunnel(server.port) as tunnel:
        yield tunnel


@pytest.fixture
def far_store(slow: SlowTunnel, raw: redis.Redis, open_store: Callable[..., RedisStore]) -> RedisStore:
    """Return a store at the other end of the slow way, whose server has no scripts."""
    raw.script_flush()
    return open_store(f"redis://127.0.0.1:{slow.port}/3")


def acquire(store: RedisStore, *names: str, size: int = 0) -> None:
    """Ask for these, in vain."""
    ops = [Acquire(name, "A", "h", 30 * SECOND, metadata="x" * size) for name in names]
    outcomes = store.apply(ops, timeout=LIMIT)
    assert [type(outcome) for outcome in outcomes] == [Unknown] * len(names)


def test_a_connection_that_is_slow_to_make(slow: SlowTunnel, far_store: RedisStore) -> None:
    """Every answer comes in time, but there are many until the first lease is granted."""
    slow.delay = 0.3 * LIMIT
    with in_time():
        acquire(far_store, "job")


def test_a_connection_made_in_the_last_moment_to_a_server_that_stops(
    server: RedisServer, slow: SlowTunnel, far_store: RedisStore
) -> None:
    slow.delay = 0.15 * LIMIT
    stop = threading.Timer(0.8 * LIMIT, server.stop)
    stop.start()
    try:
        with in_time():
            acquire(far_store, "job")
    finally:
        stop.join()
        server.go_on()


def test_a_script_that_has_to_be_loaded_first(slow: SlowTunnel, far_store: RedisStore) -> None:
    far_store.read(["job"], timeout=PATIENCE)
    slow.delay = 0.7 * LIMIT
    with in_time():
        acquire(far_store, "job")


def test_a_list_of_many_pages(slow: SlowTunnel, far_store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lessor.stores.redis.store.PAGE", 1)
    far_store.apply([Acquire(f"job/{n}", "A", "h", 30 * SECOND) for n in range(20)], timeout=PATIENCE)
    assert len([*far_store.scan("job/", timeout=PATIENCE)]) == 20
    slow.delay = 0.2 * LIMIT
    with in_time(), pytest.raises(StoreUnavailable, match=f"within {LIMIT:g} s"):
        far_store.scan("job/", timeout=LIMIT)


def test_an_answer_that_comes_in_drops(slow: SlowTunnel, far_store: RedisStore) -> None:
    names = [f"job/{n}" for n in range(100)]
    far_store.read(names, timeout=PATIENCE)
    slow.size, slow.delay = 16, 0.1 * LIMIT
    with in_time(), pytest.raises(StoreUnavailable, match=f"within {LIMIT:g} s"):
        far_store.read(names, timeout=LIMIT)


# --- a name with several addresses ---------------------------------------------------------------------------------


@pytest.fixture
def clogged(server: RedisServer) -> Iterator[list[str]]:
    """Return addresses where nobody takes a connection, and nobody refuses it, at the server's port."""
    addresses = [f"127.0.0.{n}" for n in range(2, 6)]
    with contextlib.ExitStack() as stack:
        for address in addresses:
            listening = stack.enter_context(socket.create_server((address, server.port), backlog=0))
            for _ in range(4):  # what the kernel takes by itself is full then
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listening.getsockname())
        yield addresses


@pytest.fixture
def name_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], str]:
    """Return what gives a name to several addresses."""
    look_up = socket.getaddrinfo

    def name(addresses: list[str]) -> str:
        def found(host: str, *how: Any, **more: Any) -> list[Any]:
            hosts = addresses if host == "several.example" else [host]
            return [line for one in hosts for line in look_up(one, *how, **more)]

        monkeypatch.setattr(socket, "getaddrinfo", found)
        return "several.example"

    return name


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_all_addresses_of_a_name_have_one_limit(
    server: RedisServer,
    clogged: list[str],
    name_of: Callable[[list[str]], str],
    open_store: Callable[..., RedisStore],
    scheme: str,
) -> None:
    """The last one says nothing to somebody who wants to begin with TLS."""
    host = name_of([*clogged, "127.0.0.1"] if scheme == "rediss" else clogged)
    store = open_store(f"{scheme}://{host}:{server.port}/3")
    with server.standing_still(), in_time():
        acquire(store, "job")


def test_a_name_whose_first_address_is_silent(
    server: RedisServer, clogged: list[str], name_of: Callable[[list[str]], str], open_store: Callable[..., RedisStore]
) -> None:
    store = open_store(f"redis://{name_of([clogged[0], '127.0.0.1'])}:{server.port}/3")
    (outcome,) = store.apply([Acquire("job", "A", "h", 30 * SECOND)], timeout=LIMIT)
    assert isinstance(outcome, Granted)


# --- who listens ---------------------------------------------------------------------------------------------------


def test_what_is_listened_for_may_come_slowly_after_a_slow_start(
    slow: SlowTunnel, far_store: RedisStore, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that was left for connecting says nothing about what comes later."""
    monkeypatch.setattr("lessor.stores.redis.subscription.CONNECT_TIMEOUT", 2.0)
    monkeypatch.setattr("lessor.stores.redis.subscription.ASK_EVERY", PATIENCE)
    slow.delay = 0.3
    subscription = far_store.subscribe("job")
    while not subscription.address:  # a busy machine took the time that there is for connecting
        subscription.close()
        subscription = far_store.subscribe("job")
    slow.delay, slow.size = 1.5, 100
    store.apply([Acquire("job/with a long name", "A", "h" * 50, 30 * SECOND)], timeout=PATIENCE)
    assert [type(event) for event in subscription.get(PATIENCE) or ()] == [Event]
    subscription.close()


def test_a_connection_that_leads_nowhere_in_the_middle_of_a_message_is_given_up(
    server: RedisServer, store: RedisStore, open_store: Callable[..., RedisStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half that came says nothing: the server is asked, and doesn't answer."""
    monkeypatch.setattr("lessor.stores.redis.subscription.ASK_EVERY", 0.2)
    with TornTunnel(server.port) as tunnel:
        subscription = open_store(f"redis://127.0.0.1:{tunnel.port}/3").subscribe("job")
        assert subscription.address
        tunnel.tear()
        taken(store, "job", 30)

        def is_given_up() -> bool:
            assert subscription.get(0.1) == []
            return not subscription.address

        until(is_given_up, "the end of it")
        tunnel.mend()
        until(lambda: subscription.get(1) is None, "a new connection")
        subscription.close()


@pytest.mark.heavy
def test_a_request_that_is_larger_than_what_the_kernel_takes(server: RedisServer, store: RedisStore) -> None:
    store.read(["job"], timeout=PATIENCE)
    with server.standing_still(), in_time():
        acquire(store, *(f"job/{n}" for n in range(500)), size=60_000)
