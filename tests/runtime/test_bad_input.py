"""Whatever nonsense a call is made with, it is refused as a ConfigError, through both faces, and leaves nothing."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any

import pytest

from lessor import AsyncClient, Client, ConfigError, InvalidResource
from lessor.core.timing import Timing
from lessor.runtime.engine import _engines
from lessor.testing.faces import AsyncFace, SyncFace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAN, INFINITY = float("nan"), float("inf")


TERMS: dict[str, list[Any]] = {
    "ttl": [
        "5", None, NAN, INFINITY, -1, 0, 1e30, decimal.Decimal(5), [], True, object,
        Timing.of(5, drift=0.0001),  # less than any store declares
    ],
    "wait": ["5", NAN, -1, INFINITY, [], True, object],
    "metadata": [
        "abc", "", [1], [], 5, 0, True, {"a": 1}, {1: "a"}, {"a": None}, {"a": "\ud800"}, {"\ud800": "a"},
        {"a": "x" * 70_000},
    ],
    "renewal": ["bogus", 5, [], ["x"], b"third", "", 0, False],
    "max_hold": [0, -1, "1", NAN, INFINITY, 1e-9, [], True],
    "stall_after": [0, -1, "1", NAN, INFINITY, [], True],
    "soft": [0, -1, "1", NAN, 1e9, [], True],
    "grace": [0, -1, "1", NAN, 1e9, [], True],
    "lock_delay": [0, -1, "1", NAN, 1e9, [], True],
    "hold_at_least": [0, -1, "1", NAN, 1e9, [], True],
    "priority": ["1", 1.0, True, [], 2**31, -(2**31)],
    "queue_limit": [0, -1, "1", 1.0, True, [], 2**31],
    "recover": [1, 0, None, "yes", []],
    "parent": ["x", 5, ("x", 1), object],
    "prioriti": [1],
}  # fmt: skip
NAMES: list[Any] = [None, 5, b"x", "", "/a", "a/", "a//b", "a\0b", "\ud800", "x" * 513]
PREFIXES: list[Any] = [None, 5, b"x", [], "\ud800"]


@pytest.fixture(params=[SyncFace, AsyncFace], ids=["sync", "async"])
def face(request: pytest.FixtureRequest, url: str) -> Iterator[Any]:
    face = request.param(url)
    yield face
    assert face.list() == []
    assert face.client._engine.held == {}
    assert face.client._engine.waiters._bells == {}
    lease = face.acquire("x", ttl=5, wait=0)  # and it works as ever
    assert face.release(lease)
    face.close()


def param(*values: Any) -> Any:
    return pytest.param(*values, id="=".join(f"{value!a:.30}" for value in values))


def pairs(table: dict[str, list[Any]]) -> list[Any]:
    return [param(key, value) for key, values in table.items() for value in values]


def refused(face: Any, call: Callable[..., Any], **terms: Any) -> None:
    """Make the call, which must be refused; if it isn't, give back what it returned."""
    with pytest.raises(ConfigError):  # noqa: PT012 - the second line is for a defect
        lease = call("x", **terms)
        face.release(lease)


@pytest.mark.parametrize(("term", "value"), pairs(TERMS))
def test_terms_that_are_none(face: Any, term: str, value: Any) -> None:
    refused(face, face.acquire, **{"ttl": 5, "wait": 0, term: value})
    if term != "wait":
        refused(face, face.try_acquire, **{"ttl": 5, term: value})


@pytest.mark.parametrize("term", [param(t) for t in ("ttl", "wait", "max_hold", "stall_after")])
def test_true_is_no_duration_even_after_one_was(face: Any, term: str) -> None:
    face.release(face.acquire("x", **{"ttl": 5, "wait": 0, term: 1}))
    refused(face, face.acquire, **{"ttl": 5, "wait": 0, term: True})


def test_a_timing_and_a_strategy_contradict_each_other(face: Any) -> None:
    with pytest.raises(ConfigError, match="part of the Timing"):
        face.acquire("x", ttl=Timing.of(5, drift=0.01), renewal="lazy")


def test_an_option_that_is_none_is_named_with_those_that_are(face: Any) -> None:
    with pytest.raises(ConfigError, match=r"no option 'maxhold'; there are: metadata, .*max_hold"):
        face.acquire("x", maxhold=5)


def test_a_minimum_beyond_the_maximum_is_refused(face: Any) -> None:
    with pytest.raises(ConfigError, match="hold_at_least is 6 s, and max_hold only 5 s"):
        face.acquire("x", ttl=1, hold_at_least=6, max_hold=5)


def test_a_lock_delay_that_outlasts_what_is_remembered_of_the_parent(client: Client) -> None:
    with client.acquire("above", ttl=5) as above, pytest.raises(ConfigError, match="under a parent 60 s are the most"):
        client.acquire("below", parent=above, lock_delay=61)
    client.acquire("alone", ttl=5, lock_delay=61).release()


