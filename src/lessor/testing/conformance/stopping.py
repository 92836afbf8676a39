"""A wait ends when it is told to, by its cancellation or by the end of its client, and leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from lessor.core.ops import Acquire
from lessor.errors import Cancelled, Closed
from lessor.runtime.cancellation import Cancellation
from lessor.testing.conformance.base import PATIENCE, Case, Thread, until
from lessor.testing.conformance.waiting import queue_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore


def _acquire(face: Face, cancel: Cancellation | None) -> Any:
    return face.acquire("job/0", ttl=30, cancel=cancel)


def _place(face: Face, cancel: Cancellation | None) -> Any:
    return face.wait(face.enqueue("job/0", ttl=30, cancel=cancel), PATIENCE)


def _any(face: Face, cancel: Cancellation | None) -> Any:
    held = face.client.places(["job/0"], ttl=30)
    cancelled = face.client.places(["job/1"], ttl=30, cancel=cancel)
    return face.result(face.client.wait_any([*held, *cancelled], PATIENCE))


def _all(face: Face, cancel: Cancellation | None) -> Any:
    return face.result(face.client.acquire_all(["job/0", "job/1"], ttl=30, cancel=cancel))


def _semaphore(face: Face, cancel: Cancellation | None) -> Any:
    return face.result(face.client.semaphore("job", slots=2).acquire(ttl=30, cancel=cancel))


def _campaign(face: Face, cancel: Cancellation | None) -> Any:
    return face.campaign("job/0", lambda _: None, terms=1, cancel=cancel)


WAITS: Final = {
    "acquire": _acquire,
    "place.wait": _place,
    "wait_any": _any,
    "acquire_all": _all,
    "semaphore": _semaphore,
    "campaign": _campaign,
}


class Stopping(Case):
    """Cancelled, or closed."""

    @pytest.fixture(params=sorted(WAITS))
    def wait(self, request: pytest.FixtureRequest) -> Callable[[Face, Cancellation | None], Any]:
        """Return each way to wait for what another client holds."""
        return WAITS[request.param]

    def test_a_wait_can_be_cancelled(
        self, face: Face, other: Face, wait: Callable[[Face, Cancellation | None], Any]
    ) -> None:
        leases = [other.acquire(f"job/{number}", ttl=30) for number in range(2)]
        cancel = Cancellation()
        waiting = Thread(lambda: wait(face, cancel))
        until(lambda: queue_length(other, "job/0") == 1, "the waiter")
        cancel.cancel()
        with pytest.raises(Cancelled):
            waiting.result()
        assert cancel.cancelled
        until(lambda: queue_length(other, "job/0") == 0, "the end of its place in the queue")
        for lease in leases:
            other.release(lease)
            other.release(other.acquire(lease.resource, ttl=30, wait=PATIENCE))

    def test_a_cancelled_wait_asks_for_nothing(
        self, faulty: FaultyStore, faulty_face: Face, wait: Callable[[Face, Cancellation | None], Any]
    ) -> None:
        """Cancelled before it began; whether the resource is free makes no difference."""
        cancel = Cancellation()
        cancel.cancel()
        with pytest.raises(Cancelled):
            wait(faulty_face, cancel)
        assert not [op for ops in faulty.calls for op in ops if isinstance(op, Acquire)]

    def test_one_cancellation_ends_all_waits_and_no_lease(self, face: Face, other: Face) -> None:
        lease = other.acquire("job/0", ttl=30)
        cancel = Cancellation()
        mine = face.acquire("mine", ttl=30, cancel=cancel)
        waiting = [Thread(lambda: face.acquire("job/0", ttl=30, cancel=cancel)) for _ in range(3)]
        unharmed = Thread(lambda: face.acquire("job/0", ttl=30, cancel=Cancellation()))
        until(lambda: queue_length(other, "job/0") == 4, "the waiters")
        cancel.cancel()
        for thread in waiting:
            with pytest.raises(Cancelled):
                thread.result()
        mine.check()
        other.release(lease)
        unharmed.result().check()

    def test_a_wait_ends_when_its_client_is_closed(
        self, face: Face, other: Face, wait: Callable[[Face, Cancellation | None], Any]
    ) -> None:
        other.acquire("job/0", ttl=30)
        other.acquire("job/1", ttl=30)
        waiting = Thread(lambda: wait(face, None))
        until(lambda: queue_length(other, "job/0") == 1, "the waiter")
        face.result(face.client.close())
        with pytest.raises(Closed):
            waiting.result()
        with pytest.raises(Closed):
            wait(face, None)
        until(lambda: queue_length(other, "job/0") == 0, "the end of its place in the queue")
