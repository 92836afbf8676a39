"""What all cases share: the store under test, a client of it, and bounded waiting."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from lessor.core.ops import Acquire, Granted
from lessor.core.timing import Timing
from lessor.runtime.clock import SYSTEM
from lessor.testing.faces import FACES, SyncFace
from lessor.testing.faults import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lessor.core.ops import Outcome
    from lessor.stores.base import Capability, Store
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness

PATIENCE = 60.0
"""Seconds after which something that must happen is taken not to."""
LONG = 2 * PATIENCE
"""A TTL that runs out after all patience: of a lease whose end a waiter must be told of."""
NEVER_NS = 3600 * 10**9
"""How long a waiter waits for a call before it asks by itself, where a case is about the call."""


class Case:
    """The base of all cases."""

    harness: ClassVar[type[Harness]]

    @pytest.fixture
    def lab(self, tmp_path: Path) -> Iterator[Harness]:
        """Return the harness of this test."""
        lab = self.harness(tmp_path)
        yield lab
        lab.close()

    @pytest.fixture
    def store(self, lab: Harness) -> Iterator[Store]:
        """Return the store itself."""
        store = lab.open()
        yield store
        store.close()

    @pytest.fixture(params=sorted(FACES))
    def open_face(self, request: pytest.FixtureRequest) -> Iterator[Callable[[str | Store], Face]]:
        """Return what opens a client; all are closed in the end."""
        opened: list[Face] = []

        def open_face(where: str | Store) -> Face:
            face = FACES[request.param](where)
            opened.append(face)
            return face

        yield open_face
        for face in opened:
            face.close()

    @pytest.fixture
    def face(self, lab: Harness, open_face: Callable[[str | Store], Face]) -> Face:
        """Return a client."""
        return open_face(lab.url())

    @pytest.fixture
    def other(self, lab: Harness) -> Iterator[Face]:
        """Return somebody else's client."""
        face = SyncFace(lab.url())
        yield face
        face.close()

    @pytest.fixture
    def only_when_called(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let no waiter ask by itself: one that is served was called by the store."""
        monkeypatch.setattr("lessor.core.claim.REFRESH_NS", NEVER_NS)

    @pytest.fixture
    def faulty(self, store: Store) -> FaultyStore:
        """Return the store behind a bad network."""
        return FaultyStore(store)

    @pytest.fixture
    def faulty_face(self, faulty: FaultyStore, open_face: Callable[[str | Store], Face]) -> Face:
        """Return a client of the store behind a bad network."""
        return open_face(faulty)


def require(store: Store, capability: Capability) -> None:
    """Skip the case where the store doesn't promise what it is about."""
    if capability not in store.guarantees.capabilities:
        pytest.skip(f"{store.guarantees.store} doesn't declare {capability.name}")


def busily(store: Store) -> Timing:
    """Return the timing of a lease that no load can lose, and that is renewed several times a second all the same."""
    return Timing.of(60, renew_every=0.3, drift=store.guarantees.drift)


def new_id() -> str:
    """Return a lease id."""
    return os.urandom(16).hex()


def ns(seconds: float) -> int:
    """Return nanoseconds."""
    return round(seconds * 1e9)


def take(store: Store, resource: str, ttl: float, lease_id: str | None = None, **fields: Any) -> Outcome:
    """Acquire straight from the store."""
    op = Acquire(resource, lease_id or new_id(), "somebody", ns(ttl), **fields)
    return store.apply([op], timeout=PATIENCE)[0]


def taken(store: Store, resource: str, ttl: float, lease_id: str | None = None, **fields: Any) -> Granted:
    """Acquire straight from the store, which must grant it."""
    outcome = take(store, resource, ttl, lease_id, **fields)
    assert isinstance(outcome, Granted), outcome
    return outcome


def until(happened: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Look again and again, for a bounded time, until it has happened."""
    give_up = SYSTEM.now() + ns(patience)
    nap = threading.Event()
    while not happened():
        assert SYSTEM.now() < give_up, f"{what} did not happen within {patience:g} s"
        nap.wait(0.002)


def pass_time(seconds: float) -> None:
    """Let real time pass: for what has to last, never for things to settle."""
    end = SYSTEM.now() + ns(seconds)
    nap = threading.Event()
    while (left := end - SYSTEM.now()) > 0:
        nap.wait(left / 1e9)


class Thread(threading.Thread):
    """A thread whose result, or error, comes out of ``join``."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Do the work."""
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - it comes out again in the thread that waits
            self._error = error

    def result(self, patience: float = PATIENCE) -> Any:
        """Wait for the end, and return what the work returned."""
        self.join(patience)
        assert not self.is_alive(), f"still running after {patience:g} s"
        if self._error is not None:
            raise self._error
        return self._result
