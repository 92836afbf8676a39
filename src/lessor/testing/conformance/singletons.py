"""Singletons: one call runs at a time, and the others say that they were skipped, or wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from lessor.client.lease import current_lease
from lessor.errors import ConfigError, LeaseLost
from lessor.patterns.singleton import SKIPPED
from lessor.testing.conformance.base import PATIENCE, Case, Thread, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.testing.faces import Face


class Running:
    """A call of a singleton in a thread, until it is told to end."""

    def __init__(self, face: Face, **options: Any) -> None:
        self._may_end = threading.Event()
        begun = threading.Event()

        def work() -> str:
            self.lease = current_lease()
            begun.set()
            assert self._may_end.wait(PATIENCE)
            return "done"

        self._call = Thread(face.singleton("report", work, **options))
        assert begun.wait(PATIENCE)

    def end(self) -> Any:
        self._may_end.set()
        return self._call.result()


class Singletons(Case):
    """A call runs under a lease, or not at all."""

    def test_a_call_while_another_one_runs_is_skipped(self, face: Face, other: Face) -> None:
        running = Running(face, ttl=30)
        call: Callable[[], Any] = other.singleton("report", lambda: pytest.fail("ran at the same time"), ttl=30)
        assert call() is SKIPPED
        assert not call()
        assert running.end() == "done"

    def test_it_can_be_called_again_and_again(self, face: Face, other: Face) -> None:
        tokens = [one.singleton("report", lambda: current_lease().token, ttl=30)() for one in (face, other, face)]
        assert tokens == sorted(set(tokens))

    def test_a_call_that_waits_has_its_turn(self, face: Face, other: Face) -> None:
        running = Running(face, ttl=30)
        waiting = Thread(other.singleton("report", lambda: "then me", ttl=30, wait=PATIENCE))
        until(lambda: len(face.contenders("report")) == 1, "the waiter")
        running.end()
        assert waiting.result() == "then me"

    def test_a_call_that_waits_too_long_is_skipped(self, face: Face, other: Face) -> None:
        running = Running(face, ttl=30)
        assert other.singleton("report", lambda: pytest.fail("ran at the same time"), ttl=30, wait=0.05)() is SKIPPED
        running.end()

    def test_its_lease_is_given_back_when_it_fails(self, face: Face, other: Face) -> None:
        def fail() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            face.singleton("report", fail, ttl=30)()
        assert other.try_acquire("report", ttl=30) is not None

    def test_a_call_whose_lease_is_lost_says_so(self, face: Face, other: Face) -> None:
        running = Running(face, ttl=30)
        other.revoke("report", force=True)
        until(lambda: not running.lease.held, "the word to the holder")
        with pytest.raises(LeaseLost):
            running.end()

    def test_what_should_run_once_in_a_while_is_skipped_meanwhile(self, face: Face, other: Face) -> None:
        assert face.singleton("report", lambda: "done", ttl=30, hold_at_least=30)() == "done"
        assert other.singleton("report", lambda: "again", ttl=30)() is SKIPPED

    def test_outside_there_is_no_current_lease(self, face: Face) -> None:
        assert face.singleton("report", lambda: current_lease().resource, ttl=30)() == "report"
        with pytest.raises(ConfigError):
            current_lease()
