"""Reboots, power loss, wall clocks that lie, and containers that have a boot id or a time of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Loss, Lost, Release, Renew, Renewed, Unknown
from lessor.errors import ConfigError
from lessor.stores.sqlite.store import TOKEN_BLOCK
from tests.needs import run_as_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lessor.core.ops import Outcome
    from lessor.stores.sqlite import SqliteStore
    from lessor.testing.clock import FakeClock

TTL = 10 * SECOND
YEAR_US = 365 * 86_400 * 1_000_000


def take(store: SqliteStore, resource: str = "r", lease_id: str = "A", **rest: Any) -> Outcome:
    return store.apply([Acquire(resource, lease_id, "h-" + lease_id, TTL, **rest)], timeout=1)[0]


def token(outcome: Outcome) -> int:
    assert isinstance(outcome, Granted), outcome
    return outcome.token


@pytest.mark.parametrize("uptime", [0.001, 10**6])
def test_a_new_boot_frees_nothing_before_the_ttl(
    open_store: Callable[..., SqliteStore], clock: FakeClock, uptime: float
) -> None:
    """Whether its clock starts far below the times in the file, or far above."""
    first = token(take(open_store()))
    clock.advance(4)
    clock.new_boot(uptime=uptime)
    store = open_store()
    held = take(store, lease_id="B")
    assert held == Held("h-A", first, TTL, 0)
    clock.advance(9.999)
    assert isinstance(take(store, lease_id="B"), Held)
    clock.advance(0.001)
    assert token(take(store, lease_id="B")) > first


def test_reading_is_enough_to_see_a_new_boot(open_store: Callable[..., SqliteStore], clock: FakeClock) -> None:
    take(open_store())
    clock.new_boot()
    store = open_store()
    records = store.read(["r"], timeout=1)
    assert records[0] is not None
    assert records[0].remaining_ns == TTL
    clock.advance(10)
    assert list(store.scan("", timeout=1)) == []


def test_a_holder_in_the_old_boot_is_refused_and_not_freed(
    open_store: Callable[..., SqliteStore], clock: FakeClock
) -> None:
    """Two containers, each with a boot id of its own: a ConfigError for the one that was there before."""
    old = open_store()
    first = token(take(old))
    clock.new_boot("boot-of-the-container")
    new = open_store()
    assert isinstance(take(new, lease_id="B"), Held)
    outcomes = old.apply([Renew("r", "A", first, TTL), Acquire("s", "A", "h", TTL), Release("r", "A")], timeout=1)
    for outcome in outcomes:
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, ConfigError)
        assert "boot ids" in str(outcome.error)
    with pytest.raises(ConfigError, match="boot ids"):
        old.read(["r"], timeout=1)
    # Nothing was lost or changed by the attempt.
    records = new.read(["r", "s"], timeout=1)
    assert [r and (r.token, r.remaining_ns) for r in records] == [(first, TTL), None]
    clock.new_boot("boot-1")
    with pytest.raises(ConfigError, match="boot ids"):
        open_store().read(["r"], timeout=1)
    clock.new_boot("boot-of-the-container")
    assert isinstance(take(new, lease_id="B"), Held)


def test_a_renewal_in_the_new_boot_goes_on_from_there(open_store: Callable[..., SqliteStore], clock: FakeClock) -> None:
    first = token(take(open_store()))
    clock.new_boot()
    store = open_store()
    clock.advance(5)
    assert store.apply([Renew("r", "A", first, TTL)], timeout=1) == [Renewed(TTL)]


def test_what_was_renewed_for_longer_is_kept_for_longer(
    open_store: Callable[..., SqliteStore], clock: FakeClock
) -> None:
    store = open_store()
    first = token(take(store))
    store.apply([Renew("r", "A", first, 3 * TTL)], timeout=1)
    clock.new_boot()
    store = open_store()
    clock.advance(29.9)
    assert isinstance(take(store, lease_id="B"), Held)


def test_children_are_kept_as_long_as_their_parents(open_store: Callable[..., SqliteStore], clock: FakeClock) -> None:
    store = open_store()
    parent = token(take(store, "p"))
    store.apply([Acquire("c", "C", "h", 0, parent=("p", parent))], timeout=1)
    clock.new_boot()
    store = open_store()
    clock.advance(9)
    assert isinstance(take(store, "c", "B"), Held)
    store.apply([Renew("p", "A", parent, TTL)], timeout=1)
    clock.advance(9)
    assert isinstance(take(store, "c", "B"), Held)
    clock.advance(1)
    assert isinstance(take(store, "c", "B"), Granted)


def test_tokens_rise_after_a_power_loss_with_the_wall_clock_set_back(
    open_store: Callable[..., SqliteStore],
    clock: FakeClock,
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a disk without the last writes looks like: the files as they were when the block was reserved."""
    store = open_store()
    first = token(take(store))
    saved = tmp_path / "saved"
    saved.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(path + suffix, saved / ("leases.db" + suffix))
    highest = first
    for turn in range(50):
        clock.advance(1)
        store.apply([Release("r", f"B{turn - 1}" if turn else "A")], timeout=1)
        highest = token(take(store, lease_id=f"B{turn}"))
    store.close()
    assert highest > first
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.unlink(path + suffix)
    for suffix in ("", "-wal"):
        shutil.copy(saved / ("leases.db" + suffix), path + suffix)
    clock.new_boot()
    clock.set_wall(clock.wall_us() - YEAR_US)
    store = open_store()
    reserve, reserved = store._reserve, []

    def reserve_but_not_for_ever(*args: Any) -> None:
        reserved.append(args)
        assert len(reserved) < 5, "the block is reserved again and again"
        reserve(*args)

    monkeypatch.setattr(store, "_reserve", reserve_but_not_for_ever)
    other = token(take(store, "never seen before"))
    assert other > highest
    clock.advance(10)
    assert token(take(store, lease_id="C")) > highest


