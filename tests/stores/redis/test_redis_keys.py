"""What the store leaves in Redis: which keys, for how long, and how much."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Notice, Release, Renew
from lessor.stores.redis.script import source
from lessor.stores.redis.store import APPLY, READ

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    import redis

    from lessor.stores.redis import RedisStore

HEAD = "<BddHc0ddddHc0Bc0Hc0I4c0"
FIELDS = [
    "kind",
    "token",
    "expiry",
    "id",
    "ttl",
    "granted",
    "renewed",
    "renewals",
    "holder",
    "ended",
    "notify",
    "metadata",
]
SHOW = f"return {{struct.unpack('{HEAD}', redis.call('GET', KEYS[1]))}}"
SHOW_TAIL = "return cjson.encode(cmsgpack.unpack(string.sub(redis.call('GET', KEYS[1]), ARGV[1])))"
DEFAULT = "{lessor:default}:"


def granted(store: RedisStore, op: Acquire) -> Granted:
    outcome = store.apply([op], timeout=5)[0]
    assert isinstance(outcome, Granted), outcome
    return outcome


def shown(raw: redis.Redis, resource: str) -> dict[str, Any]:
    """What the how-to page shows: a record's head and, where it has one, its tail."""
    key = f"{DEFAULT}r:{resource}"
    answer: Any = raw.eval(SHOW, 1, key)
    *head, end = answer
    record = dict(zip(FIELDS, head, strict=True))
    if record["kind"] == 2:
        record |= json.loads(str(raw.eval(SHOW_TAIL, 1, key, str(end))))
    return record


def test_the_layout(store: RedisStore, raw: redis.Redis) -> None:
    parent = granted(store, Acquire("session", "A", "host:1", 10 * SECOND))
    granted(store, Acquire("job", "B", "host:1", 0, parent=("session", parent.token), metadata='{"a":"b"}'))
    store.apply([Acquire("job", "C", "host:2", SECOND, queue=True, notify="there")], timeout=5)
    keys = {"token", "index", "r:session", "r:job", "c:session"}
    assert set(raw.keys()) == {DEFAULT + key for key in keys}
    record = shown(raw, "job")
    assert (record["holder"], record["id"], record["parent"], record["kind"]) == ("host:1", "B", "session", 2)
    assert record["metadata"] == '{"a":"b"}'
    assert record["waiting"]["queue"][0]["holder"] == "host:2"
    assert raw.smembers(f"{DEFAULT}c:session") == {"job"}
    assert raw.zrange(f"{DEFAULT}index", 0, -1) == ["job", "session"]
    store.apply([Release("session", "A")], timeout=5)
    assert not raw.exists(f"{DEFAULT}c:session")
    assert shown(raw, "job")["ended"] == "released"


def test_all_but_the_counter_and_the_index_go_by_themselves(store: RedisStore, raw: redis.Redis) -> None:
    parent = granted(store, Acquire("session", "A", "h", 10 * SECOND))
    granted(store, Acquire("job", "B", "h", 5 * SECOND, parent=("session", parent.token)))
    store.apply([Release("never-granted", "C", abandon=True)], timeout=5)
    lives = {key.removeprefix(DEFAULT): raw.pttl(key) for key in map(str, raw.scan_iter())}
    assert lives.pop("token") == -1
    assert lives.pop("index") == -1
    assert 69_000 < lives.pop("r:session") <= 70_000
    assert 64_000 < lives.pop("r:job") <= 65_000
    assert 119_000 < lives.pop("r:never-granted") <= 120_000
    assert 3_600_000 < lives.pop("c:session") < 3_700_000
    assert lives == {}
    store.apply([Release("session", "A")], timeout=5)
    assert raw.pttl(f"{DEFAULT}r:session") <= 60_000


def test_a_list_of_children_that_was_empty_in_between_goes_by_itself_too(store: RedisStore, raw: redis.Redis) -> None:
    parent = granted(store, Acquire("session", "A", "h", 10 * SECOND))
    first = Acquire("first", "B", "h", 0, parent=("session", parent.token))
    second = Acquire("second", "C", "h", 0, parent=("session", parent.token))
    granted(store, first)
    store.apply([Release("first", "B")], timeout=5)
    assert not raw.exists(f"{DEFAULT}c:session")
    granted(store, second)
    assert 3_600_000 < raw.pttl(f"{DEFAULT}c:session") < 3_700_000
    store.apply([Release("second", "C"), first._replace(lease_id="D")], timeout=5)
    assert raw.smembers(f"{DEFAULT}c:session") == {"first"}
    assert 3_600_000 < raw.pttl(f"{DEFAULT}c:session") < 3_700_000


def test_namespaces_and_databases_are_apart(
    server: Any, raw: redis.Redis, open_store: Callable[[str], RedisStore]
) -> None:
    places = ["/0", "/0?namespace=a", "/0?namespace=b", "/1"]
    stores = [open_store(f"redis://127.0.0.1:{server.port}{place}") for place in places]
    for store in stores:
        granted(store, Acquire("job", "A", "h", SECOND))
        assert [record.resource for record in store.scan("", timeout=5)] == ["job"]


