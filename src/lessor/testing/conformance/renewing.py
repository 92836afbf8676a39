"""Renewal: by the owner alone, never after the end, and counted from before the request was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.holder import State
from lessor.core.ops import Loss, Lost, Release, Renew, Renewed
from lessor.errors import LeaseLost
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import PATIENCE, Case, busily, new_id, ns, pass_time, taken, until

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness


def renew(store: Store, resource: str, lease_id: str, token: int, ttl: float) -> object:
    """Renew straight at the store."""
    return store.apply([Renew(resource, lease_id, token, ns(ttl))], timeout=PATIENCE)[0]


class Renewing(Case):
    """A lease lives as long as its owner does, and no longer."""

    def test_by_itself_for_longer_than_its_ttl(self, face: Face, lab: Harness) -> None:
        start = SYSTEM.now()
        lease = face.acquire("job", ttl=lab.steady)
        while SYSTEM.now() - start < ns(1.2 * lab.steady):
            pass_time(lab.steady / 5)
            lease.check()
            assert face.try_acquire("job", ttl=lab.steady) is None
        record = face.get("job")
        assert record is not None
        assert record.renewals > 0

    def test_only_by_the_owner(self, store: Store, lab: Harness) -> None:
        lease_id = new_id()
        token = taken(store, "job", 30, lease_id).token
        assert isinstance(renew(store, "job", new_id(), token, 60), Lost)
        assert isinstance(renew(store, "job", "", token, 60), Lost)
        record = store.read(["job"], timeout=PATIENCE)[0]
        assert record is not None
        assert record.remaining_ns <= ns(30)
        assert isinstance(renew(store, "job", lease_id, token, 30), Renewed)

    def test_never_after_expiry(self, store: Store, lab: Harness) -> None:
        lease_id = new_id()
        token = taken(store, "job", lab.ttl, lease_id).token
        pass_time(lab.ttl)
        assert renew(store, "job", lease_id, token, lab.ttl) == Lost(Loss.EXPIRED)
        assert store.read(["job"], timeout=PATIENCE) == [None]

    def test_never_after_another_holders_whole_turn(self, store: Store, lab: Harness) -> None:
        first, second = new_id(), new_id()
        token = taken(store, "job", lab.ttl, first).token
        pass_time(lab.ttl + lab.lag)
        taken(store, "job", lab.ttl, second)
        store.apply([Release("job", second)], timeout=PATIENCE)
        assert isinstance(renew(store, "job", first, token, lab.ttl), Lost)
        assert store.read(["job"], timeout=PATIENCE) == [None]

    def test_never_after_release(self, store: Store, lab: Harness) -> None:
        """A renewal that was under way when its lease was released must not bring it back."""
        lease_id = new_id()
        token = taken(store, "job", 30, lease_id).token
        store.apply([Release("job", lease_id)], timeout=PATIENCE)
        assert renew(store, "job", lease_id, token, 30) == Lost(Loss.RELEASED)
        assert store.read(["job"], timeout=PATIENCE) == [None]

    def test_does_not_shorten(self, store: Store, lab: Harness) -> None:
        lease_id = new_id()
        token = taken(store, "job", 30, lease_id).token
        answer = renew(store, "job", lease_id, token, lab.ttl)
        assert isinstance(answer, Renewed)
        assert answer.ttl_ns > ns(20)

    def test_the_deadline_counts_from_before_the_request(
        self, faulty: FaultyStore, faulty_face: Face, lab: Harness
    ) -> None:
        """Of a lease whose reply takes 0.5 s, as much less is left: what the store counts began before it."""
        faulty.reply_delay = 0.5
        lease = faulty_face.acquire("job", ttl=30)
        most = lease.timing.safe_time(ns(30)) / 1e9 - faulty.reply_delay
        assert 0 < lease.remaining <= most
        faulty_face.renew(lease)
        assert 0 < lease.remaining <= most
        faulty.reply_delay = 0

    def test_a_reply_slower_than_the_ttl_is_no_lease(
        self, faulty: FaultyStore, faulty_face: Face, lab: Harness
    ) -> None:
        """The grant is over when it arrives: it is given back, and the next try, with a quick reply, counts."""
        slow = [1.1 * lab.ttl]

        def slow_at_first(_op: object) -> bool:
            faulty.reply_delay = slow.pop() if slow else 0.0
            return True

        faulty.matching = slow_at_first
        faulty_face.acquire("job", ttl=lab.ttl)
        assert len(faulty.calls) >= 2

    def test_the_holder_never_outlives_the_store(
        self, store: Store, faulty: FaultyStore, faulty_face: Face, lab: Harness
    ) -> None:
        """Through renewals with slow replies, and then with none: it stops before the store frees the resource."""
        lease = faulty_face.acquire("job", ttl=lab.ttl)
        faulty.matching = lambda op: isinstance(op, Renew)
        faulty.reply_delay = lab.ttl / 10
        looks = 0
        end = SYSTEM.now() + ns(3 * lab.ttl)
        while (deadline := lease._deadline_ns) > 0:
            if SYSTEM.now() > end:
                faulty.lost_requests = 10**6
            record = store.read(["job"], timeout=PATIENCE)[0]
            assert record is not None or SYSTEM.now() >= deadline, "free while it was held"
            if record is not None:
                assert deadline <= SYSTEM.now() + record.remaining_ns, "believed in beyond its expiry"
                looks += 1
            pass_time(0.005)
        assert looks > 0
        assert lease.loss == "expired"
        with pytest.raises(LeaseLost):
            lease.check()

    def test_one_lost_reply_loses_nothing(self, faulty: FaultyStore, faulty_face: Face) -> None:
        told: list[str] = []
        lease = faulty_face.acquire("job", ttl=busily(faulty))
        lease.on_jeopardy(lambda _: told.append("jeopardy"))
        lease.on_lost(lambda _: told.append("lost"))
        faulty.matching = lambda op: isinstance(op, Renew)
        faulty.lost_replies = 1
        until(lambda: faulty.lost_replies == 0, "a renewal")
        until(lambda: lease.state is State.HELD, "safety")
        lease.check()
        assert told == ["jeopardy"]

    def test_not_at_all_beyond_a_short_max_hold(self, face: Face, store: Store, lab: Harness) -> None:
        lease = face.acquire("job", ttl=30, max_hold=lab.ttl)
        record = face.get("job")
        assert record is None or record.remaining <= lab.ttl
        assert face.wait_lost(lease, PATIENCE)
        face.release(face.acquire("job", ttl=30, wait=PATIENCE))

    def test_on_demand_of_what_lasts_as_long_as_it_may(self, face: Face) -> None:
        """``max_hold`` leaves nothing to renew. The lease is held all the same, and isn't said to be lost."""
        lease = face.acquire("job", ttl=30, max_hold=30)
        face.renew(lease)
        assert lease.held
        face.release(lease)
        with pytest.raises(LeaseLost) as lost:
            face.renew(lease)
        assert (lost.value.reason, lost.value.remaining) == ("released", 0)

    def test_on_demand_of_what_was_revoked(self, face: Face, other: Face) -> None:
        """It is held until the expiry that was promised, and the error says so."""
        lease = face.acquire("job", ttl=30)
        other.revoke("job")
        with pytest.raises(LeaseLost, match="can't be renewed: revoked; it ends in") as lost:
            face.renew(lease)
        assert 0 < lost.value.remaining <= 30
        assert lease.held


