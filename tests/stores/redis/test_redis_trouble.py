"""What goes wrong with a server is survived, or reported as what it is; and no password is ever shown."""

from __future__ import annotations

import logging
import os
import socket
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from lessor import Client
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Release, Released, Renew, Renewed, Unknown
from lessor.errors import ConfigError, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores import registry
from lessor.stores.base import StoreURL
from lessor.stores.hosts import Node
from lessor.stores.pool import CONNECTIONS
from lessor.stores.redis import RedisStore
from lessor.stores.redis.trouble import explain
from lessor.stores.redis.wire import pack
from lessor.testing.conformance.base import Thread, until
from tests.servers import free_port
from tests.servers.redis import redis_server
from tests.servers.tunnel import Tunnel
from tests.stores.crowding import turns_of_each

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import redis

    from lessor.core.ops import Outcome
    from tests.servers.redis import RedisServer

ASK = Acquire("job", "A", "h", 30 * SECOND)
SECRET = "s3cret-w0rd"


def ask(store: RedisStore, op: Any = ASK, timeout: float = 5) -> Outcome:
    return store.apply([op], timeout=timeout)[0]


def error_of(outcome: Outcome) -> Exception:
    assert isinstance(outcome, Unknown), outcome
    return outcome.error


# --- the script cache and restarts --------------------------------------------------------------------------------


def test_scripts_that_the_server_forgot(store: RedisStore, raw: redis.Redis) -> None:
    grant = ask(store)
    assert isinstance(grant, Granted)
    raw.script_flush()
    assert ask(store, Renew("job", "A", grant.token, 30 * SECOND)) == Renewed(30 * SECOND)
    raw.script_flush()
    assert store.read(["job"], timeout=5)[0] is not None


def test_a_server_killed_and_started_again(open_store: Callable[[str], RedisStore]) -> None:
    with redis_server() as server:
        store = open_store(server.url)
        subscription = store.subscribe("")
        first = ask(store)
        assert isinstance(first, Granted)
        assert subscription.get(5)  # the grant
        server.kill()
        assert isinstance(error_of(ask(store)), StoreUnavailable)
        assert isinstance(error_of(ask(store)), StoreUnavailable)
        until(lambda: subscription.get(0.01) == [] and subscription.address == "", "the end of the subscription")
        server.start()
        second = ask(store, ASK._replace(lease_id="B"))
        assert isinstance(second, Granted)  # it kept nothing, and its clock went on
        assert second.token > first.token
        assert subscription.get(5) is None  # something may have been missed
        assert subscription.address
        ask(store, Release("job", "B"))
        came = subscription.get(5)
        assert came
        assert came[-1].resource == "job"
        subscription.close()


def test_a_restart_behind_idle_connections_goes_unnoticed(open_store: Callable[[str], RedisStore]) -> None:
    """The closed connection is found before it is used, so nobody has to wonder what became of a request."""
    with redis_server() as server:
        store = open_store(server.url)
        ask(store)
        wire = store._connections._idle[0]
        server.kill()
        server.start()
        wire.used_ns = 0  # as after a while
        assert isinstance(ask(store), Granted)


def test_everything_flushed_and_the_counter_lost(store: RedisStore, raw: redis.Redis) -> None:
    tokens = []
    for turn in range(5):
        grant = ask(store, ASK._replace(lease_id=str(turn)))
        assert isinstance(grant, Granted)
        tokens.append(grant.token)
        raw.flushall()
    assert tokens == sorted(set(tokens)), "tokens out of order"


# --- silence ------------------------------------------------------------------------------------------------------


def test_nobody_listens_there(open_store: Callable[[str], RedisStore]) -> None:
    port = free_port()
    store = open_store(f"redis://:{SECRET}@127.0.0.1:{port}/0")
    error = error_of(ask(store))
    assert isinstance(error, StoreUnavailable)
    assert f"127.0.0.1:{port}" in str(error)
    assert SECRET not in str(error)
    with pytest.raises(StoreUnavailable):
        store.read(["job"], timeout=1)
    with pytest.raises(StoreUnavailable):
        store.scan("", timeout=1)