def test_ten_thousand_that_come_and_go(store: RedisStore, raw: redis.Redis) -> None:
    """Redis forgets their records a minute later; what is left is a counter and, for a while, some names."""
    before = raw.info("memory")["used_memory"]
    last = 0
    for start in range(0, 10_000, 500):
        ops: list[Any] = []
        for number in range(start, start + 500):
            ops += [Acquire(f"come/{number}", "A", "h", SECOND), Release(f"come/{number}", "A")]
        outcomes = store.apply(ops, timeout=20)
        last = max(outcome.token for outcome in outcomes if isinstance(outcome, Granted))
    records = raw.keys(f"{DEFAULT}r:*")
    assert len(records) == 10_000
    each = (raw.info("memory")["used_memory"] - before) / 10_000
    assert each < 600
    assert all(0 < raw.pttl(key) <= 60_000 for key in records[::100])
    raw.delete(*records)  # as Redis does
    assert store.apply([Acquire("come/0", "B", "h", SECOND)], timeout=5)[0].token > last  # type: ignore[union-attr]
    for number in range(200):
        ops = [Acquire(f"new/{number}/{n}", "A", "h", 600 * SECOND) for n in range(50)]
        store.apply(ops, timeout=20)
    names = [str(name) for name in raw.zrange(f"{DEFAULT}index", 0, -1)]
    old = [name for name in names if name.startswith("come/")]
    assert len(old) < 3_000, "for each new name two are looked at, and what has gone is struck off"
    assert len(names) - len(old) == 10_000
    assert len(list(store.scan("new/1/", timeout=20))) == 50


def test_a_scan_in_many_pages(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted({f"p{n}" for n in range(20)} | {"p", "pé", "p\U0010ffff", "q", "P"})
    store.apply([Acquire(name, "A", "h", SECOND * 60) for name in names], timeout=5)
    for page in (1, 2, 7, 500):
        monkeypatch.setattr("lessor.stores.redis.store.PAGE", page)
        found = [record.resource for record in store.scan("p", timeout=5)]
        assert found == [name for name in names if name.startswith("p")]


def test_a_dead_waiter_is_passed_over_at_once(store: RedisStore) -> None:
    """Nobody hears the call to it, so in the same step the next one is called."""
    alive = store.subscribe()
    granted(store, Acquire("job", "A", "a", 30 * SECOND))
    for lease_id, address in (("B", "nobody"), ("C", "nobody-either"), ("D", alive.address)):
        waiting = Acquire("job", lease_id, lease_id, SECOND, queue=True, notify=address)
        assert isinstance(store.apply([waiting], timeout=5)[0], Held)
    store.apply([Release("job", "A")], timeout=5)
    called = alive.get(5)
    assert called is not None
    assert [item.lease_id for item in called if isinstance(item, Notice)] == ["D"]
    assert isinstance(store.apply([Acquire("job", "D", "d", SECOND)], timeout=5)[0], Granted)
    alive.close()


def test_who_was_granted_it_meanwhile_is_not_taken_for_a_dead_waiter(store: RedisStore) -> None:
    """Between two subscriptions nobody hears the call; but who asks in the same batch is there, and keeps its grant."""
    granted(store, Acquire("job", "A", "a", 30 * SECOND))
    waiting = Acquire("job", "B", "b", 30 * SECOND, queue=True, notify="nobody")
    assert isinstance(store.apply([waiting], timeout=5)[0], Held)
    outcome = store.apply([Release("job", "A"), waiting], timeout=5)[1]
    assert isinstance(outcome, Granted)
    record = store.read(["job"], timeout=5)[0]
    assert record is not None
    assert record.token == outcome.token


def test_dead_waiters_are_passed_over_when_it_is_handed_over(store: RedisStore) -> None:
    """The successor that was named is dead, and so is the first waiter: the next one is called."""
    alive = store.subscribe()
    granted(store, Acquire("job", "A", "a", 30 * SECOND))
    for lease_id, address in (("B", "nobody"), ("C", "nobody-either"), ("D", alive.address)):
        waiting = Acquire("job", lease_id, lease_id, SECOND, queue=True, notify=address)
        assert isinstance(store.apply([waiting], timeout=5)[0], Held)
    store.apply([Release("job", "A", "C", state="left", reserve_ns=30 * SECOND)], timeout=5)
    called = alive.get(5)
    assert called is not None
    assert {item.lease_id for item in called if isinstance(item, Notice)} == {"D"}
    assert [waiter.holder for waiter in store.waiters("job", timeout=5)] == ["D"]
    assert granted(store, Acquire("job", "D", "D", SECOND)).state == ""
    alive.close()


def test_events_are_published_only_while_somebody_watches(store: RedisStore, raw: redis.Redis) -> None:
    def published() -> int:
        return int(raw.info("commandstats").get("cmdstat_publish", {}).get("calls", 0))

    raw.config_resetstat()
    granted(store, Acquire("a", "A", "h", SECOND))
    store.apply([Release("a", "A")], timeout=5)
    assert published() == 0
    watching = store.subscribe("")
    granted(store, Acquire("a", "B", "h", SECOND))
    granted(store, Acquire("b", "B", "h", SECOND))
    assert published() == 2
    watching.close()


def test_a_renewal_after_days_keeps_the_children(store: RedisStore, raw: redis.Redis) -> None:
    """The record of a child without a time of its own is kept ahead, and struck off with its parent's list."""
    parent = granted(store, Acquire("session", "A", "h", SECOND))
    granted(store, Acquire("stays", "B", "h", 0, parent=("session", parent.token)))
    granted(store, Acquire("goes", "C", "h", 0, parent=("session", parent.token)))
    raw.delete(f"{DEFAULT}r:goes")
    store.apply([Renew("session", "A", parent.token, 86_400 * SECOND)], timeout=5)
    assert raw.pttl(f"{DEFAULT}r:stays") > 86_400_000
    assert raw.smembers(f"{DEFAULT}c:session") == {"stays"}


def test_the_scripts_never_let_lua_round_a_number() -> None:
    for script in (source(*APPLY), source(*READ)):
        code = "\n".join(line.partition("--")[0] for line in script.splitlines())
        assert "tostring" not in code
        assert "%d" not in code
        assert "%.14g" not in code
