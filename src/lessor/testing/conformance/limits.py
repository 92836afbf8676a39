"""Soft limits, grace, lock delay and minimum hold: what a holder may ask for besides its TTL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.holder import State
from lessor.core.ops import Acquire, Granted, Held, Loss, Lost, Release, Released, Renew, Renewed, Revoke
from lessor.errors import LeaseHeld, LeaseLost
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Capability
from lessor.testing.conformance.base import PATIENCE, Case, new_id, ns, pass_time, require, take, taken, until
from lessor.testing.conformance.renewing import renew

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness


class Limits(Case):
    """Beyond the TTL."""

    def test_a_challenger_ends_what_is_held_beyond_its_soft_limit(self, store: Store, lab: Harness) -> None:
        """As a revocation does: the resource is free at the expiry already promised, and not before."""
        require(store, Capability.RECOVER)
        lease_id = new_id()
        token = taken(store, "job", lab.steady, lease_id, soft_ns=ns(0.01)).token
        pass_time(0.02)
        assert isinstance(renew(store, "job", lease_id, token, lab.steady), Renewed)
        assert isinstance(take(store, "job", 30), Held)
        assert isinstance(renew(store, "job", lease_id, token, lab.steady), Renewed)
        answer = take(store, "job", 30, recover=True)
        assert isinstance(answer, Held)
        assert 0 < answer.remaining_ns <= ns(lab.steady)
        refused = renew(store, "job", lease_id, token, lab.steady)
        assert isinstance(refused, Lost)
        assert refused.reason is Loss.REVOKED
        assert 0 < refused.remaining_ns <= answer.remaining_ns
        record = store.read(["job"], timeout=PATIENCE)[0]
        assert record is not None
        assert record.revoked
        pass_time(answer.remaining_ns / 1e9 + lab.lag)
        taken(store, "job", lab.ttl)

    def test_a_challenger_waits_for_what_is_within_its_soft_limit(self, store: Store) -> None:
        require(store, Capability.RECOVER)
        within, without = new_id(), new_id()
        tokens = [taken(store, "a", 30, within, soft_ns=ns(20)).token, taken(store, "b", 30, without).token]
        for name in ("a", "b"):
            assert isinstance(take(store, name, 30, recover=True), Held)
        assert isinstance(renew(store, "a", within, tokens[0], 30), Renewed)
        assert isinstance(renew(store, "b", without, tokens[1], 30), Renewed)

    def test_within_the_grace_its_owner_gets_back_what_nobody_wanted(self, store: Store, lab: Harness) -> None:
        require(store, Capability.GRACE)
        lease_id = new_id()
        token = taken(store, "job", lab.ttl, lease_id, grace_ns=ns(30)).token
        pass_time(lab.ttl + lab.lag)
        assert isinstance(renew(store, "job", lease_id, token, 30), Renewed)
        record = store.read(["job"], timeout=PATIENCE)[0]
        assert record is not None
        assert record.token == token
        assert isinstance(take(store, "job", 30), Held)

    def test_the_grace_keeps_nobody_out(self, store: Store, lab: Harness) -> None:
        lease_id = new_id()
        token = taken(store, "job", lab.ttl, lease_id, grace_ns=ns(30)).token
        pass_time(lab.ttl + lab.lag)
        taken(store, "job", 30)
        assert renew(store, "job", lease_id, token, 30) == Lost(Loss.TAKEN)

    def test_the_lock_delay_follows_an_expiry(self, store: Store, lab: Harness) -> None:
        for name, delay in (("long", 30.0), ("short", lab.ttl)):
            taken(store, name, lab.ttl, lock_delay_ns=ns(delay))
        pass_time(lab.ttl + lab.lag)
        assert isinstance(take(store, "long", 30), Held)
        until(lambda: isinstance(take(store, "short", 30), Granted), "the end of the delay")

    @pytest.mark.parametrize("force", [False, True], ids=["release", "revocation by force"])
    def test_the_end_of_a_parent_leaves_the_lock_delay_of_what_expired_under_it(
        self, store: Store, lab: Harness, *, force: bool
    ) -> None:
        above = new_id()
        parent = taken(store, "group", 30, above)
        taken(store, "job", lab.ttl, parent=("group", parent.token), lock_delay_ns=ns(30))
        pass_time(lab.ttl + lab.lag)
        store.apply([Revoke("group", force=True) if force else Release("group", above)], timeout=PATIENCE)
        assert isinstance(take(store, "job", 30), Held)

    def test_the_lock_delay_follows_the_expiry_of_a_parent(self, store: Store, lab: Harness) -> None:
        parent = taken(store, "group", lab.ttl)
        taken(store, "job", 30, parent=("group", parent.token), lock_delay_ns=ns(30))
        taken(store, "rider", 0, parent=("group", parent.token), lock_delay_ns=ns(30))
        pass_time(lab.ttl + lab.lag)
        assert isinstance(take(store, "job", 30), Held)
        assert isinstance(take(store, "rider", 30), Held)

    def test_the_lock_delay_does_not_follow_a_release(self, store: Store) -> None:
        lease_id = new_id()
        taken(store, "job", 30, lease_id, lock_delay_ns=ns(30))
        store.apply([Release("job", lease_id)], timeout=PATIENCE)
        taken(store, "job", 30)

    def test_a_release_before_the_minimum_hold_frees_it_then(self, store: Store, lab: Harness) -> None:
        for name, seconds in (("long", 30.0), ("short", lab.ttl)):
            lease_id = new_id()
            taken(store, name, 30, lease_id, hold_at_least_ns=ns(seconds))
            released = store.apply([Release(name, lease_id)], timeout=PATIENCE)[0]
            assert isinstance(released, Released)
            assert 0 <= released.free_in_ns <= ns(seconds + 1)
        assert isinstance(take(store, "long", 30), Held)
        until(lambda: isinstance(take(store, "short", 30), Granted), "the end of the minimum hold")

    def test_special_wishes_are_carried_out_in_a_batch_too(self, store: Store) -> None:
        ops = [Acquire(f"job/{i}", new_id(), "somebody", ns(30), lock_delay_ns=ns(1), soft_ns=ns(9)) for i in range(3)]
        assert all(isinstance(outcome, Granted) for outcome in store.apply(ops, timeout=PATIENCE))
        assert [r and r.soft_ns for r in store.read([op.resource for op in ops], timeout=PATIENCE)] == [ns(9)] * 3

    def test_the_holder_is_told_by_a_challenger_and_keeps_it_until_the_promised_expiry(
        self, face: Face, store: Store, lab: Harness
    ) -> None:
        require(store, Capability.RECOVER)
        told: list[object] = []
        lease = face.acquire("job", ttl=lab.steady, soft=0.05)
        lease.on_jeopardy(told.append)
        pass_time(0.1)
        with pytest.raises(LeaseHeld):
            face.acquire("job", ttl=lab.steady, wait=0, recover=True)
        until(lambda: bool(told), "the word to the holder")
        lease.check()
        assert lease.ending == "revoked"
        newer = face.acquire("job", ttl=30, recover=True)
        assert newer.token > lease.token
        assert lease.loss == "revoked"

    def test_a_holder_within_its_grace_is_stopped_and_comes_back(
        self, faulty: FaultyStore, faulty_face: Face, lab: Harness
    ) -> None:
        require(faulty, Capability.GRACE)
        told: list[str] = []
        faulty.matching = lambda op: isinstance(op, Renew)
        faulty.lost_requests = 10**9
        lease = faulty_face.acquire("job", ttl=lab.steady / 2, grace=60)
        lease.on_jeopardy(lambda _: told.append("jeopardy"))
        lease.on_safe(lambda _: told.append("safe"))
        lease.on_lost(lambda _: told.append("lost"))
        until(lambda: not lease.held, "the deadline")
        assert (lease.state, lease.loss, lease.remaining) == (State.JEOPARDY, None, 0)
        with pytest.raises(LeaseLost) as caught:
            lease.check()
        assert caught.value.reason == "expired"
        assert not faulty_face.wait_lost(lease, lab.ttl + lab.lag)
        faulty.lost_requests = 0
        until(lambda: lease.held, "a renewal within the grace")
        lease.check()
        record = faulty_face.get("job")
        assert record is not None
        assert record.token == lease.token
        until(lambda: told[:3] == ["jeopardy", "jeopardy", "safe"], f"what was told, and not {told}")

    def test_the_grace_ends(self, faulty: FaultyStore, faulty_face: Face, lab: Harness) -> None:
        require(faulty, Capability.GRACE)
        faulty.matching = lambda op: isinstance(op, Renew)
        faulty.lost_requests = 10**9
        lease = faulty_face.acquire("job", ttl=lab.ttl, grace=lab.ttl)
        assert faulty_face.wait_lost(lease, PATIENCE)
        assert lease.loss == "expired"

    def test_what_was_taken_within_the_grace_is_lost(
        self, faulty: FaultyStore, faulty_face: Face, store: Store, lab: Harness
    ) -> None:
        require(faulty, Capability.GRACE)
        faulty.matching = lambda op: isinstance(op, Renew)
        faulty.lost_requests = 10**9
        lease = faulty_face.acquire("job", ttl=lab.ttl, grace=60)
        until(lambda: isinstance(take(store, "job", 30), Granted), "somebody else's turn")
        assert not lease.held
        faulty.lost_requests = 0
        assert faulty_face.wait_lost(lease, PATIENCE)
        assert lease.loss == "taken"

    def test_a_minimum_hold_keeps_others_out_after_the_release(self, face: Face, other: Face, lab: Harness) -> None:
        lease = face.acquire("job", ttl=30, hold_at_least=lab.steady / 2)
        asked = SYSTEM.now()
        assert face.release(lease)
        assert not lease.held
        assert other.try_acquire("job", ttl=30) is None
        newer = other.acquire("job", ttl=30, wait=PATIENCE)
        assert newer.token > lease.token
        assert SYSTEM.now() - asked > ns(lab.steady / 4)

    def test_a_lock_delay_keeps_others_out_after_the_expiry(self, face: Face, other: Face, lab: Harness) -> None:
        lease = face.acquire("job", ttl=lab.ttl, max_hold=lab.ttl, lock_delay=lab.steady)
        assert face.wait_lost(lease, PATIENCE)
        lost = SYSTEM.now()  # others may see it for longer: some stores don't tell an expiry from a delay
        assert other.try_acquire("job", ttl=30) is None
        assert other.acquire("job", ttl=30, wait=PATIENCE).token > lease.token
        assert SYSTEM.now() - lost > ns(lab.steady / 2)

    def test_the_options_reach_the_store(self, face: Face, store: Store) -> None:
        wishes = {"soft": 9, "lock_delay": 2, "hold_at_least": 1}
        if Capability.GRACE in store.guarantees.capabilities:
            wishes["grace"] = 3
        face.acquire("job", ttl=30, **wishes)
        record = face.get("job")
        assert record is not None
        assert {name: getattr(record, name) for name in wishes} == wishes
