"""Draining: no more work is taken, what is in flight ends, and only then the resource is anybody else's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lessor.errors import Draining as NoMoreWork
from lessor.errors import LeaseLost, StillWorking
from lessor.stores.base import Capability
from lessor.testing.conformance.base import PATIENCE, Case, Thread, require, until
from lessor.testing.faces import SyncFace

if TYPE_CHECKING:
    from typing import Any

    from lessor.runtime.tenure import Tenure
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness


class InFlight:
    """A piece of work in a thread, until it is told to end."""

    def __init__(self, lease: Any) -> None:
        self._may_end = threading.Event()
        begun = threading.Event()

        def work() -> None:
            with lease.work():
                begun.set()
                assert self._may_end.wait(2 * PATIENCE)

        self._thread = Thread(work)
        assert begun.wait(PATIENCE)

    def end(self) -> None:
        self._may_end.set()
        self._thread.result()


def refuses(lease: Any) -> bool:
    """Whether the lease takes no more work."""
    try:
        with lease.work():
            return False
    except NoMoreWork:
        return True


class Draining(Case):
    """Close the intake, wait for the work, release: in that order, always."""

    def test_it_is_released_when_the_last_work_has_ended_and_not_before(self, face: Face, other: Face) -> None:
        lease = face.acquire("job", ttl=30)
        works = [InFlight(lease), InFlight(lease)]
        drain = Thread(lambda: face.drain(lease))
        until(lambda: refuses(lease), "the intake's closing")
        works[0].end()
        assert lease.held
        assert other.try_acquire("job") is None
        works[1].end()
        assert drain.result() is True
        assert other.try_acquire("job") is not None
        assert refuses(lease)

    def test_without_work_it_is_released_at_once(self, face: Face, other: Face) -> None:
        lease = face.acquire("job", ttl=30)
        assert face.drain(lease)
        assert face.drain(lease) is False
        assert other.try_acquire("job") is not None

    def test_a_drain_that_takes_too_long_keeps_the_lease_and_may_be_repeated(self, face: Face, other: Face) -> None:
        lease = face.acquire("job", ttl=30)
        work = InFlight(lease)
        with pytest.raises(StillWorking) as caught:
            face.drain(lease, 0.05)
        assert caught.value.in_flight == 1
        assert lease.held
        assert refuses(lease)
        assert other.try_acquire("job") is None
        work.end()
        assert face.drain(lease, PATIENCE)
        assert other.try_acquire("job") is not None

    def test_a_with_that_ends_under_work_in_flight_frees_nothing_before_the_ttl(
        self, face: Face, other: Face, lab: Harness
    ) -> None:
        works: list[InFlight] = []
        leases: list[Tenure] = []

        def body(lease: Tenure) -> None:
            leases.append(lease)
            works.append(InFlight(lease))

        face.within("job", body, ttl=lab.steady)
        assert not leases[0].held
        assert other.try_acquire("job") is None
        assert other.acquire("job", ttl=30, wait=PATIENCE).token > leases[0].token
        works[0].end()

    def test_a_drain_waits_for_the_work_of_all_that_stand_under_it(self, face: Face, other: Face) -> None:
        master = face.acquire("all", ttl=30)
        part = face.acquire("all/part", ttl=20, parent=master)
        piece = face.acquire("all/part/piece", ttl=10, parent=part)
        works = [InFlight(part), InFlight(piece)]
        drain = Thread(lambda: face.drain(master))
        until(lambda: refuses(master), "the intake's closing")
        late = face.acquire("all/late", ttl=10, parent=master)
        assert [refuses(lease) for lease in (part, piece, late)] == [True] * 3
        works[0].end()
        with pytest.raises(StillWorking) as caught:
            face.drain(master, 0)
        assert caught.value.in_flight == 1
        assert [lease.held for lease in (master, part, piece)] == [True] * 3
        assert [other.try_acquire(lease.resource) for lease in (master, part, piece)] == [None] * 3
        works[1].end()
        assert drain.result() is True
        assert [lease.held for lease in (master, part, piece)] == [False] * 3

    def test_a_drain_of_what_stands_under_it_leaves_the_rest_at_work(self, face: Face) -> None:
        master = face.acquire("all", ttl=30)
        part, rest = (face.acquire(name, ttl=20, parent=master) for name in ("part", "rest"))
        work = InFlight(rest)
        assert face.drain(part, PATIENCE) is True
        assert [refuses(lease) for lease in (master, rest)] == [False, False]
        work.end()

    def test_a_session_is_drained_with_all_that_is_held_under_it(self, face: Face, other: Face, store: Store) -> None:
        require(store, Capability.SESSIONS)
        session = face.result(face.client.session(ttl=30))
        lease = face.result(session.acquire("job"))
        work = InFlight(lease)
        with pytest.raises(StillWorking):
            face.drain(session.lease, 0.05)
        assert refuses(lease)
        assert other.try_acquire("job") is None
        work.end()
        assert face.drain(session.lease, PATIENCE) is True
        assert other.try_acquire("job") is not None

    def test_a_session_that_ends_under_work_below_it_frees_nothing_before_the_ttl(
        self, face: Face, other: Face, store: Store, lab: Harness
    ) -> None:
        require(store, Capability.SESSIONS)
        works: list[InFlight] = []

        def body(session: Any) -> None:
            works.append(InFlight(face.result(session.acquire("job"))))

        face.inside(face.client.session(ttl=lab.steady), body)
        assert other.try_acquire("job") is None
        other.acquire("job", ttl=30, wait=PATIENCE)
        works[0].end()

    def test_of_several_those_at_work_are_kept_and_the_others_freed(
        self, face: Face, other: Face, lab: Harness
    ) -> None:
        works: list[InFlight] = []
        face.inside(
            face.client.acquire_all(["a", "b"], ttl=lab.steady), lambda bundle: works.append(InFlight(bundle["a"]))
        )
        assert other.try_acquire("b") is not None
        assert other.try_acquire("a") is None
        other.acquire("a", ttl=30, wait=PATIENCE)
        works[0].end()

    def test_a_client_that_is_closed_frees_nothing_that_is_at_work(self, face: Face, other: Face, lab: Harness) -> None:
        ttl = lab.steady
        master, idle = face.acquire("master", ttl=ttl), face.acquire("idle", ttl=ttl)
        part = face.acquire("part", ttl=ttl, parent=master)
        work = InFlight(part)
        face.result(face.client.close())
        assert (part.held, master.held, idle.held) == (False, False, False)
        assert other.try_acquire("idle") is not None
        assert other.try_acquire("part") is None
        other.acquire("part", ttl=30, wait=PATIENCE)
        work.end()

    def test_a_lost_lease_takes_no_work(self, face: Face, other: Face) -> None:
        lease: Any = face.acquire("job", ttl=30)
        other.revoke("job", force=True)
        assert face.wait_lost(lease, PATIENCE)
        with pytest.raises(LeaseLost), lease.work():
            raise AssertionError("it took work")
        assert face.drain(lease, PATIENCE) is False

    def test_what_is_handed_over_is_asked_for_when_the_work_has_ended(
        self, face: Face, lab: Harness, store: Store
    ) -> None:
        require(store, Capability.HANDOVER)
        lease = face.acquire("job", ttl=30)
        work = InFlight(lease)
        done: list[str] = []
        drain = Thread(lambda: face.drain(lease, PATIENCE, to="heir", state=lambda: ",".join(done).encode()))
        until(lambda: refuses(lease), "the intake's closing")
        done.append("this too")
        work.end()
        assert drain.result()
        heir = SyncFace(lab.url(), holder="heir")
        try:
            assert heir.acquire("job", ttl=30).inherited == b"this too"
        finally:
            heir.close()
