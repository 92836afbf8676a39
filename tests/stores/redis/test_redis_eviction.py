"""A server that drops keys when memory runs short: found out whenever that is set, refused, or accepted by the URL."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Loss, Lost, Release, Released, Renew, Renewed, Unknown
from lessor.errors import ConfigError
from lessor.stores.base import Capability, StoreURL
from lessor.stores.redis import RedisStore, connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from lessor.core.ops import Op, Outcome
    from tests.servers.redis import RedisServer

ASK = Acquire("job", "A", "h", 30 * SECOND)
KILOBYTE = 1024


@pytest.fixture
def policy(raw: redis.Redis) -> Iterator[Callable[[str], object]]:
    """Return what sets the server's policy."""
    yield lambda policy: raw.config_set("maxmemory-policy", policy)
    raw.config_set("maxmemory", 0)
    raw.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the settings be looked at with every request."""
    monkeypatch.setattr(connection, "LOOK_EVERY_NS", -1)


def _ask(store: RedisStore, *ops: Op) -> list[Outcome]:
    return store.apply(ops, timeout=5)


@pytest.mark.parametrize("name", ["allkeys-lru", "volatile-ttl", "volatile-lru"])
def test_a_server_that_may_drop_keys_grants_nothing(
    name: str, store: RedisStore, policy: Callable[[str], object]
) -> None:
    policy(name)
    [outcome] = _ask(store, ASK)
    assert isinstance(outcome, Unknown)
    assert type(outcome.error) is ConfigError
    assert f"maxmemory-policy {name}" in str(outcome.error)
    assert "?eviction=accept" in str(outcome.error)
    assert store.read(["job"], timeout=5) == [None]
    policy("noeviction")
    assert isinstance(_ask(store, ASK)[0], Granted)


@pytest.mark.usefixtures("at_once")
def test_a_policy_that_is_changed_later_is_found_out(
    store: RedisStore, policy: Callable[[str], object], caplog: pytest.LogCaptureFixture
) -> None:
    [granted] = _ask(store, ASK)
    assert isinstance(granted, Granted)
    policy("allkeys-lru")
    other = ASK._replace(resource="other", lease_id="B")
    with caplog.at_level(logging.WARNING, "lessor"):
        [renewed] = _ask(store, Renew("job", "A", granted.token, 30 * SECOND))
        [refused] = _ask(store, other)
    assert isinstance(renewed, Renewed), "what is held goes on"
    assert isinstance(refused, Unknown)
    assert isinstance(refused.error, ConfigError)
    assert caplog.text.count("may drop leases") == 1
    refused, released = _ask(store, other, Release("job", "A"))
    assert isinstance(refused, Unknown)
    assert isinstance(released, Released), "what is given back is taken"
    policy("noeviction")
    assert isinstance(_ask(store, other)[0], Granted)


def test_the_settings_are_looked_at_now_and_then_only(
    store: RedisStore, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> int:
        stats: Any = raw.info("commandstats")
        return int(stats["cmdstat_info"]["calls"])

    _ask(store, ASK)
    before = asked()
    for _ in range(20):
        _ask(store, Renew("job", "A", 1, 30 * SECOND))
    assert asked() == before + 1  # our own
    monkeypatch.setattr(connection, "LOOK_EVERY_NS", -1)
    _ask(store, Renew("job", "A", 1, 30 * SECOND))
    assert asked() == before + 3


def test_eviction_that_is_accepted_is_declared_and_warned_of(
    server: RedisServer,
    open_store: Callable[[str], RedisStore],
    policy: Callable[[str], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy("allkeys-lru")
    with caplog.at_level(logging.WARNING, "lessor"):
        store = open_store(f"{server.url}?eviction=accept")
        [granted] = _ask(store, ASK)
    assert isinstance(granted, Granted)
    assert caplog.text.count("two clients may then hold the same lease") == 1
    assert Capability.DURABLE not in store.guarantees.capabilities
    assert "memory runs short" in store.guarantees.not_promised
    assert "eviction=accept" in store.url


def test_a_lease_that_was_evicted_is_lost_and_tokens_go_on(
    server: RedisServer, open_store: Callable[[str], RedisStore], policy: Callable[[str], object], raw: redis.Redis
) -> None:
    policy("allkeys-random")
    store = open_store(f"{server.url}?eviction=accept")
    [granted] = _ask(store, ASK)
    assert isinstance(granted, Granted)
    memory: Any = raw.info("memory")
    raw.config_set("maxmemory", memory["used_memory"] + 2048 * KILOBYTE)
    for number in range(100_000):
        raw.set(f"cached:{number}", b"x" * 16 * KILOBYTE)
        if number % 50 == 0 and store.read(["job"], timeout=5) == [None]:
            break
    assert _ask(store, Renew("job", "A", granted.token, 30 * SECOND)) == [Lost(Loss.EXPIRED)]
    [again] = _ask(store, ASK._replace(lease_id="B"))
    assert isinstance(again, Granted)
    assert again.token > granted.token


def test_nothing_else_can_be_said_about_eviction() -> None:
    with pytest.raises(ConfigError, match="eviction is accept or refuse"):
        RedisStore(StoreURL.parse("redis://h?eviction=perhaps"), None)  # type: ignore[arg-type]