def test_a_host_that_does_not_exist(open_store: Callable[[str], RedisStore]) -> None:
    error = error_of(ask(open_store("redis://no-such-host.invalid/0")))
    assert isinstance(error, StoreUnavailable)
    assert "no-such-host.invalid" in str(error)


def test_a_silent_server_times_out_and_its_late_reply_answers_nobody(server: RedisServer, store: RedisStore) -> None:
    ask(store)
    start = SYSTEM.now()
    with server.standing_still():
        error = error_of(ask(store, Release("job", "A"), timeout=0.2))
        assert 0.15 < (SYSTEM.now() - start) / SECOND < 60
        assert isinstance(error, StoreUnavailable)
        assert "didn't answer within 0.2 s" in str(error)
    # The late reply to the release must not be taken for the answer to this one, which is of another kind.
    outcomes = [ask(store, Acquire(f"other/{n}", "B", "h", 30 * SECOND)) for n in range(5)]
    assert all(isinstance(outcome, Granted) for outcome in outcomes)
    assert store.read(["job"], timeout=5) == [None]  # it was carried out, and nobody heard of it


def test_a_connection_that_had_an_error_is_not_used_again(server: RedisServer, store: RedisStore) -> None:
    ask(store)
    spoilt = store._connections._idle[0]
    with server.standing_still():
        ask(store, timeout=0.05)
    assert isinstance(ask(store), Granted)
    assert spoilt not in store._connections._idle


def test_a_reply_that_nobody_asked_for_spoils_the_connection(store: RedisStore) -> None:
    ask(store)
    wire = store._connections._idle[0]
    wire.socket.sendall(pack("PING"))
    until(lambda: wire.pending(0), "the stray reply")
    wire.used_ns = 0
    assert isinstance(ask(store), Granted)
    assert wire not in store._connections._idle


def test_a_blackholed_connect(open_store: Callable[[str], RedisStore]) -> None:
    """It listens, takes the connection, and never says a word."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen()
        store = open_store(f"redis://127.0.0.1:{hole.getsockname()[1]}")
        error = error_of(ask(store, timeout=0.2))
    assert isinstance(error, StoreUnavailable)


def test_all_connections_in_use(server: RedisServer, store: RedisStore) -> None:
    ask(store)
    with server.standing_still():
        threads = [Thread(lambda: ask(store, timeout=2)) for _ in range(CONNECTIONS)]
        until(lambda: not store._connections._idle and len(store._connections._slots) == CONNECTIONS, "a crowd")
        error = error_of(ask(store, timeout=0.05))
        assert "in use" in str(error)
        urgent = Thread(lambda: ask(store, Renew("job", "A", 1, SECOND), timeout=2))
        until(lambda: len(store._connections._slots) == CONNECTIONS + 1, "a connection for the renewal")
    for thread in threads:
        assert isinstance(thread.result(), Granted)
    urgent.result()


def test_more_threads_than_connections(store: RedisStore) -> None:
    def work(name: str) -> None:
        for turn in range(20):
            assert isinstance(ask(store, Acquire(name, f"{turn}", "h", SECOND)), Granted)
            assert isinstance(ask(store, Release(name, f"{turn}")), Released)

    for thread in [Thread(lambda n=n: work(f"r{n}")) for n in range(2 * CONNECTIONS)]:  # type: ignore[misc]
        thread.result()
    assert len(store._connections._slots) <= CONNECTIONS


def test_a_closed_store_says_so(store: RedisStore) -> None:
    ask(store)
    store.close()
    assert "closed" in str(error_of(ask(store)))
    assert len(store._connections._slots) == 0


def test_closing_wakes_the_listener(store: RedisStore) -> None:
    subscription = store.subscribe()
    listening = Thread(lambda: subscription.get(60))
    subscription.close()
    assert listening.result(5) == []


def test_a_subscription_that_goes_silent(
    server: RedisServer, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes, not even an answer to the question whether somebody is there."""
    monkeypatch.setattr("lessor.stores.redis.subscription.ASK_EVERY", 0.1)
    subscription = store.subscribe()
    with server.standing_still():
        subscription.get(0.5)
        assert subscription.address == ""
    assert subscription.get(10) is None
    assert subscription.address
    assert subscription.get(0.5) == []  # asked, and answered
    assert subscription.address
    subscription.close()


