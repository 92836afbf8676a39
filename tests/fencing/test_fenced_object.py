from __future__ import annotations

import asyncio
import hashlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from obstore.exceptions import PreconditionError
from obstore.store import LocalStore, MemoryStore

from lessor import Client, ConfigError, Fenced, LeaseLost, LessorError, StoreUnavailable
from lessor.fencing import FencedObject, Stamp
from tests.fencing.bearers import LostLease, bad_bearers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from obstore.store import ObjectStore

    from tests.servers.s3 import S3Server

names = itertools.count()


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    server: S3Server = request.getfixturevalue("s3")
    return server.store()


@pytest.fixture
def path() -> str:
    return f"reports/{next(names)}"


@pytest.fixture
def thing(store: ObjectStore, path: str) -> FencedObject:
    return FencedObject(store, path)


def test_older_is_refused_equal_passes_newer_is_remembered(thing: FencedObject) -> None:
    thing.write(("job", 5), "first")
    thing.write(("job", 5), b"second\nwith lines\n")
    with pytest.raises(Fenced) as refused:
        thing.write(("job", 4), "stale")
    assert (refused.value.resource, refused.value.token, refused.value.newest) == ("job", 4, 5)
    assert (thing.read(), thing.token) == (b"second\nwith lines\n", 5)
    thing.write(("job", 6), "dünn")
    assert (thing.read(), thing.token) == ("dünn".encode(), 6)


def test_where_nobody_has_been(thing: FencedObject) -> None:
    assert thing.token is None
    with pytest.raises(FileNotFoundError):
        thing.read()


def test_empty_and_large_objects_and_the_longest_name(thing: FencedObject) -> None:
    name = "\U0001f512" * 128
    thing.write((name, 1), b"")
    assert thing.read() == b""
    large = b"0123456789abcdef" * 700_000  # more than one part, if it were sent in parts
    thing.write((name, 2), large)
    assert (thing.read() == large, thing.token) == (True, 2)
    with pytest.raises(Fenced):
        thing.write((name, 1), b"stale")


def test_a_delete_keeps_the_token(thing: FencedObject) -> None:
    thing.delete(("job", 3))
    with pytest.raises(FileNotFoundError):
        thing.read()
    thing.write(("job", 5), "five")
    with pytest.raises(Fenced):
        thing.delete(("job", 4))
    with pytest.raises(Fenced):
        thing.write(("job", 2), "stale")
    assert thing.read() == b"five"
    thing.delete(("job", 5))
    with pytest.raises(FileNotFoundError, match="reports/"):
        thing.read()
    with pytest.raises(Fenced):
        thing.write(("job", 4), "stale")
    assert thing.token == 5
    thing.write(("job", 5), "again")
    assert thing.read() == b"again"


def test_attributes_go_with_the_object(thing: FencedObject, store: ObjectStore) -> None:
    thing.write(("job", 1), "{}", attributes={"Content-Type": "application/json"})
    assert store.get(thing.path).attributes["Content-Type"] == "application/json"


def test_whoever_is_stopped_between_the_look_and_the_write_is_refused(
    thing: FencedObject, store: ObjectStore, path: str
) -> None:
    class Stopped(FencedObject):
        """Is overtaken after its look, once."""

        overtake: Callable[[], None] | None

        def _mode(self, stamp: Any, seen: Any) -> Any:
            mode = super()._mode(stamp, seen)
            overtake, self.overtake = self.overtake, None
            if overtake is not None:
                overtake()
            return mode

    stopped = Stopped(store, path)
    stopped.overtake = lambda: thing.write(("job", 2), "two")  # before there is any object
    with pytest.raises(Fenced):
        stopped.write(("job", 1), "stale")
    stopped.overtake = lambda: thing.write(("job", 3), "two")  # the very same data, by a newer holder
    with pytest.raises(Fenced):
        stopped.write(("job", 2), "stale")
    stopped.overtake = lambda: thing.delete(("job", 4))
    with pytest.raises(Fenced):
        stopped.delete(("job", 3))
    stopped.overtake = lambda: thing.write(("job", 4), "another thread of the same holder")
    stopped.write(("job", 4), "last")
    assert (thing.read(), thing.token) == (b"last", 4)
    stopped.overtake = lambda: thing.write(("job", 4), "older than the stopped one")
    stopped.write(("job", 5), "five")
    assert (thing.read(), thing.token) == (b"five", 5)


def test_why_the_token_is_not_in_the_metadata(s3: S3Server, path: str) -> None:
    # S3 makes the ETag from the content alone: a newer holder that writes the same data leaves it as it was.
    store = s3.store()
    store.put(path, b"same", attributes={"token": "1"})
    seen = store.head(path)["e_tag"]
    store.put(path, b"same", attributes={"token": "2"})
    assert seen == f'"{hashlib.md5(b"same").hexdigest()}"'
    assert seen is not None
    store.put(path, b"stale", attributes={"token": "1"}, mode={"e_tag": seen})
    assert bytes(store.get(path).bytes()) == b"stale"
    # With the token in the content it can't.
    thing = FencedObject(store, f"{path}-guarded")
    thing.write(("job", 1), b"same")
    seen = store.head(thing.path)["e_tag"]
    assert seen is not None
    thing.write(("job", 2), b"same")
    with pytest.raises(PreconditionError):
        store.put(thing.path, b"stale", mode={"e_tag": seen})


