from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import ResponseError

from lessor import AsyncClient, Client, ConfigError, Fenced, LeaseLost, LessorError
from lessor.fencing import create_table, fence
from lessor.testing.conformance.base import until
from tests.fencing.bearers import LostLease, bad_bearers
from tests.servers.redis import redis_server
from tests.servers.redis_cluster import redis_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.fencing import FencedRedis
    from tests.servers.redis import RedisServer

KEPT = "lessor_fence:job"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def judge(server: RedisServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture(params=[False, True], ids=["bytes", "text"])
def client(request: pytest.FixtureRequest, server: RedisServer, judge: redis.Redis) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port, decode_responses=request.param) as client:
        yield client


def test_older_is_refused_equal_passes_newer_is_remembered(client: redis.Redis, judge: redis.Redis) -> None:
    five = fence(client, ("job", 5))
    assert five.set("a", "one")
    assert five.set("a", b"two")
    calls: list[Callable[[FencedRedis], Any]] = [
        lambda late: late.set("a", "stale"),
        lambda late: late.hset("b", "field", "stale"),
        lambda late: late.delete("a"),
        lambda late: late.eval("return redis.call('SET', KEYS[1], 'stale')", ["a"]),
    ]
    for refused_call in calls:
        with pytest.raises(Fenced) as refused:
            refused_call(fence(client, ("job", 4)))
        assert (refused.value.resource, refused.value.token, refused.value.newest) == ("job", 4, 5)
    assert (judge.get("a"), judge.get("b"), judge.get(KEPT)) == ("two", None, "5")
    assert fence(client, ("job", 6)).set("a", 6)
    assert (judge.get("a"), judge.get(KEPT)) == ("6", "6")
    with pytest.raises(Fenced):
        five.set("a", "stale")


def test_the_resource_is_fenced_and_not_only_the_key(client: redis.Redis, judge: redis.Redis) -> None:
    fence(client, ("job", 5)).set("a", "five")
    with pytest.raises(Fenced):
        fence(client, ("job", 4)).set("another key", "stale")
    assert fence(client, ("another job", 4)).set("a", "tokens belong to a resource")


def test_numbers_are_compared_as_numbers_and_kept_exactly(client: redis.Redis, judge: redis.Redis) -> None:
    fence(client, ("job", 9)).set("a", 9)
    fence(client, ("job", 10)).set("a", 10)
    largest = 2**53 - 1
    fence(client, ("job", largest)).set("a", "largest")
    assert judge.get(KEPT) == str(largest)
    with pytest.raises(Fenced) as refused:
        fence(client, ("job", largest - 1)).set("a", "stale")
    assert refused.value.newest == largest
    assert fence(client, ("from zero", 0)).set("a", 0)


def test_set_takes_what_redis_py_takes(client: redis.Redis, judge: redis.Redis) -> None:
    guarded = fence(client, ("job", 5))
    assert guarded.set("a", 1.5, ex=100)
    assert (judge.get("a"), judge.ttl("a")) == ("1.5", 100)
    assert guarded.set("a", "x", keepttl=True)
    assert judge.ttl("a") == 100
    assert guarded.set("a", "x", px=timedelta(seconds=50))
    assert 40_000 < int(judge.pttl("a")) <= 50_000
    assert guarded.set("a", "x", ex=timedelta(minutes=1))
    assert judge.ttl("a") == 60
    assert not guarded.set("a", "y", nx=True)
    assert not guarded.set("b", "y", xx=True)
    assert guarded.set("b", "y", nx=True)
    assert (judge.get("a"), judge.get("b")) == ("x", "y")
    with pytest.raises(ResponseError, match="syntax"):
        guarded.set("a", "y", nx=True, xx=True)
    nothing: Any = None
    with pytest.raises(redis.DataError):
        guarded.set("a", nothing)


def test_hset_and_delete(client: redis.Redis, judge: redis.Redis) -> None:
    guarded = fence(client, ("job", 5))
    assert guarded.hset("h", "a", 1) == 1
    assert guarded.hset("h", mapping={"a": 2, b"b": "3"}) == 1
    assert guarded.hset("h", "c", 4, {"d": 5}) == 2
    assert judge.hgetall("h") == {"a": "2", "b": "3", "c": "4", "d": "5"}
    judge.set("k", "v")
    assert guarded.delete("h", b"k", "not there") == 2
    assert judge.keys("*") == [KEPT]  # the token stays
    nothing: list[dict[str, Any]] = [{}, {"field": "a"}, {"mapping": {}}]
    for fields in nothing:
        with pytest.raises(ConfigError):
            guarded.hset("h", **fields)
    with pytest.raises(ConfigError, match="no key"):
        guarded.delete()


def test_thousands_of_fields_and_keys(client: redis.Redis, judge: redis.Redis) -> None:
    guarded = fence(client, ("job", 5))
    many = {f"field {number}": number for number in range(20_000)}
    assert guarded.hset("h", mapping=many) == len(many)
    judge.mset(many)
    assert guarded.delete("h", *many) == len(many) + 1


