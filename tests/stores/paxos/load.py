"""Holders that take turns, without end, and remember when each believed to have what: for tests that break things."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING, NamedTuple

from lessor import Client
from lessor.errors import LessorError
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import Thread, until

if TYPE_CHECKING:
    from typing import Self

RESOURCES = ("a", "b")


class Turn(NamedTuple):
    """One holder's belief, by the host's clock."""

    since_ns: int
    until_ns: int
    """When it last found the lease safe."""
    token: int


class Load:
    """Some clients, each with connections of its own, that want the same few things."""

    def __init__(self, url: str, clients: int = 4, ttl: float = 1.0) -> None:
        self._url = url
        self._clients = clients
        self._ttl = ttl
        self._stop = threading.Event()
        self.turns: dict[str, list[Turn]] = {name: [] for name in RESOURCES}

    def __enter__(self) -> Self:
        self._threads = [Thread(lambda at=at: self._work(RESOURCES[at % 2])) for at in range(self._clients)]  # type: ignore[misc]
        self.goes_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.result(60)

    def goes_on(self, patience: float = 30.0) -> None:
        """Wait until each resource has had two more holders."""
        before = {name: len(turns) for name, turns in self.turns.items()}
        until(
            lambda: all(len(turns) >= before[name] + 2 for name, turns in self.turns.items()),
            "a turn of somebody else",
            patience,
        )

    def check(self) -> int:
        """Check that no two beliefs overlap, and that tokens increase; return how many turns there were."""
        for turns in self.turns.values():
            turns.sort()
            for earlier, later in itertools.pairwise(turns):
                assert earlier.until_ns < later.since_ns, f"two holders at once: {earlier}, {later}"
                assert earlier.token < later.token, f"a token that isn't higher: {earlier}, {later}"
        return sum(map(len, self.turns.values()))

    def _work(self, resource: str) -> None:
        with Client(self._url, timeout=2) as client:
            while not self._stop.is_set():
                with contextlib.suppress(LessorError):
                    self._take_turn(client, resource)

    def _take_turn(self, client: Client, resource: str) -> None:
        with client.acquire(resource, ttl=self._ttl, wait=5) as lease:
            since = until_ns = SYSTEM.host_ns()
            for _ in range(3):
                self._stop.wait(0.002)
                before = SYSTEM.host_ns()
                if lease.remaining > 0:
                    until_ns = before
            self.turns[resource].append(Turn(since, until_ns, lease.token))