class Pacing(Case):
    """When a client renews, and when it stops."""

    def test_bounded_by_max_hold(self, face: Face, lab: Harness) -> None:
        start = SYSTEM.now()
        told: list[float] = []
        lease = face.acquire("job", ttl=lab.steady, max_hold=1.25 * lab.steady)
        lease.on_jeopardy(lambda it: told.append(it.remaining))
        assert face.wait_lost(lease, PATIENCE)
        held = (SYSTEM.now() - start) / 1e9
        assert lab.steady < held
        assert lease.loss == "expired"
        until(lambda: len(told) == 1, "the word that it ends, while there is time left")
        assert told[0] > 0

    def test_stops_when_the_work_stalls(self, face: Face, lab: Harness) -> None:
        lease = face.acquire("job", ttl=lab.steady, stall_after=lab.steady)
        for _ in range(3):
            pass_time(lab.steady / 5)
            lease.progress()
        lease.check()
        assert face.wait_lost(lease, PATIENCE)
        assert lease.loss == "stalled"

    @pytest.mark.parametrize("strategy", ["third", "eager", "lazy", "dhcp", "adaptive"])
    def test_with_every_strategy(self, face: Face, lab: Harness, strategy: str) -> None:
        lease = face.acquire("job", ttl=lab.steady, renewal=strategy)
        until(lambda: (record := face.get("job")) is not None and record.renewals > 0, "a renewal")
        lease.check()
