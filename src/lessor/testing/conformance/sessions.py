"""Sessions and subleases: one renewal keeps all, one loss loses all, and each can be ended by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.ops import Acquire, Renew
from lessor.errors import ConfigError, LeaseHeld, LeaseLost
from lessor.stores.base import Capability
from lessor.testing.child import Child
from lessor.testing.conformance.base import PATIENCE, Case, require, until

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness


class Sessions(Case):
    """A lease that carries others."""

    def test_a_session_ends_with_all_that_was_acquired_through_it(self, face: Face, other: Face, store: Store) -> None:
        require(store, Capability.SESSIONS)

        def body(session: Any) -> None:
            leases = [face.result(session.acquire(name)) for name in ("a", "b")]
            assert set(session.leases) == set(leases)
            for name in ("a", "b"):
                assert other.try_acquire(name, ttl=30) is None

        face.inside(face.client.session(ttl=30), body)
        for name in ("a", "b"):
            assert other.try_acquire(name, ttl=30) is not None
        assert face.list("session/") == []

    def test_a_lease_of_a_session_is_released_by_itself(self, face: Face, other: Face, store: Store) -> None:
        require(store, Capability.SESSIONS)
        session = face.result(face.client.session(ttl=30))
        first, second = (face.result(session.acquire(name)) for name in ("a", "b"))
        assert face.release(first)
        assert other.try_acquire("a", ttl=30) is not None
        assert face.result(session.try_acquire("a")) is None
        session.check()
        second.check()
        assert session.leases == (second,)
        assert face.result(session.release())
        assert (session.held, second.held) == (False, False)

    def test_many_are_taken_in_batches_and_one_renewal_keeps_them(
        self, faulty: FaultyStore, faulty_face: Face, lab: Harness
    ) -> None:
        require(faulty, Capability.SESSIONS)
        ttl = 2 * lab.steady
        session = faulty_face.result(faulty_face.client.session(ttl=ttl))
        names = [f"part/{number:04}" for number in range(300)]
        bundle = faulty_face.result(session.acquire_all(names))
        assert sorted(bundle.tokens) == names
        batches = [ops for ops in faulty.calls if any(isinstance(op, Acquire) and op.parent for op in ops)]
        assert len(batches) == -(-len(names) // faulty.guarantees.max_batch)
        until(lambda: any(isinstance(op, Renew) for ops in list(faulty.calls) for op in ops), "a renewal")
        bundle.check()
        assert {op.resource for ops in faulty.calls for op in ops if isinstance(op, Renew)} == {session.lease.resource}
        faulty_face.result(session.release())
        assert not bundle.held
        assert faulty_face.list("part/") == []

    def test_a_lost_session_comes_out_of_the_body(self, face: Face, other: Face, store: Store, lab: Harness) -> None:
        require(store, Capability.SESSIONS)

        def body(session: Any) -> None:
            lease = face.result(session.acquire("a"))
            other.revoke(session.lease.resource, force=True)
            until(lambda: not lease.held, "the loss")

        with pytest.raises(LeaseLost):
            face.inside(face.client.session(ttl=lab.steady), body)
        assert face.list() == []

    def test_a_session_where_the_store_cant_carry_any_is_refused(self, face: Face, store: Store) -> None:
        if Capability.SESSIONS in store.guarantees.capabilities:
            pytest.skip("it can")
        with pytest.raises(ConfigError, match="carry leases along"):
            face.result(face.client.session(ttl=30))

    def test_three_levels_each_shorter_than_the_one_above(self, face: Face, other: Face, lab: Harness) -> None:
        master = face.acquire("master", ttl=30)
        part = face.acquire("master/a", ttl=20, parent=master)
        piece = face.acquire("master/a/b", ttl=10, parent=part)
        assert [lease.timing.ttl_ns / 1e9 for lease in (master, part, piece)] == [30, 20, 10]
        face.release(master)
        for lease in (part, piece):
            assert (lease.held, lease.loss) == (False, "parent")
            other.acquire(lease.resource, ttl=30, wait=0)

    def test_cycles_and_dead_parents_are_refused(self, face: Face) -> None:
        master = face.acquire("master", ttl=30)
        part = face.acquire("part", ttl=20, parent=master)
        for name in ("master", "part"):
            with pytest.raises(ConfigError, match="can't stand under 'part'"):
                face.acquire(name, ttl=10, parent=part)
        face.release(master)
        for parent in (master, part):
            with pytest.raises(LeaseLost):
                face.acquire("late", ttl=10, parent=parent)
        assert face.get("late") is None

    def test_the_session_of_a_killed_holder_in_processes(self, face: Face, store: Store, lab: Harness) -> None:
        require(store, Capability.SESSIONS)
        names = [f"part/{number}" for number in range(30)]
        with Child(lab.url()) as child:
            session = child.ask("session", ttl=lab.steady, resources=names)["resource"]
            child.kill()
            with pytest.raises(LeaseHeld):
                face.acquire("part/7", ttl=lab.ttl, wait=0)
            until(lambda: face.get(session) is None, "the end of the session")
            bundle = face.result(face.client.acquire_all(names, ttl=30, wait=PATIENCE))
        assert len(bundle) == len(names)

    def test_the_session_of_a_stopped_holder_in_processes(self, face: Face, store: Store, lab: Harness) -> None:
        require(store, Capability.SESSIONS)
        with Child(lab.url()) as child:
            answer = child.ask("session", ttl=lab.ttl, resources=["a", "b"])
            child.ask("freeze_threads")
            child.stop()
            newer = face.acquire("a", ttl=60, wait=PATIENCE)
            assert newer.token > answer["tokens"]["a"]
            child.resume()
            for name in ("a", "b"):
                assert child.ask("check", resource=name)["error"] == "LeaseLost"
            newer.check()
