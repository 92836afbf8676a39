"""Handover: the resource is kept for a successor, with what its holder leaves for it; and not for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.ops import Acquire, Granted, Held, Loss, Lost, Notice, Release, Released, Summons
from lessor.errors import LeaseLost, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Capability
from lessor.testing.conformance.base import (
    PATIENCE,
    Case,
    Thread,
    new_id,
    ns,
    pass_time,
    require,
    take,
    taken,
    until,
)
from lessor.testing.faces import SyncFace

if TYPE_CHECKING:
    from lessor.core.ops import Outcome
    from lessor.stores.base import Store, Subscription
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness

STATE = "c29tZXRoaW5n"


def ask(store: Store, holder: str, lease_id: str | None = None, **fields: object) -> Outcome:
    """Ask straight at the store, under a name."""
    op = Acquire("job", lease_id or new_id(), holder, ns(30))._replace(**fields)  # type: ignore[arg-type]
    return store.apply([op], timeout=PATIENCE)[0]


def hand_over(store: Store, to: str, seconds: float = 30, state: str = STATE) -> Granted:
    """Take the resource and hand it over."""
    holder = new_id()
    granted = taken(store, "job", 30, holder)
    release = Release("job", holder, to, state=state, reserve_ns=ns(seconds))
    assert store.apply([release], timeout=PATIENCE) == [Released()]
    return granted


def called(subscription: Subscription, count: int) -> list[str]:
    """Return the ids of those who were called."""
    ids: list[str] = []

    def enough() -> bool:
        news = subscription.get(0.05) or []
        ids.extend(n.lease_id for n in news if isinstance(n, Notice) and n.summons is Summons.RESERVED)
        return len(ids) >= count

    until(enough, f"{count} calls")
    return ids


class Handover(Case):
    """From one holder to the next that it names, in one step at the store."""

    def test_the_successor_gets_the_next_token_and_what_was_left_for_it(self, store: Store) -> None:
        require(store, Capability.HANDOVER)
        before = hand_over(store, "next")
        others = take(store, "job", 30)
        assert isinstance(others, Held)
        assert others.by == ""
        assert ns(20) < others.remaining_ns <= ns(30)
        lease_id = new_id()
        granted = ask(store, "next", lease_id)
        assert isinstance(granted, Granted)
        assert granted.state == STATE
        assert granted.token > before.token
        again = ask(store, "next", lease_id)
        assert isinstance(again, Granted)
        assert (again.token, again.state) == (granted.token, STATE)
        store.apply([Release("job", lease_id)], timeout=PATIENCE)
        assert taken(store, "job", 30).state == ""

    def test_what_is_left_may_be_as_large_as_metadata(self, store: Store) -> None:
        require(store, Capability.HANDOVER)
        state = "x" * store.guarantees.max_metadata
        hand_over(store, "next", state=state)
        granted = ask(store, "next")
        assert isinstance(granted, Granted)
        assert granted.state == state

    def test_a_successor_that_waits_is_called_and_overtakes(self, store: Store) -> None:
        require(store, Capability.HANDOVER | Capability.PUSH)
        holder, first, second = new_id(), new_id(), new_id()
        taken(store, "job", 30, holder)
        subscription = store.subscribe()
        assert subscription is not None
        try:
            for name, lease_id in (("first", first), ("second", second)):
                assert isinstance(ask(store, name, lease_id, queue=True, notify=subscription.address), Held)
            release = Release("job", holder, "second", state=STATE, reserve_ns=ns(30))
            store.apply([release], timeout=PATIENCE)
            assert sorted(called(subscription, 2)) == sorted([first, second])
            waits = ask(store, "first", first, queue=True, notify=subscription.address)
            assert isinstance(waits, Held)
            assert waits.position == 1
            assert waits.remaining_ns > ns(20)
            granted = ask(store, "second", second, queue=True, notify=subscription.address)
            assert isinstance(granted, Granted)
            assert granted.state == STATE
        finally:
            subscription.close()

    def test_a_successor_that_leaves_the_queue_is_not_waited_for(self, store: Store) -> None:
        require(store, Capability.HANDOVER)
        holder, first, second = new_id(), new_id(), new_id()
        taken(store, "job", 30, holder)
        ask(store, "first", first, queue=True)
        ask(store, "second", second, queue=True)
        release = Release("job", holder, "second", state=STATE, reserve_ns=ns(30))
        store.apply([release, Release("job", second)], timeout=PATIENCE)
        granted = ask(store, "first", first, queue=True)
        assert isinstance(granted, Granted)
        assert granted.state == ""

    def test_the_queue_goes_on_without_a_successor_that_never_comes(self, store: Store, lab: Harness) -> None:
        require(store, Capability.HANDOVER)
        holder, waiter = new_id(), new_id()
        taken(store, "job", 30, holder)
        ask(store, "waiter", waiter, queue=True)
        release = Release("job", holder, "nobody", state=STATE, reserve_ns=ns(lab.ttl))
        start = SYSTEM.now()
        store.apply([release], timeout=PATIENCE)
        answer = ask(store, "waiter", waiter, queue=True)
        if SYSTEM.now() - start < ns(lab.ttl):  # or the reservation may be over
            assert isinstance(answer, Held)
            assert answer.by == ""
            assert 0 < answer.remaining_ns <= ns(lab.ttl)
            assert answer.position == 1
        answers = [answer]

        def served() -> bool:
            answers.append(ask(store, "waiter", waiter, queue=True))
            return isinstance(answers[-1], Granted)

        until(served, "the waiter's turn")
        granted = answers[-1]
        assert isinstance(granted, Granted)
        assert granted.state == ""

    def test_what_was_left_is_gone_with_the_reservation(self, store: Store, lab: Harness) -> None:
        require(store, Capability.HANDOVER)
        hand_over(store, "next", lab.ttl)
        pass_time(lab.ttl + lab.lag)
        granted = ask(store, "next")
        assert isinstance(granted, Granted)
        assert granted.state == ""

    def test_a_successor_that_waits_gets_the_lease_and_the_state_at_once(
        self, face: Face, lab: Harness, store: Store
    ) -> None:
        require(store, Capability.HANDOVER | Capability.PUSH)
        lease = face.acquire("job", ttl=30)
        heir = SyncFace(lab.url(), holder="heir")
        try:
            first = face.enqueue("job", ttl=30)
            waiting = Thread(lambda: heir.acquire("job", ttl=30))
            until(lambda: len(face.contenders("job")) == 2, "both waiters")
            assert face.hand_over(lease, "heir", bytes(range(256)))
            granted = waiting.result()
            assert granted.token > lease.token
            assert granted.inherited == bytes(range(256))
            assert lease.loss == "released"
            with pytest.raises(LeaseLost):
                face.hand_over(lease, "heir")
            assert face.wait(first, 0) is None
            heir.release(granted)
            next_one = face.wait(first, PATIENCE)
            assert next_one is not None
            assert next_one.inherited == b""
        finally:
            heir.close()

    def test_a_waiter_comes_when_the_successor_has_not(self, face: Face, store: Store, lab: Harness) -> None:
        require(store, Capability.HANDOVER | Capability.PUSH)
        lease = face.acquire("job", ttl=30)
        waiting = Thread(lambda: face.acquire("job", ttl=30))
        until(lambda: len(face.contenders("job")) == 1, "the waiter")
        start = SYSTEM.now()
        face.hand_over(lease, "nobody", within=lab.ttl)
        granted = waiting.result()
        took = (SYSTEM.now() - start) / 1e9
        assert lab.ttl - 0.05 <= took
        assert granted.inherited == b""

    @pytest.mark.parametrize("again", ["release", "release_each", "with"])
    def test_a_handover_without_an_answer_stays_one_however_it_is_repeated(
        self, faulty: FaultyStore, faulty_face: Face, store: Store, again: str
    ) -> None:
        """A plain release that came in between would let anybody in, and lose the state."""
        require(store, Capability.HANDOVER)
        lease: Any = faulty_face.acquire("job", ttl=30)
        faulty.matching = lambda op: isinstance(op, Release)
        faulty.lost_requests = 10**6

        def hand_over(_: object) -> None:
            with pytest.raises(StoreUnavailable):
                faulty_face.hand_over(lease, "heir", b"state", within=30)
            if again != "with":
                faulty.lost_requests = 0

        if again == "with":
            faulty_face.inside(lease, hand_over)
            faulty.lost_requests = 0
        else:
            hand_over(None)
            faulty_face.result(lease.release() if again == "release" else faulty_face.client.release_each([lease]))
        until(lambda: store.read(["job"], timeout=PATIENCE) == [None], "the handover")
        sent = {op for ops in faulty.calls for op in ops if isinstance(op, Release)}
        assert [op.successor for op in sent] == ["heir"]
        granted = ask(store, "heir")
        assert isinstance(granted, Granted)
        assert granted.state

    def test_a_handover_whose_request_got_lost_is_done_in_the_background(
        self, faulty: FaultyStore, faulty_face: Face, store: Store
    ) -> None:
        require(store, Capability.HANDOVER)
        lease = faulty_face.acquire("job", ttl=30)
        faulty.matching = lambda op: isinstance(op, Release)
        faulty.lost_requests = 2
        with pytest.raises(StoreUnavailable):
            faulty_face.hand_over(lease, "heir", b"state", within=30)
        assert not lease.held
        until(lambda: store.read(["job"], timeout=PATIENCE) == [None], "the handover")
        assert isinstance(ask(store, "other"), Held)
        granted = ask(store, "heir")
        assert isinstance(granted, Granted)
        assert granted.state

    def test_a_copy_of_a_request_that_is_still_on_its_way_grants_nothing_after_the_handover(
        self, faulty: FaultyStore, faulty_face: Face, store: Store
    ) -> None:
        """The first request had no answer, and the second one was granted."""
        require(store, Capability.HANDOVER)
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_requests = 1
        lease = faulty_face.acquire("job", ttl=30, wait=0)
        assert faulty_face.hand_over(lease, "heir", b"state", within=30)
        assert take(store, "job", 30, lease.id) == Lost(Loss.RELEASED)
        granted = ask(store, "heir")
        assert isinstance(granted, Granted)
        assert granted.state
