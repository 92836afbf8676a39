"""Ending: release is idempotent and only the owner's; revocation keeps the promise unless forced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.holder import State
from lessor.core.ops import Held, Lost, NotHeld, Release, Released, Renew, Revoke
from lessor.errors import LeaseLost, StoreUnavailable
from lessor.stores.base import Capability
from lessor.testing.conformance.base import PATIENCE, Case, new_id, ns, pass_time, require, take, taken, until

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness


class Ending(Case):
    """Only the owner releases; anybody may revoke; and both leave the rest as it was."""

    def test_release_is_idempotent(self, store: Store) -> None:
        lease_id = new_id()
        taken(store, "job", 30, lease_id)
        assert store.apply([Release("job", lease_id)], timeout=PATIENCE) == [Released()]
        assert isinstance(store.apply([Release("job", lease_id)], timeout=PATIENCE)[0], NotHeld)

    def test_an_old_release_does_not_end_the_next_lease(self, store: Store) -> None:
        old = new_id()
        taken(store, "job", 30, old)
        store.apply([Release("job", old)], timeout=PATIENCE)
        current = new_id()
        taken(store, "job", 30, current)
        assert isinstance(store.apply([Release("job", old)], timeout=PATIENCE)[0], NotHeld)
        assert isinstance(store.apply([Release("job", new_id())], timeout=PATIENCE)[0], NotHeld)
        assert isinstance(take(store, "job", 30), Held)
        assert store.apply([Release("job", current)], timeout=PATIENCE) == [Released()]

    def test_a_release_whose_reply_got_lost_is_done_in_the_background(
        self, faulty: FaultyStore, faulty_face: Face, store: Store
    ) -> None:
        lease = faulty_face.acquire("job", ttl=30)
        faulty.matching = lambda op: isinstance(op, Release)
        faulty.lost_requests = 2
        with pytest.raises(StoreUnavailable):
            faulty_face.release(lease)
        assert lease.state is State.LOST
        until(lambda: store.read(["job"], timeout=PATIENCE) == [None], "the release")

    def test_a_release_can_be_repeated_after_an_error(self, faulty: FaultyStore, faulty_face: Face) -> None:
        lease = faulty_face.acquire("job", ttl=30)
        faulty.matching = lambda op: isinstance(op, Release)
        faulty.lost_requests = 1
        with pytest.raises(StoreUnavailable):
            faulty_face.release(lease)
        faulty_face.release(lease)
        assert faulty_face.get("job") is None

    def test_revoke_keeps_others_out_until_the_promised_expiry(self, store: Store, lab: Harness) -> None:
        lease_id = new_id()
        token = taken(store, "job", 30, lease_id).token
        answer = store.apply([Revoke("job")], timeout=PATIENCE)[0]
        assert isinstance(answer, Released)
        assert 0 < answer.free_in_ns <= ns(30)
        refused = store.apply([Renew("job", lease_id, token, ns(30))], timeout=PATIENCE)[0]
        assert isinstance(refused, Lost)
        assert refused.reason == "revoked"
        assert 0 < refused.remaining_ns <= answer.free_in_ns
        assert isinstance(take(store, "job", lab.ttl), Held)

    def test_what_was_revoked_is_free_at_the_promised_expiry(self, store: Store, lab: Harness) -> None:
        taken(store, "job", lab.ttl)
        store.apply([Revoke("job")], timeout=PATIENCE)
        pass_time(lab.ttl + lab.lag)
        taken(store, "job", lab.ttl)

    def test_revoke_tells_the_holder_who_keeps_it_until_then(self, face: Face, lab: Harness) -> None:
        told: list[object] = []
        lease = face.acquire("job", ttl=lab.steady)
        lease.on_jeopardy(told.append)
        free_in = face.revoke("job")
        assert free_in is not None
        assert 0 < free_in <= lab.steady
        until(lambda: bool(told), "the word to the holder")
        lease.check()
        assert face.try_acquire("job", ttl=lab.ttl) is None
        assert face.wait_lost(lease, PATIENCE)
        assert lease.loss == "revoked"
        face.release(face.acquire("job", ttl=lab.ttl, wait=PATIENCE))

    def test_a_forced_revoke_frees_at_once_and_tells_the_holder(self, face: Face) -> None:
        lease = face.acquire("job", ttl=30)
        assert face.revoke("job", force=True) == 0
        newer = face.acquire("job", ttl=30, wait=0)
        assert newer.token > lease.token
        assert face.wait_lost(lease, PATIENCE)
        assert lease.loss in {"revoked", "taken"}

    def test_a_forced_revoke_after_another_tells_the_holder_too(self, face: Face, store: Store) -> None:
        require(store, Capability.PUSH)
        told: list[object] = []
        lease = face.acquire("job", ttl=30)
        lease.on_jeopardy(told.append)
        face.revoke("job")
        until(lambda: bool(told), "the word to the holder")
        with pytest.raises(LeaseLost):
            face.renew(lease)
        lease.check()
        face.revoke("job", force=True)
        assert face.wait_lost(lease, PATIENCE)
        assert lease.loss == "revoked"

    def test_revoking_nothing(self, face: Face) -> None:
        assert face.revoke("job") is None
        assert face.revoke("job", force=True) is None