def test_a_client_that_came_before_the_server(open_store: Callable[[str], RedisStore]) -> None:
    with redis_server() as server:
        server.kill()
        store = open_store(server.url)
        subscription = store.subscribe()
        assert subscription.address == ""
        server.start()
        assert subscription.get(10) is None
        assert subscription.address
        subscription.close()


def test_a_forked_child_does_not_use_the_sockets_of_its_parent(store: RedisStore) -> None:
    ask(store)
    mine = store._connections._idle[0].socket.getsockname()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads that forks: just that
        pid = os.fork()
    if pid == 0:
        try:
            outcome = ask(store)
            same = store._connections._idle[0].socket.getsockname() == mine
            os.write(writer, f"{type(outcome).__name__} {same}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        assert answer.read() == b"Granted False"
    os.waitpid(pid, 0)
    assert isinstance(ask(store), Granted)
    assert store._connections._idle[0].socket.getsockname() == mine


# --- refusals -----------------------------------------------------------------------------------------------------


def test_passwords(caplog: pytest.LogCaptureFixture, open_store: Callable[[str], RedisStore]) -> None:
    with redis_server("--requirepass", SECRET) as server, caplog.at_level(logging.DEBUG):
        for given in ("", ":wrong-w0rd@", "nobody:wrong-w0rd@"):
            store = open_store(f"redis://{given}127.0.0.1:{server.port}/0")
            error = error_of(ask(store))
            assert isinstance(error, ConfigError)
            assert "password" in str(error)
            assert "wrong-w0rd" not in str(error) + repr(error) + repr(store) + store.url + repr(vars(error))
            assert error.__cause__ is None
            with pytest.raises(ConfigError):
                store.subscribe()
        good = open_store(f"redis://:{SECRET}@127.0.0.1:{server.port}/0")
        assert isinstance(ask(good), Granted)
        assert SECRET not in good.url + repr(good) + repr(good._address) + repr(good._connections._idle)
        with server.standing_still():
            assert SECRET not in str(error_of(ask(good, timeout=0.05)))
        with Client(f"redis://:{SECRET}@127.0.0.1:{server.port}/0") as leases:
            leases.acquire("client", ttl=5).release()
            assert SECRET not in leases.url
    assert SECRET not in caplog.text
    assert "wrong-w0rd" not in caplog.text


def test_a_replica_is_refused(server: RedisServer, open_store: Callable[[str], RedisStore]) -> None:
    with redis_server("--replicaof", "127.0.0.1", str(server.port)) as replica:
        error = error_of(ask(open_store(replica.url)))
    assert isinstance(error, ConfigError)
    assert f"replica (of 127.0.0.1:{server.port})" in str(error)


def test_a_master_that_becomes_a_replica(server: RedisServer, open_store: Callable[[str], RedisStore]) -> None:
    with redis_server() as old:
        store = open_store(old.url)
        ask(store)
        with old.client() as raw:
            raw.replicaof("127.0.0.1", str(server.port))
            error = error_of(ask(store, ASK._replace(resource="other")))
            assert isinstance(error, (StoreUnavailable, ConfigError))
            assert "replica" in str(error)
            raw.replicaof("no", "one")
        assert isinstance(ask(store, ASK._replace(resource="other")), Granted)


def test_out_of_memory(raw: redis.Redis, store: RedisStore) -> None:
    grant = ask(store)
    assert isinstance(grant, Granted)
    raw.config_set("maxmemory", 1)
    try:
        for op in (ASK._replace(resource="b", lease_id="B"), Renew("job", "A", grant.token, SECOND)):
            error = error_of(ask(store, op))
            assert isinstance(error, StoreUnavailable)
            assert "out of memory" in str(error)
        assert store.read(["b"], timeout=5) == [None]
    finally:
        raw.config_set("maxmemory", 0)
    assert isinstance(ask(store, Renew("job", "A", grant.token, SECOND)), Renewed)


def test_a_server_that_is_too_old(open_store: Callable[[str], RedisStore]) -> None:
    """Not a real one: it says of itself that it is."""
    facts = "redis_version:6.0.16\r\nrole:master\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            wire, _ = listener.accept()
            with wire:
                while request := wire.recv(4096):
                    asked = b"$4\r\nINFO\r\n" in request
                    wire.sendall(f"${len(facts)}\r\n{facts}\r\n".encode() if asked else b"*1\r\n$6\r\nmaster\r\n")

        serving = Thread(answer)
        error = error_of(ask(open_store(f"redis://127.0.0.1:{listener.getsockname()[1]}")))
        assert isinstance(error, ConfigError)
        assert "6.2 is the oldest" in str(error)
        serving.result()


def test_too_many_clients(open_store: Callable[[str], RedisStore]) -> None:
    with redis_server("--maxclients", "1") as server, server.client() as raw:
        raw.ping()
        store = open_store(server.url)
        error = error_of(ask(store))
        assert isinstance(error, StoreUnavailable)
        assert "maxclients" in str(error)
        raw.config_set("maxclients", 10)
        assert isinstance(ask(store), Granted)


def test_a_user_with_just_enough_rights(
    server: RedisServer, raw: redis.Redis, open_store: Callable[[str], RedisStore], caplog: pytest.LogCaptureFixture
) -> None:
    rights = (
        "+evalsha +script|load +get +mget +set +del +exists +pexpire +sadd +srem +smembers +zadd +zrem +zrangebylex"
    )
    rights += " +zrandmember +publish +subscribe +pubsub|numsub +time +role"
    base = [
        "ACL",
        "SETUSER",
        "leaser",
        "reset",
        "on",
        f">{SECRET}",
        "resetchannels",
        "~{lessor:team}*",
        "&{lessor:team}*",
    ]
    raw.execute_command(*base, *rights.split())  # type: ignore[no-untyped-call]
    url = f"redis://leaser:{SECRET}@127.0.0.1:{server.port}/0?namespace=team"
    store = open_store(url)
    assert isinstance(ask(store), Granted)
    assert "maxmemory-policy" in caplog.text
    subscription = store.subscribe("")
    ask(store, Acquire("child", "B", "h", 0, parent=("job", store.read(["job"], timeout=5)[0].token)))  # type: ignore[union-attr]
    ask(store, Acquire("job", "C", "h", SECOND, queue=True, notify=subscription.address))
    assert ask(store, Release("job", "A")) == Released()
    assert len(list(store.scan("", timeout=5))) == 0
    assert subscription.get(5)
    subscription.close()
    elsewhere = error_of(ask(open_store(url.replace("=team", "=other"))))
    assert isinstance(elsewhere, ConfigError)
    assert "doesn't permit it to this user: let ACL SETUSER" in str(elsewhere)
    raw.acl_deluser("leaser")


def test_a_server_that_loads_its_data(tmp_path: Path, open_store: Callable[[str], RedisStore]) -> None:
    """For each key it takes a tenth of a second, as one with very much of it would in all."""
    with redis_server("--dir", str(tmp_path), "--rdbcompression", "no") as server:
        store = open_store(server.url)
        grant = ask(store)
        assert isinstance(grant, Granted)
        for number in range(20):
            server.run("SET", f"ballast/{number}", "x" * 5000)
        server.run("SAVE")
        server.kill()
        server.settings += ("--key-load-delay", "100000", "--loading-process-events-interval-bytes", "1024")
        server.launch()
        renewal = Renew("job", "A", grant.token, 30 * SECOND)
        until(lambda: "is loading its data" in str(getattr(ask(store, renewal), "error", "")), "the loading")
        until(lambda: isinstance(ask(store, renewal), Renewed), "the end of the loading")


def test_a_replica_without_its_master(open_store: Callable[[str], RedisStore]) -> None:
    with redis_server("--replica-serve-stale-data", "no") as server:
        store = open_store(server.url)
        ask(store)
        server.run("REPLICAOF", "127.0.0.1", free_port())
        error = error_of(ask(store))
        assert isinstance(error, StoreUnavailable)
        assert "lost its master" in str(error)
        server.run("REPLICAOF", "NO", "ONE")
        assert isinstance(ask(store), Granted)


def test_too_few_replicas_for_the_server_itself(open_store: Callable[[str], RedisStore]) -> None:
    with redis_server("--min-replicas-to-write", "1") as server:
        store = open_store(server.url)
        error = error_of(ask(store))
        assert isinstance(error, StoreUnavailable)
        assert "min-replicas-to-write" in str(error)
        server.run("CONFIG", "SET", "min-replicas-to-write", "0")
        assert isinstance(ask(store), Granted)


def test_a_disk_that_takes_nothing(tmp_path: Path, open_store: Callable[[str], RedisStore]) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    with redis_server("--dir", str(place), "--save", "3600 1000000", "--logfile", "") as server:
        store = open_store(server.url)
        grant = ask(store)
        assert isinstance(grant, Granted)
        renewal = Renew("job", "A", grant.token, 30 * SECOND)
        place.rmdir()
        server.run("BGSAVE")
        until(lambda: "can't save to disk" in str(getattr(ask(store, renewal), "error", "")), "the failure")
        server.run("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        assert isinstance(ask(store, renewal), Renewed)


@pytest.mark.usefixtures("raw")
def test_a_connection_that_leads_nowhere(server: RedisServer, open_store: Callable[[str], RedisStore]) -> None:
    """Both ends take it for open, and nothing gets through any more: answers are missed in time, and it is left."""
    with Tunnel(server.port) as tunnel:
        store = open_store(f"redis://127.0.0.1:{tunnel.port}")
        listening = store.subscribe("")
        assert isinstance(ask(store), Granted)
        assert listening.get(5)
        tunnel.swallow()
        start = SYSTEM.now()
        for _ in range(2):  # on the old connection, and on a new one
            assert isinstance(error_of(ask(store, timeout=0.3)), StoreUnavailable)
        assert (SYSTEM.now() - start) / SECOND < 60
        tunnel.mend()
        assert isinstance(ask(store), Granted)
        until(lambda: listening.get(1) is None, "a new connection to listen on")
        listening.close()


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("LOADING Redis is loading the dataset in memory", StoreUnavailable, "loading"),
        ("MASTERDOWN Link with MASTER is down", StoreUnavailable, "lost its master"),
        ("CLUSTERDOWN The cluster is down", StoreUnavailable, "Cluster that is down"),
        ("BUSY Redis is busy running a script.", StoreUnavailable, "busy"),
        ("MISCONF Redis is configured to save RDB snapshots", StoreUnavailable, "save to disk"),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable, "replicas"),
        ("ERR max number of clients reached", StoreUnavailable, "maxclients"),
        ("ERR Error running script: @user_script: -OOM command not allowed", StoreUnavailable, "memory"),
        ("MOVED 3999 127.0.0.1:6381", ConfigError, "Cluster"),
        ("NOPERM this user has no permissions to run the 'evalsha' command", ConfigError, "evalsha"),
        ("ERR something new", StoreUnavailable, "something new"),
    ],
)
def test_what_the_server_says(text: str, kind: type[Exception], says: str) -> None:
    error = explain(text, Node("example.org", 7000))
    assert type(error) is kind
    assert says in str(error)
    assert "example.org:7000" in str(error)


