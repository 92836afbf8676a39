"""One holder at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lessor.core.ops import Granted, Held
from lessor.errors import LeaseHeld
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import Case, Thread, ns, pass_time, take, taken

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.runtime.tenure import Tenure
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness


class Exclusion(Case):
    """While one holds, no other does; afterwards one other does."""

    def test_a_held_resource_is_refused_with_who_holds_it(self, face: Face, lab: Harness) -> None:
        lease = face.acquire("job", ttl=30)
        with pytest.raises(LeaseHeld) as refused:
            face.acquire("job", ttl=lab.ttl, wait=0)
        assert refused.value.holder == lease.holder
        assert refused.value.token == lease.token
        assert 0 < refused.value.remaining <= 30
        assert face.try_acquire("job", ttl=lab.ttl) is None

    def test_resources_and_namespaces_are_independent(self, face: Face, lab: Harness) -> None:
        face.acquire("a", ttl=30)
        assert face.try_acquire("b", ttl=30) is not None
        assert face.try_acquire("a/b", ttl=30) is not None

    def test_the_body_is_never_entered_without_the_lease(
        self, face: Face, lab: Harness, open_face: Callable[[str], Face]
    ) -> None:
        face.acquire("job", ttl=30)
        entered: list[Tenure] = []
        for wait in (0, lab.ttl / 5):
            with pytest.raises(LeaseHeld):
                open_face(lab.url()).within("job", entered.append, ttl=lab.ttl, wait=wait)
        assert entered == []

    def test_a_bounded_wait_ends_in_time(self, face: Face, lab: Harness, open_face: Callable[[str], Face]) -> None:
        face.acquire("job", ttl=30)
        other = open_face(lab.url())
        waiting = Thread(lambda: other.try_acquire("other", ttl=30) and other.acquire("job", ttl=30, wait=0.2))
        with pytest.raises(LeaseHeld):
            waiting.result()

    def test_threads_take_turns(self, face: Face, lab: Harness) -> None:
        """8 threads on one client, 12 turns each, on a number that only the lease protects."""
        number = [0]
        inside = threading.Lock()

        def add(_lease: object) -> None:
            assert inside.acquire(blocking=False), "two holders at once"
            number[0] += 1
            inside.release()

        def work() -> None:
            for _ in range(12):
                face.within("number", add, ttl=30)

        for thread in [Thread(work) for _ in range(8)]:
            thread.result()
        assert number == [96]

    def test_an_expired_lease_is_free_but_not_before(self, store: Store, lab: Harness) -> None:
        taken(store, "long", 30)
        granted = SYSTEM.now()
        taken(store, "job", lab.ttl)
        held = take(store, "job", lab.ttl)
        if SYSTEM.now() - granted < ns(lab.ttl):  # or it may have expired meanwhile
            assert isinstance(held, Held)
            assert 0 < held.remaining_ns <= ns(lab.ttl)
        pass_time(lab.ttl + lab.lag)
        assert isinstance(held, Granted) or isinstance(take(store, "job", lab.ttl), Granted)
        assert isinstance(take(store, "long", 30), Held)