def test_a_script_of_the_users_own(client: redis.Redis, judge: redis.Redis) -> None:
    guarded = fence(client, ("job", 5))
    script = "return {#KEYS, #ARGV, KEYS[1], ARGV[2], redis.call('INCRBY', KEYS[2], ARGV[1])}"
    answer = guarded.eval(script, ["a", b"n"], [3, "x"])
    assert [item.decode() if isinstance(item, bytes) else item for item in answer] == [2, 2, "a", "x", 3]
    assert guarded.eval("return 7") == 7
    assert guarded.eval("local n = ... return n") is None
    with pytest.raises(ConfigError, match="can't start with #!"):
        guarded.eval("#!lua\nreturn 1")


def test_a_script_that_fails_has_had_its_token_seen(client: redis.Redis, judge: redis.Redis) -> None:
    with pytest.raises(ResponseError, match="oops"):
        fence(client, ("job", 5)).eval("redis.call('SET', KEYS[1], 'half') return error('oops')", ["a"])
    assert (judge.get("a"), judge.get(KEPT)) == ("half", "5")
    with pytest.raises(Fenced):
        fence(client, ("job", 4)).set("a", "stale")
    judge.set("text", "x")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        fence(client, ("job", 5)).hset("text", "a", 1)


def test_a_server_that_has_lost_its_scripts(client: redis.Redis, judge: redis.Redis) -> None:
    guarded = fence(client, ("job", 5))
    guarded.set("a", 1)
    judge.script_flush()
    assert guarded.set("a", 2)
    judge.script_flush()
    with pytest.raises(Fenced):
        fence(client, ("job", 4)).set("a", "stale")


def test_data_that_expires_leaves_the_token(client: redis.Redis, judge: redis.Redis) -> None:
    fence(client, ("job", 5)).set("a", "short", px=1)
    until(lambda: judge.exists("a") == 0, "the expiry")
    assert judge.ttl(KEPT) == -1
    with pytest.raises(Fenced):
        fence(client, ("job", 4)).set("a", "stale")


@pytest.mark.parametrize("kept", ["", "x", "-1", "1e3", "0x10", "1.5", "nan", "9" * 17])
def test_a_token_that_can_not_be_understood_lets_nobody_in(client: redis.Redis, judge: redis.Redis, kept: str) -> None:
    judge.set(KEPT, kept)
    with pytest.raises(ConfigError, match="tampered"):
        fence(client, ("job", 2**53 - 1)).set("a", "x")
    assert judge.get("a") is None


@bad_bearers
def test_what_can_not_be_a_stamp_changes_nothing(
    client: redis.Redis, judge: redis.Redis, bearer: Any, error: type[LessorError], text: str
) -> None:
    fence(client, ("job", 5)).set("a", "five")
    with pytest.raises(error, match=text):
        fence(client, bearer).set("a", "x")
    assert (judge.get("a"), judge.get(KEPT)) == ("five", "5")


def test_a_real_lease_is_asked_at_each_call(client: redis.Redis, judge: redis.Redis) -> None:
    with Client("memory://redis-fence") as leases:
        with leases.acquire("job", ttl=30) as lease:
            guarded = fence(client, lease)
            assert guarded.set("a", "mine")
        with pytest.raises(LeaseLost):
            guarded.set("a", "late")
    assert (judge.get("a"), judge.get(KEPT)) == ("mine", str(lease.token))


def test_what_is_no_client(client: redis.Redis) -> None:
    pool: Any = client.connection_pool
    with pytest.raises(ConfigError, match="client of redis-py"):
        fence(pool, ("job", 1))
    with client.pipeline() as pipeline, pytest.raises(ConfigError, match="pipeline"):
        fence(pipeline, ("job", 1))
    anything: Any = client
    with pytest.raises(ConfigError, match="no tables"):
        fence(anything, ("job", 1), table="my_fence")
    with pytest.raises(ConfigError, match="no tables"):
        create_table(anything)


def test_a_server_that_is_gone(client: redis.Redis) -> None:
    with redis_server() as short_lived:
        gone = short_lived.client(retry=None)
        guarded = fence(gone, ("job", 1))
        guarded.set("a", 1)
        short_lived.kill()
        with pytest.raises(redis.ConnectionError):
            guarded.set("a", 2)
        gone.close()


def test_the_least_privileges(server: RedisServer, judge: redis.Redis) -> None:
    server.run("ACL", "SETUSER", "writer", "reset", "on", ">secret", "~lessor_fence:job", "~report:*",
               "+evalsha", "+eval", "+get", "+set", "+hset", "+del")  # fmt: skip
    with redis.Redis(port=server.port, username="writer", password="secret") as writer:
        guarded = fence(writer, ("job", 5))
        assert guarded.set("report:body", "x")
        assert guarded.hset("report:index", "a", 1)
        assert guarded.delete("report:body")
        with pytest.raises(Fenced):
            fence(writer, ("job", 4)).set("report:body", "stale")
        with pytest.raises(redis.ResponseError):
            guarded.set("elsewhere", "x")
    server.run("ACL", "DELUSER", "writer")


