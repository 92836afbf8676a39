"""A session with thousands of leases: one renewal keeps them, and all are free when it ends, by death or by release.

Short runs are for every day; ``make chaos`` has 10,000 leases, and is about time.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

from lessor import Client
from lessor.testing.conformance.base import Thread, until
from tests.measured import kind_of, note
from tests.patterns.processes import end, hear, hold_session, start, tell
from tests.scale import scaled

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(300)

TTL = 6.0
LONG = 12.0
"""A TTL that is long enough, on a busy machine too, to ask for all of them before it ends."""
FREE_AFTER = 0.2


class Holder:
    """A process that holds the session, and another client that wants all that stands under it."""

    def __init__(self, url: str, children: int, ttl: float, process: subprocess.Popen[str], others: Client) -> None:
        self.url, self.children, self.ttl, self.process, self.others = url, children, ttl, process, others
        self.names = [f"part/{number}" for number in range(children)]
        self.begun: dict[str, Any] = hear(process)
        self.session: str = self.begun["session"]

    def calls(self) -> Any:
        tell(self.process, "calls?")
        return hear(self.process)

    def expiry(self) -> tuple[float, float]:
        """Return between which times on our clock the session expires, as the store says."""
        before = time.monotonic()
        record = self.others.get(self.session)
        assert record is not None
        return before + record.remaining, time.monotonic() + record.remaining


@pytest.fixture
def holder(url: str, request: pytest.FixtureRequest) -> Iterator[Holder]:
    children, ttl = request.node.get_closest_marker("children").args
    process = start(hold_session.__name__, url, children, ttl)
    try:
        with Client(url) as others:
            yield Holder(url, children, ttl, process, others)
    finally:
        end(process)


def _renewals(client: Client, resource: str) -> int:
    record = client.get(resource)
    return record.renewals if record else 0


def hold_then_die(holder: Holder) -> dict[str, Any]:
    """Let the session be renewed for a while, kill its process, and see when its leases are free."""
    others, names = holder.others, holder.names
    before, began = others.get(holder.session), time.monotonic()
    assert before is not None
    until(lambda: _renewals(others, holder.session) > before.renewals, "a renewal", 2 * holder.ttl)
    later, after = holder.calls(), others.get(holder.session)
    assert after is not None
    periods = (time.monotonic() - began) / (holder.ttl / 3)
    renewals, calls = after.renewals - before.renewals, later["calls"] - holder.begun["calls"]
    assert later["held"] == holder.children
    assert 1 <= renewals <= periods * 1.25 + 1
    assert calls <= periods * 1.25 + 2, "something besides the renewal was sent"
    assert all(record is not None and record.renewals == 0 for record in others.get_each(names))

    holder.process.kill()
    holder.process.wait()
    earliest, latest = holder.expiry()
    taken = others.try_each(names, ttl=60)
    early = 0 if time.monotonic() >= earliest else len(taken)
    names = [name for name in names if name not in taken]
    first = random.choice(names)
    others.acquire(first, ttl=60, wait=2 * holder.ttl)
    waited = time.monotonic()
    # The nodes of a cluster count on clocks of their own, each from when it was asked.
    assert waited > earliest - holder.ttl / 100, "somebody was let in before the session had ended"
    time.sleep(max(0.0, latest + FREE_AFTER - time.monotonic()))
    held = {record.resource for record in others.list("part/")} & ({*names} - {first})
    got = others.try_each([name for name in names if name != first], ttl=60)
    return {
        "children": holder.children,
        "taken_s": holder.begun["seconds"],
        "renewals": renewals,
        "periods": periods,
        "calls": calls,
        "early": early,
        "waiter_ms": 1000 * (waited - latest),
        "held_at_200": len(held),
        "got": len(got) + 1 + len(taken),
    }


class Bystander:
    """A client that asks for something else all the time, and notes how long the longest answer took."""

    def __init__(self, url: str) -> None:
        self.longest = 0.0
        self._url, self._over = url, threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        with Client(self._url) as client:
            while not self._over.wait(0.001):
                began = time.monotonic()
                with client.acquire("other", ttl=30):
                    pass
                self.longest = max(self.longest, time.monotonic() - began)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def hold_then_release(holder: Holder) -> dict[str, Any]:
    """Let somebody wait for one of the leases, and release the session."""
    others, names = holder.others, holder.names
    wanted = random.choice(names)

    def wait() -> float:
        with others.acquire(wanted, ttl=60):
            return time.monotonic()

    waiter = Thread(wait)
    while not others.contenders(wanted):
        time.sleep(0.01)
    with Bystander(holder.url) as bystander:
        time.sleep(0.2)
        bystander.longest = 0.0
        released = time.monotonic()
        tell(holder.process, "release")
        took = hear(holder.process)["seconds"]
        held = [record.resource for record in others.list("part/") if record.resource != wanted]
        got_at = waiter.result()
    assert len(others.try_each(names, ttl=60)) == holder.children
    return {
        "release_ms": 1000 * took,
        "stall_ms": 1000 * bystander.longest,
        "release_waiter_ms": 1000 * (got_at - released),
        "free": len(held),
    }


@pytest.mark.children(scaled(10_000), LONG)
@pytest.mark.parametrize("url", ["sqlite", "redis", "postgresql", "paxos"], indirect=True)
def test_all_leases_of_a_killed_holder_are_free(holder: Holder) -> None:
    seen = hold_then_die(holder)
    assert (seen["early"], seen["got"]) == (0, holder.children)


@pytest.mark.children(scaled(10_000), LONG)
@pytest.mark.parametrize("url", ["sqlite", "redis", "postgresql", "paxos"], indirect=True)
def test_all_leases_of_a_released_session_are_free(holder: Holder) -> None:
    seen = hold_then_release(holder)
    assert seen["free"] == 0


@pytest.mark.chaos
@pytest.mark.children(10_000, TTL)
@pytest.mark.parametrize("url", ["sqlite", "redis", "postgresql", "paxos"], indirect=True)
def test_ten_thousand_leases_of_a_killed_holder(holder: Holder) -> None:
    seen = hold_then_die(holder)
    note("session", kind_of(holder.url), **seen)
    assert holder.begun["calls"] <= 1 + holder.children / 1000 + 2 * holder.begun["seconds"] / TTL * 3
    assert (seen["early"], seen["held_at_200"], seen["got"]) == (0, 0, holder.children)
    assert seen["waiter_ms"] < 1000 * FREE_AFTER


@pytest.mark.chaos
@pytest.mark.children(10_000, TTL)
@pytest.mark.parametrize("url", ["sqlite", "redis", "postgresql", "paxos"], indirect=True)
def test_ten_thousand_leases_of_a_released_session(holder: Holder) -> None:
    seen = hold_then_release(holder)
    note("session", kind_of(holder.url), **seen)
    assert seen["free"] == 0