def test_many_writers_at_once_and_the_newest_stays(store: ObjectStore, path: str) -> None:
    def write(token: int) -> bool:
        try:
            FencedObject(store, path).write(("job", token), str(token))
        except Fenced as refused:
            assert refused.newest > token  # noqa: PT017 - it may be raised or not
            return False
        return True

    for newest in (6, 12, 18):
        with ThreadPoolExecutor(6) as pool:
            written = list(pool.map(write, range(newest, newest - 6, -1)))
        assert written[0]
        assert FencedObject(store, path).read() == str(newest).encode()


def test_an_object_that_never_stays_the_same(thing: FencedObject, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def mode(stamp: Stamp, _seen: object) -> Any:
        nonlocal looked
        looked += 1
        return "create"  # as if it had not been there when it was looked at

    thing.write(("job", 1), "x")
    monkeypatch.setattr(thing, "_mode", mode)
    with pytest.raises(StoreUnavailable, match="changed by others 20 times"):
        thing.write(("job", 1), "y")
    assert looked == 20


def test_tokens_of_two_resources_are_not_compared(thing: FencedObject) -> None:
    thing.write(("a", 1), "x")
    with pytest.raises(ConfigError, match="fenced by 'a'"):
        thing.write(("b", 2), "y")
    assert (thing.read(), thing.token) == (b"x", 1)


@pytest.mark.parametrize(
    "content",
    [b"", b"plain", b"7\n", b"{}\n", b"\xff\n", b'{"lessor": 2, "resource": "job", "token": 1}\n',
     b'{"lessor": 1, "resource": "job", "token": "1"}\n', b'{"lessor": 1, "resource": "job", "token": 1}'],
)  # fmt: skip
def test_an_object_that_was_not_written_by_a_guard_lets_nobody_in(
    thing: FencedObject, store: ObjectStore, content: bytes
) -> None:
    store.put(thing.path, content)
    with pytest.raises(ConfigError, match="not written by a guard"):
        thing.write(("job", 6), "y")
    with pytest.raises(ConfigError, match="not written by a guard"):
        _ = thing.token
    with pytest.raises(ConfigError, match="not written by a guard"):
        thing.read()
    assert bytes(store.get(thing.path).bytes()) == content


@bad_bearers
def test_what_can_not_be_a_stamp_changes_nothing(bearer: Any, error: type[LessorError], text: str, path: str) -> None:
    thing = FencedObject(MemoryStore(), path)
    thing.write(("job", 5), "x")
    with pytest.raises(error, match=text):
        thing.write(bearer, "y")
    assert (thing.read(), thing.token) == (b"x", 5)


@pytest.mark.parametrize("data", [None, 3, ["x"], bytearray(b"x")])
def test_what_is_neither_bytes_nor_text_changes_nothing(data: Any) -> None:
    thing = FencedObject(MemoryStore(), "a")
    with pytest.raises(ConfigError, match="bytes or str"):
        thing.write(("job", 1), data)
    assert thing.token is None


@pytest.mark.parametrize("path", ["", "/", None, 3, b"report"])
def test_what_does_not_name_an_object(path: Any) -> None:
    with pytest.raises(ConfigError, match="does not name an object"):
        FencedObject(MemoryStore(), path)


def test_a_store_that_is_none_or_can_not_compare(tmp_path: Path) -> None:
    nothing: Any = "s3://bucket"
    with pytest.raises(ConfigError, match="store of obstore"):
        FencedObject(nothing, "a")
    thing = FencedObject(LocalStore(tmp_path), "a")
    thing.write(("job", 1), "the first one needs no comparison")
    with pytest.raises(ConfigError, match="LocalStore can't replace"):
        thing.write(("job", 2), "x")
    with pytest.raises(ConfigError, match="LocalStore can't replace"):
        asyncio.run(thing.write_async(("job", 2), "x"))


def test_a_lease_writes_until_it_is_released(thing: FencedObject) -> None:
    with Client("memory://fenced-object") as leases:
        with leases.acquire("job", ttl=30) as lease:
            thing.write(lease, "mine")
        with pytest.raises(LeaseLost):
            thing.write(lease, "late")
    assert thing.read() == b"mine"


def test_async(thing: FencedObject, store: ObjectStore) -> None:
    async def use() -> None:
        with pytest.raises(FileNotFoundError):
            await thing.read_async()
        await thing.write_async(("job", 5), "first", attributes={"Content-Type": "text/plain"})
        await thing.write_async(("job", 5), b"second")
        with pytest.raises(Fenced):
            await thing.write_async(("job", 4), "stale")
        with pytest.raises(Fenced):
            await thing.delete_async(("job", 4))
        with pytest.raises(LeaseLost):
            await thing.write_async(LostLease(), "stale")
        assert await thing.read_async() == b"second"
        await thing.delete_async(("job", 6))
        with pytest.raises(FileNotFoundError):
            await thing.read_async()
        await asyncio.gather(*[thing.write_async(("job", 7), str(number)) for number in range(5)])
        assert await thing.read_async() in {b"0", b"1", b"2", b"3", b"4"}
        await store.put_async(thing.path, b"")
        with pytest.raises(ConfigError, match="not written by a guard"):
            await thing.write_async(("job", 8), "x")

    asyncio.run(use())
