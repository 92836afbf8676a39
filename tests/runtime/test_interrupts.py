"""Ctrl-C at any instruction: the client goes on working, and leaves nothing in the store that nobody was handed."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lessor import LeaseHeld
from lessor.client.place import BasePlace
from lessor.client.sync import Place
from lessor.core.ops import Loss
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import PATIENCE, ns, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor import Client

INTERRUPTS = 300
ROUNDS = 4000
LONGEST = 6.0
"""Seconds after which enough has been tried, on however slow a machine."""
TTL = 2.0
"""Short, since a lease that an interrupt took from the program is given back in place of its next renewal."""


class Interrupts:
    """Raises KeyboardInterrupt in the main thread, a moment after it was set."""

    def __init__(self) -> None:
        self.came = 0
        self._armed = False

    def handle(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            self.came += 1
            raise KeyboardInterrupt

    def interrupt(self, work: Callable[[], object], seconds: float, *, swallow: bool = True) -> None:
        """Do the work, and interrupt it after so many seconds if it lasts that long."""
        try:
            try:
                self._armed = True
                signal.setitimer(signal.ITIMER_REAL, seconds)
                work()
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            if not swallow:
                raise


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    source = Interrupts()
    before = signal.signal(signal.SIGALRM, source.handle)
    yield source
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def in_a_with(client: Client, name: str) -> None:
    with client.acquire(name, ttl=TTL, wait=0):
        pass


def by_calls(client: Client, name: str) -> None:
    client.acquire(name, ttl=TTL, wait=0).release()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one may fall into a weakref's callback
@pytest.mark.parametrize("way", [in_a_with, by_calls])
def test_interrupts_at_random_points_leave_a_working_client_and_nothing_else(
    client: Client, other: Client, interrupts: Interrupts, way: Callable[[Client, str], None]
) -> None:
    client.acquire("r", ttl=60).release()  # what the first use opens is opened
    end = SYSTEM.now() + ns(LONGEST)
    for n in range(ROUNDS):
        if interrupts.came >= INTERRUPTS or SYSTEM.now() > end:
            break
        with contextlib.suppress(LeaseHeld):
            interrupts.interrupt(partial(way, client, f"r{n % 50}"), random.uniform(5e-6, 6e-4))
    assert interrupts.came >= INTERRUPTS / 3, "too few to tell"

    client.acquire("afterwards", ttl=60, wait=PATIENCE).release()
    until(lambda: other.list() == [], "all being given back")
    until(lambda: client._engine.leases() == [], "all being let go of")


def test_several_that_were_granted_when_the_interrupt_came_are_given_back(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last answer, and before they are handed out."""
    look: Callable[[Place], object] = Place.lease.fget  # type: ignore[attr-defined]
    interrupted: list[Place] = []

    def interrupt(place: Place) -> object:
        if not interrupted:
            interrupted.append(place)
            raise KeyboardInterrupt
        return look(place)

    monkeypatch.setattr(BasePlace, "lease", property(interrupt))
    with pytest.raises(KeyboardInterrupt):
        client.try_each(["a", "b"], ttl=60)
    until(lambda: other.list() == [], "both being given back")
    assert client._engine.held == {}


@pytest.mark.parametrize("step", ["see_off", "_close_watches", "_release_all"])
def test_an_interrupted_close_closes_all_the_same(
    client: Client, other: Client, interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    engine = client._engine
    leases = [client.acquire(name, ttl=60) for name in ("a", "b")]
    stream = client.watch()
    owner = engine.waiters if step == "see_off" else engine
    interrupted: list[str] = []

    def wait_for_ever(*_: object) -> None:
        try:
            time.sleep(60)
        finally:
            interrupted.append(step)

    monkeypatch.setattr(owner, step, wait_for_ever)
    with pytest.raises(KeyboardInterrupt):
        interrupts.interrupt(client.close, 0.2, swallow=False)
    assert interrupted == [step]
    assert engine.keeper._closed
    assert engine.batcher._closed
    assert step == "_close_watches" or list(stream) == []
    if step != "_release_all":
        assert [lease.loss for lease in leases] == [Loss.CLOSED] * 2
        assert other.list() == []
    client.close()  # a second time is none
    stream.close()
