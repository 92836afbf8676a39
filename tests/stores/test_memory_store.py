"""What is special about leases in memory, about URLs, and about the clock that tests bring along."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Event, EventKind, Granted, Held, Notice, Release, Summons, Unknown
from lessor.errors import ConfigError
from lessor.stores.base import Store, StoreURL
from lessor.stores.memory import MemoryStore
from lessor.stores.registry import guarantees, open_store
from lessor.testing.clock import FakeClock

if TYPE_CHECKING:
    from lessor.core.clock import Clock

TTL = 10 * SECOND
ASK = Acquire("r", "A", "h", TTL)


def memory(clock: Clock, name: str | None = None, namespace: str = "default") -> MemoryStore:
    url = f"memory://{name or uuid.uuid4().hex}?namespace={namespace}"
    return MemoryStore(StoreURL.parse(url), clock)


def test_stores_of_one_name_and_namespace_are_the_same() -> None:
    clock, name = FakeClock(), uuid.uuid4().hex
    assert isinstance(memory(clock, name).apply([ASK], timeout=1)[0], Granted)
    other = ASK._replace(lease_id="B")
    assert isinstance(memory(clock, name).apply([other], timeout=1)[0], Held)
    assert isinstance(memory(clock, name, "other").apply([other], timeout=1)[0], Granted)
    assert isinstance(memory(clock).apply([other], timeout=1)[0], Granted)


def test_one_misuse_spoils_only_itself() -> None:
    store = memory(FakeClock())
    outcomes = store.apply([ASK, Acquire("s", "A", "h", TTL, parent=("s", 1)), ASK._replace(resource="t")], timeout=1)
    assert [type(o) for o in outcomes] == [Granted, Unknown, Granted]


def test_calls_go_to_their_address_and_events_to_those_who_watch() -> None:
    store = memory(FakeClock())
    caller, watcher, elsewhere = store.subscribe(), store.subscribe("r"), store.subscribe("other/")
    store.apply([ASK, Acquire("r", "B", "b", TTL, queue=True, notify=caller.address), Release("r", "A")], timeout=1)
    assert caller.get(0) == [Notice(caller.address, Summons.RESERVED, "r", "B")]
    assert caller.get(0) == []
    events: list[Event | Notice] = []
    while came := watcher.get(0):
        events += came
    assert [e.kind for e in events if isinstance(e, Event)] == [EventKind.GRANTED, EventKind.RELEASED]
    assert elsewhere.get(0) == []


def test_closing_wakes_the_one_who_listens() -> None:
    store = memory(FakeClock())
    mine = store.subscribe()
    came: list[object] = []
    listener = threading.Thread(target=lambda: came.append(mine.get(60)))
    listener.start()
    mine.close()
    listener.join(10)
    assert came == [[]]
    store.apply([ASK], timeout=1)


# --- URLs ---------------------------------------------------------------------------------------------------------


def test_a_url_is_taken_apart() -> None:
    url = StoreURL.parse("sqlite:////var/a%20b%23.db?namespace=x-1")
    assert (url.scheme, url.netloc, url.path, url.namespace) == ("sqlite", "", "//var/a b#.db", "x-1")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("leases.db", "scheme"),
        ("://x", "scheme"),
        ("", "scheme"),
        ("memory://a#b", "%23"),
        ("memory://a#", "%23"),
        ("memory://a?namespace=a&namespace=b", "twice"),
        ("memory://a?namespace", "can't be read"),
        ("memory://a?namespce=x", "no option 'namespce', did you mean 'namespace'.; there are: namespace"),
        ("memory://a?namespace=", "1 to 64"),
        ("memory://a?namespace=a/b", "1 to 64"),
        ("memory://a?namespace=" + "x" * 65, "1 to 64"),
        ("mysql://host", "no store for mysql://"),
        ("memory://[x", "can't be read"),
        ("memory:a://x", "scheme"),
    ],
)
def test_urls_that_are_refused_say_why(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        open_store(url, FakeClock())


def test_what_is_opened_is_a_store_that_can_be_opened_again_by_its_url() -> None:
    clock = FakeClock()
    store = open_store(f"memory://{uuid.uuid4().hex}/x", clock)
    assert isinstance(store, Store)
    store.apply([ASK], timeout=1)
    assert isinstance(open_store(store.url, clock).apply([ASK._replace(lease_id="B")], timeout=1)[0], Held)


def test_the_known_stores_declare_what_they_promise() -> None:
    declared = {g.store: g for g in guarantees()}
    assert set(declared) >= {"memory", "sqlite"}
    for guarantee in declared.values():
        assert 0 <= guarantee.drift < 0.5
        assert guarantee.not_promised


# --- the clock ----------------------------------------------------------------------------------------------------


def test_the_fake_clock_moves_all_its_readings_and_only_when_told() -> None:
    clock: FakeClock = FakeClock()
    before = (clock.now(), clock.mark(), clock.host_ns(), clock.wall_us())
    assert before == (clock.now(), clock.mark(), clock.host_ns(), clock.wall_us())
    clock.advance(1.5)
    clock.advance(timedelta(seconds=1))
    clock.advance_ns(500_000_000)
    after = (clock.now(), clock.mark(), clock.host_ns(), clock.wall_us())
    assert [b - a for a, b in zip(before, after, strict=True)] == [3 * SECOND] * 3 + [3_000_000]
    with pytest.raises(ValueError, match="set_wall"):
        clock.advance(-1)


def test_the_fake_clocks_wall_and_boot_are_apart_from_the_rest() -> None:
    clock = FakeClock()
    now, epoch = clock.now(), clock.host_epoch()
    clock.set_wall(5)
    assert (clock.now(), clock.host_ns(), clock.wall_us()) == (now, now, 5)
    clock.new_boot(uptime=7)
    assert (clock.now(), clock.host_ns(), clock.wall_us()) == (now, 7 * SECOND, 5)
    assert clock.host_epoch() != epoch
    clock.new_boot("mine")
    assert clock.host_epoch() == "mine"