def test_a_token_beyond_the_reserved_block_reserves_the_next_one_first(
    open_store: Callable[..., SqliteStore], clock: FakeClock
) -> None:
    store, other = open_store(), open_store()
    highest = 0
    for turn in range(5):
        for n, each in enumerate((store, other)):
            lease_id = f"{turn}-{n}"
            granted = token(take(each, lease_id=lease_id, seen_token=highest + TOKEN_BLOCK))
            assert granted > highest + TOKEN_BLOCK
            highest = granted
            row = store._idle[0].db.execute("SELECT reserved FROM meta").fetchone()
            assert row[0] >= granted
            each.apply([Release("r", lease_id)], timeout=1)


def test_a_wall_clock_that_steps_back_lowers_no_token_and_frees_nothing(
    open_store: Callable[..., SqliteStore], clock: FakeClock
) -> None:
    store = open_store()
    first = token(take(store))
    clock.set_wall(clock.wall_us() - 10 * YEAR_US)
    assert isinstance(take(store, lease_id="B"), Held)
    store.apply([Release("r", "A")], timeout=1)
    second = token(take(store, lease_id="B"))
    assert second > first
    clock.set_wall(clock.wall_us() + 20 * YEAR_US)
    assert isinstance(take(store, lease_id="C"), Held)


def test_a_forgotten_resource_goes_on_above_its_last_token(
    open_store: Callable[..., SqliteStore], clock: FakeClock
) -> None:
    store = open_store()
    last = token(take(store, seen_token=clock.wall_us() + 10**9))
    store.apply([Release("r", "A")], timeout=1)
    store.collect()
    assert store._idle[0].db.execute("SELECT count(*) FROM leases").fetchone() == (0,)
    assert token(take(open_store(namespace="other"), "r", "B")) > last
    assert token(take(store, lease_id="B")) > last


# --- a time namespace ---------------------------------------------------------------------------------------------

CHILD = """
import json, sys
from lessor.core.ops import Acquire, Granted
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.sqlite import SqliteStore
store = SqliteStore(StoreURL("sqlite", "", "/" + sys.argv[1], {}), SYSTEM)
for line in sys.stdin:
    resource, lease_id, ttl_ns = json.loads(line)
    outcome = store.apply([Acquire(resource, lease_id, lease_id, ttl_ns)], timeout=5)[0]
    record = store.read([resource], timeout=5)[0]
    print(json.dumps([isinstance(outcome, Granted), record and record.holder, record and record.remaining_ns]), flush=True)
"""


class Process:
    """Acquires in a process of its own, when told to."""

    def __init__(self, *command: str, path: str) -> None:
        self.process = subprocess.Popen(
            [*command, sys.executable, "-c", CHILD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def acquire(self, resource: str, lease_id: str, ttl_ns: int) -> tuple[bool, str, int]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([resource, lease_id, ttl_ns]) + "\n")
        self.process.stdin.flush()
        granted, holder, remaining = json.loads(self.process.stdout.readline())
        return granted, holder, remaining

    def end(self) -> None:
        self.process.communicate(timeout=10)


@pytest.mark.parametrize("shift", ["1000000", "-50"])
def test_a_process_in_a_time_namespace_agrees_on_exclusion_and_expiry(path: str, shift: str) -> None:
    namespace = ("unshare", "--time", "--boottime", shift)
    run_as_root(*namespace, "true")
    inside = Process(*namespace, path=path)
    outside = Process(path=path)
    try:
        for one, other, resource in ((inside, outside, "r"), (outside, inside, "s")):
            granted, holder, remaining = one.acquire(resource, "one", 3 * SECOND)
            assert (granted, holder) == (True, "one")
            assert 0 < remaining <= 3 * SECOND
            granted, holder, remaining = other.acquire(resource, "other", 3 * SECOND)
            assert (granted, holder) == (False, "one")
            assert 0 < remaining <= 3 * SECOND
            attempts = 0
            while not other.acquire(resource, "other", SECOND)[0]:
                attempts += 1
                assert attempts < 1_000_000, "it never expires"
            assert one.acquire(resource, "third", SECOND)[:2] == (False, "other")
    finally:
        inside.end()
        outside.end()


def test_a_lost_lease_stays_lost_over_a_boot(open_store: Callable[..., SqliteStore], clock: FakeClock) -> None:
    store = open_store()
    first = token(take(store))
    store.apply([Release("r", "A")], timeout=1)
    clock.new_boot()
    store = open_store()
    assert store.apply([Renew("r", "A", first, TTL)], timeout=1) == [Lost(Loss.RELEASED)]
    assert isinstance(take(store, lease_id="B"), Granted)
