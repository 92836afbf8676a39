"""A session with some hundred leases on two levels: all are free when it is released, revoked by force, or has died."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.testing.conformance.base import Thread, until
from tests.patterns.processes import end, hear, hold_two_levels, start, tell

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = [pytest.mark.timeout(120), pytest.mark.parametrize("url", ["sqlite", "etcd"], indirect=True)]

CHILDREN, GRANDCHILDREN = 60, 4
PARTS = [f"part/{number}" for number in range(CHILDREN)]
ALL = [*PARTS, *(f"{part}/{number}" for part, number in itertools.product(PARTS, range(GRANDCHILDREN)))]
WANTED = [PARTS[0], PARTS[30], PARTS[-1], ALL[CHILDREN], ALL[CHILDREN + 120], ALL[-1]]
"""What somebody waits for: the first, one in the middle and the last of each level."""
TTL = 8.0
LATE = 60.0
"""Seconds after which a lease that is over must be free on a busy machine: a waiter that isn't called asks before."""


@pytest.fixture
def holder(url: str) -> Iterator[subprocess.Popen[str]]:
    process = start(hold_two_levels.__name__, url, CHILDREN, GRANDCHILDREN, TTL)
    yield process
    end(process)


@pytest.fixture
def others(url: str) -> Iterator[Client]:
    with Client(url) as others:
        yield others


def all_get_their_turn(others: Client, waiters: list[Thread]) -> None:
    for waiter in waiters:
        waiter.result(LATE)
    assert others.try_each(ALL, ttl=60).keys() == set(ALL)


def wait_for_some(others: Client) -> list[Thread]:
    def wait(name: str) -> None:
        others.acquire(name, ttl=60).release()

    waiters = [Thread(lambda name=name: wait(name)) for name in WANTED]  # type: ignore[misc]
    until(lambda: all(others.contenders(name) for name in WANTED), "the waiters")
    return waiters


def test_all_are_free_when_it_is_released(holder: subprocess.Popen[str], others: Client) -> None:
    hear(holder)
    waiters = wait_for_some(others)
    assert others.try_each(ALL, ttl=60) == {}
    tell(holder, "release")
    assert hear(holder) == {"released": True}
    assert [record for record in others.list("part/") if record.resource not in WANTED] == []
    all_get_their_turn(others, waiters)


def test_all_are_free_when_it_is_revoked_by_force(holder: subprocess.Popen[str], others: Client) -> None:
    session = hear(holder)["session"]
    waiters = wait_for_some(others)
    assert others.revoke(session, force=True) == 0
    assert [record for record in others.list("part/") if record.resource not in WANTED] == []
    all_get_their_turn(others, waiters)


def test_all_are_free_when_its_process_was_killed(holder: subprocess.Popen[str], others: Client) -> None:
    hear(holder)
    waiters = wait_for_some(others)
    assert others.try_each(ALL, ttl=60) == {}
    holder.kill()
    all_get_their_turn(others, waiters)