# --- asyncio ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decode", [False, True])
def test_async(server: RedisServer, judge: redis.Redis, decode: bool) -> None:  # noqa: FBT001
    async def use() -> None:
        async with redis.asyncio.Redis(port=server.port, decode_responses=decode) as client:
            guarded = fence(client, ("job", 5))
            assert await guarded.set("a", "five", ex=100)
            assert not await guarded.set("a", "five", nx=True)
            assert await guarded.hset("h", "field", 1, {"other": 2}) == 2
            assert await guarded.delete("h", "not there") == 1
            assert await guarded.eval("return ARGV[1] + 1", [], [2]) == 3
            late = fence(client, ("job", 4))
            for call in (late.set("a", "stale"), late.hset("h", "a", 1), late.delete("a"), late.eval("return 1")):
                with pytest.raises(Fenced):
                    await call
            with pytest.raises(LeaseLost):
                await fence(client, LostLease()).set("a", "stale")
            with pytest.raises(ResponseError, match="WRONGTYPE"):
                await guarded.hset("a", "field", 1)
            with pytest.raises(ConfigError, match="pipeline"):
                fence(client.pipeline(), ("job", 1))
            async with AsyncClient("memory://redis-fence-async") as leases, leases.acquire("job", ttl=30) as lease:
                assert await fence(client, lease).set("a", "mine")

    asyncio.run(use())
    assert judge.get("a") == "mine"
    assert judge.exists("h") == 0


# --- Cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where one of the two masters of a Cluster listens."""
    with redis_cluster(masters=2) as cluster:
        yield cluster.masters[0].port


KEYS = ["{report}:body", "report", "{other}", "x", "a{report}b{c}", "{open", "ümlaut"]


@pytest.mark.parametrize("decode", [False, True])
def test_on_a_cluster_the_token_lives_where_the_key_does(port: int, decode: bool) -> None:  # noqa: FBT001
    with redis.RedisCluster("127.0.0.1", port, decode_responses=decode) as client:
        client.flushall()
        nodes = set()
        for key in KEYS:
            assert fence(client, ("job", 5)).set(key, "five")
            with pytest.raises(Fenced):
                fence(client, ("job", 4)).set(key, "stale")
            assert client.get(key) in ("five", b"five")
            nodes.add(client.get_node_from_key(key).port)
        assert len(nodes) == 2
        assert client.get("lessor_fence:{report}:job") in ("5", b"5")
        assert client.get("lessor_fence:{x}:job") in ("5", b"5")


def test_on_a_cluster_what_shares_a_hash_tag_is_fenced_together(port: int) -> None:
    with redis.RedisCluster("127.0.0.1", port, decode_responses=True) as client:
        client.flushall()
        assert fence(client, ("job", 5)).set("{report}:body", "five")
        late = fence(client, ("job", 4))
        with pytest.raises(Fenced):
            late.hset("{report}:index", "a", 1)
        # That is the difference to a single server: this one lives elsewhere, and nobody newer has been there.
        assert late.set("other", "four")
        script = "return redis.call('MSET', KEYS[1], ARGV[1], KEYS[2], ARGV[1])"
        assert fence(client, ("job", 6)).eval(script, ["{report}:body", "{report}:index"], ["six"]) == "OK"
        assert client.mget_nonatomic("{report}:body", "{report}:index") == ["six", "six"]
        assert fence(client, ("job", 6)).delete("{report}:body", "{report}:index") == 2


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["a", "b"], "these have 2"),
        (["{a}1", "{b}1"], "these have 2"),
        ([], "these have 0"),
        (["{}x"], "can't be guarded"),
        (["a}b"], "can't be guarded"),
        ([""], "can't be guarded"),
    ],
)
def test_on_a_cluster_keys_that_can_not_live_together(port: int, keys: list[str], text: str) -> None:
    with redis.RedisCluster("127.0.0.1", port) as client:
        with pytest.raises(ConfigError, match=text):
            fence(client, ("job", 1)).eval("return 1", keys)
        with pytest.raises(ConfigError, match="pipeline"):
            fence(client.pipeline(), ("job", 1))


def test_async_on_a_cluster(port: int) -> None:
    async def use() -> None:
        async with redis.asyncio.RedisCluster("127.0.0.1", port, decode_responses=True) as client:
            await client.flushall()
            for key in KEYS:
                assert await fence(client, ("job", 5)).set(key, "five")
                with pytest.raises(Fenced):
                    await fence(client, ("job", 4)).set(key, "stale")
            pipeline: Any = client.pipeline()
            with pytest.raises(ConfigError, match="pipeline"):
                fence(pipeline, ("job", 1))

    asyncio.run(use())