def test_a_busy_script_of_somebody(server: RedisServer, raw: redis.Redis, store: RedisStore) -> None:
    ask(store)
    raw.config_set("lua-time-limit", 10)
    spinning = threading.Thread(target=spin, args=(server,))
    spinning.start()
    try:
        until(lambda: "busy" in str(getattr(ask(store), "error", "")), "a busy server")
    finally:
        with server.client() as other:
            other.script_kill()
        spinning.join()
        raw.config_set("lua-time-limit", 5000)
    assert isinstance(ask(store), Granted)


def spin(server: RedisServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as wire:
        wire.sendall(pack("EVAL", "while true do end", "0"))
        wire.recv(100)


# --- the URL ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://", "redis://localhost:6379/0?namespace=default"),
        ("redis://h", "redis://h:6379/0?namespace=default"),
        ("redis://u:p%40@h:1/5?namespace=n", "redis://h:1/5?namespace=n"),
        ("redis://[::1]:7/2", "redis://[::1]:7/2?namespace=default"),
        (
            "rediss://:p@h/0?ssl_ca_certs=/etc/a b.pem&ssl_password=p",
            "rediss://h:6379/0?namespace=default&ssl_ca_certs=/etc/a%20b.pem",
        ),
        (
            "redis://h?replicas=2&replica_timeout=0.5",
            "redis://h:6379/0?namespace=default&replicas=2&replica_timeout=0.5",
        ),
        ("redis+sentinel://a/mymaster", "redis+sentinel://a:26379/mymaster/0?namespace=default"),
        (
            "redis+sentinel://u:p@a:1,[::1]:2,c/my%20master/3?sentinel_username=s&sentinel_password=p",
            "redis+sentinel://a:1,[::1]:2,c:26379/my%20master/3?namespace=default",
        ),
        ("redis+cluster://:p@a:1,b", "redis+cluster://a:1,b:6379/?namespace=default"),
        (
            "rediss+cluster://a/0?ssl_ca_certs=/ca.pem&namespace=n",
            "rediss+cluster://a:6379/?namespace=n&ssl_ca_certs=/ca.pem",
        ),
    ],
)
def test_urls(url: str, shown: str) -> None:
    store = RedisStore(StoreURL.parse(url), SYSTEM)
    assert store.url == shown
    assert RedisStore(StoreURL.parse(shown), SYSTEM).url == shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/zero",
        "redis://h:port/0",
        "redis://h:99999/0",
        "redis://h/0?ssl_ca_certs=x",
        "redis://h/0?socket_timeout=3",
        "redis://h/0?protocol=3",
        "redis://a,b,c/0",
        "redis://h?sentinel_password=x",
        "redis://h?replicas=some",
        "redis://h?replicas=-1",
        "redis://h?replicas=1&replica_timeout=soon",
        "redis://h?replicas=1&replica_timeout=0",
        "redis://h?replica_timeout=1",
        "redis+sentinel://a,b,c",
        "redis+sentinel://a,b,c/",
        "redis+sentinel://a,,c/mymaster",
        "redis+sentinel://a/mymaster/zero",
        "redis+sentinel://a/mymaster?ssl_ca_certs=x",
        "redis+cluster://a,b/1",
        "redis+cluster://a,b/mymaster",
        "redis+cluster://a:port,b",
        "redis://h/0?namespace=a b",
        "rediss://h/0?ssl_check_hostname=maybe",
        "rediss://h/0?ssl_cert_reqs=perhaps",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        RedisStore(StoreURL.parse(url), SYSTEM)