def test_what_can_not_be_under_a_parent(face: Any, memory_url: str) -> None:
    parent = face.acquire("parent", ttl=5)
    for wish in (
        {"grace": 1},
        {"ttl": None, "max_hold": 9},
        {"ttl": None, "stall_after": 9},
        {"ttl": None, "renewal": "lazy"},
    ):
        with pytest.raises(ConfigError):
            face.acquire("x", **{"ttl": 5, "parent": parent, **wish})
    with Client(memory_url) as elsewhere, pytest.raises(ConfigError, match="same client"):
        elsewhere.acquire("x", parent=parent)
    face.release(parent)


@pytest.mark.parametrize(
    ("to", "state", "within"),
    [("", b"", 1), (None, b"", 1), (5, b"", 1), ("a\nb", b"", 1), ("h", "text", 1), ("h", None, 1), ("h", bytes(60_000), 1),
     ("h", b"", 0), ("h", b"", 61), ("h", b"", "1"), ("h", b"", True)],
)  # fmt: skip
def test_a_handover_that_is_none_ends_nothing(face: Any, to: Any, state: Any, within: Any) -> None:
    lease = face.acquire("x", ttl=30)
    with pytest.raises(ConfigError):
        face.hand_over(lease, to, state, within)
    lease.check()
    face.release(lease)


@pytest.mark.parametrize("name", [param(name) for name in NAMES])
def test_names_that_are_none(face: Any, name: Any) -> None:
    for call in (face.acquire, face.try_acquire, face.get, face.revoke, face.contenders):
        with pytest.raises(InvalidResource):
            call(name)


@pytest.mark.parametrize("prefix", PREFIXES, ids=repr)
def test_prefixes_that_are_none(face: Any, prefix: Any) -> None:
    with pytest.raises(InvalidResource):
        face.list(prefix)
    with pytest.raises(InvalidResource):
        face.client.watch(prefix)
    assert not face.client._engine.watches


@pytest.mark.parametrize("force", ["no", "", 1, 0, None, []], ids=repr)
def test_a_force_that_is_neither_yes_nor_no_ends_nothing(face: Any, force: Any) -> None:
    lease = face.acquire("x", ttl=30)
    with pytest.raises(ConfigError):
        face.revoke("x", force=force)
    lease.check()
    assert lease.ending is None
    assert face.get("x").token == lease.token
    face.release(lease)


@pytest.mark.parametrize("value", ["x", None, NAN, INFINITY, [], True], ids=repr)
def test_a_required_time_that_is_none(face: Any, value: Any) -> None:
    lease = face.acquire("x", ttl=30)
    with pytest.raises(ConfigError):
        lease.require(value)
    lease.check()
    face.release(lease)


@pytest.mark.parametrize("callback", [5, None, "x"], ids=repr)
def test_callbacks_that_can_not_be_called(face: Any, callback: Any) -> None:
    lease = face.acquire("x", ttl=30)
    for listen in (lease.on_lost, lease.on_jeopardy, lease.on_safe):
        with pytest.raises(ConfigError):
            listen(callback)
    assert not lease._listeners
    assert face.release(lease)
    with pytest.raises(ConfigError):
        lease.on_lost(callback)


SETTINGS: dict[str, list[Any]] = {
    "timeout": [0, -1, -0.5, "x", None, NAN, INFINITY, 1e11, True, []],
    "holder": [5, "", "a\nb", "x" * 300, b"x", "\ud800", [], False],
    "renewal": [5, "bogus", [], "", b"third", None],
}


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(("setting", "value"), pairs(SETTINGS))
def test_settings_of_a_client_that_are_none(kind: type, memory_url: str, setting: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        kind(memory_url, **{setting: value})


URLS: list[Any] = [
    5, True, b"memory://", [], object, "x", "://", "memory", "sqlite://", "sqlite:///", "sqlite:///a\0b",
    "memory://\ud800", "sqlite:////tmp/\ud800.db", "nothing://x", "memory://?x=1", "memory://?namespace=",
]  # fmt: skip


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("where", [param(where) for where in URLS])
def test_urls_that_are_none(kind: type, where: Any) -> None:
    with pytest.raises(ConfigError):
        kind(where)


@pytest.mark.parametrize("options", ["?x=1", "?namespace=", "?namespace=a&namespace=b"])
def test_options_that_are_none_make_no_file(sqlite_url: str, tmp_path: Any, options: str) -> None:
    with pytest.raises(ConfigError):
        Client(sqlite_url + options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_that_is_refused_has_opened_nothing(kind: Any, url: str) -> None:
    before = len(_engines)
    with pytest.raises(ConfigError, match="renewal"):
        kind(url, renewal="never")
    assert len(_engines) <= before