def test_several_servers_need_to_be_said_to_be_what_they_are() -> None:
    with pytest.raises(ConfigError, match=r"redis\+sentinel://HOST,HOST,HOST/NAME and redis\+cluster://HOST"):
        RedisStore(StoreURL.parse("redis://a,b,c/0"), SYSTEM)
    with pytest.raises(ConfigError, match=r"names the master as Sentinel does: redis\+sentinel://a,b/mymaster/0"):
        RedisStore(StoreURL.parse(f"redis+sentinel://:{SECRET}@a,b"), SYSTEM)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lessor.stores.redis.connection", None)
    with pytest.raises(ConfigError, match=r"pip install 'lessor\[redis\]'"):
        registry.open_store("redis://h", SYSTEM)
    assert [g.store for g in registry.guarantees()].count("redis") == 1


def test_whoever_waits_for_a_connection_is_not_overtaken(server: RedisServer) -> None:
    turns = turns_of_each(server.url)
    assert turns[0] >= turns[-1] / 20, turns


def test_a_password_from_a_file_and_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("open sesame\n")
    monkeypatch.setenv("VALKEY_PASSWORD", "open sesame")
    with redis_server("--requirepass", "open sesame") as server:
        for option in (f"password_file={tmp_path}/password", "password_env=VALKEY_PASSWORD"):
            url = server.url.replace("redis://", "valkey://")
            with Client(f"{url}?{option}") as client:
                assert client.try_acquire("job")
                with Client(client.url) as other:  # what is shown opens the same store
                    assert other.get("job")
