"""Parents and children: nothing outlives what it stands under, and one renewal carries any number along."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.holder import State
from lessor.core.ops import Acquire, Granted, Held, Loss, Lost, Release, Renew, Renewed, Revoke, Unknown
from lessor.errors import ConfigError, LeaseLost
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Capability
from lessor.testing.conformance.base import (
    PATIENCE,
    Case,
    Thread,
    busily,
    new_id,
    ns,
    pass_time,
    require,
    take,
    taken,
    until,
)
from lessor.testing.conformance.renewing import renew

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness


class Levels:
    """Three leases, each under the one before; the lower two last as long as the top does."""

    def __init__(self, store: Store, ttl: float, *, child_ttl: float = 0) -> None:
        self.store = store
        self.ids = [new_id(), new_id(), new_id()]
        self.names = ["top", "top/middle", "top/middle/bottom"]
        self.tokens = [taken(store, self.names[0], ttl, self.ids[0]).token]
        for level in (1, 2):
            parent = (self.names[level - 1], self.tokens[level - 1])
            self.tokens.append(taken(store, self.names[level], child_ttl, self.ids[level], parent=parent).token)

    def renew(self, level: int, ttl: float) -> object:
        """Renew one of them."""
        return renew(self.store, self.names[level], self.ids[level], self.tokens[level], ttl)

    def held(self) -> list[bool]:
        """Return which of them are held."""
        return [record is not None for record in self.store.read(self.names, timeout=PATIENCE)]


class Family(Case):
    """One mechanism for sessions and for subleases."""

    def test_one_renewal_carries_all_along(self, store: Store, lab: Harness) -> None:
        levels = Levels(store, lab.steady)
        for _ in range(4):
            pass_time(lab.steady / 3)
            assert isinstance(levels.renew(0, lab.steady), Renewed)
        assert levels.held() == [True, True, True]
        assert isinstance(take(store, levels.names[2], 30), Held)

    def test_all_are_free_when_the_top_runs_out(self, store: Store, lab: Harness) -> None:
        levels = Levels(store, lab.ttl)
        pass_time(lab.ttl + lab.lag)
        assert levels.held() == [False, False, False]
        assert isinstance(levels.renew(2, lab.ttl), Lost)
        for name in levels.names:
            taken(store, name, 30)

    def test_all_are_free_when_the_top_is_released(self, store: Store) -> None:
        for child_ttl in (0, 20):
            levels = Levels(store, 30, child_ttl=child_ttl)
            store.apply([Release(levels.names[0], levels.ids[0])], timeout=PATIENCE)
            assert levels.held() == [False, False, False]
            for name in reversed(levels.names):
                lease_id = new_id()
                taken(store, name, 30, lease_id)
                store.apply([Release(name, lease_id)], timeout=PATIENCE)

    def test_a_child_is_released_by_itself(self, store: Store) -> None:
        levels = Levels(store, 30)
        store.apply([Release(levels.names[2], levels.ids[2])], timeout=PATIENCE)
        assert levels.held() == [True, True, False]
        taken(store, levels.names[2], 30)
        renewed = levels.renew(0, 30)
        assert isinstance(renewed, Renewed)
        assert renewed.ended == 0

    def test_a_sublease_runs_out_before_its_master(self, store: Store, lab: Harness) -> None:
        master = new_id()
        token = taken(store, "master", 30, master).token
        granted = taken(store, "part", lab.ttl, parent=("master", token))
        assert granted.ttl_ns <= ns(lab.ttl + 1)
        pass_time(lab.ttl + lab.lag)
        assert [r is not None for r in store.read(["master", "part"], timeout=PATIENCE)] == [True, False]

    def test_a_sublease_never_reaches_beyond_its_master(self, store: Store, lab: Harness) -> None:
        master, part = new_id(), new_id()
        token = taken(store, "master", 20, master).token
        granted = taken(store, "part", 30, part, parent=("master", token))
        assert granted.ttl_ns <= ns(20 + 1)
        renewed = renew(store, "part", part, granted.token, 30)
        assert isinstance(renewed, Renewed)
        assert renewed.ttl_ns <= ns(20 + 1)

    def test_nothing_is_granted_under_what_is_over(self, store: Store) -> None:
        lease_id = new_id()
        token = taken(store, "master", 30, lease_id).token
        store.apply([Release("master", lease_id)], timeout=PATIENCE)
        assert take(store, "part", 30, parent=("master", token)) == Lost(Loss.EXPIRED)
        taken(store, "master", 30)
        assert take(store, "part", 30, parent=("master", token)) == Lost(Loss.EXPIRED)

    def test_a_cycle_is_refused(self, store: Store) -> None:
        levels = Levels(store, 30)
        outcome = take(store, levels.names[0], 30, parent=(levels.names[2], levels.tokens[2]))
        # A store that looks at the holder first says that somebody has it, which in a cycle is always so.
        assert isinstance(outcome, Held) or (isinstance(outcome, Unknown) and isinstance(outcome.error, ConfigError))

    def test_what_somebody_else_ends_is_counted_in_all_above(self, store: Store) -> None:
        require(store, Capability.SESSIONS)
        levels = Levels(store, 30)
        for count, force in enumerate((False, True), 1):
            store.apply([Revoke(levels.names[2], force)], timeout=PATIENCE)
            for level in (0, 1):
                renewed = levels.renew(level, 30)
                assert isinstance(renewed, Renewed)
                assert renewed.ended == count
        assert isinstance(levels.renew(2, 30), Lost)
        store.apply([Release(levels.names[0], levels.ids[0])], timeout=PATIENCE)
        again = new_id()
        token = taken(store, levels.names[0], 30, again).token
        renewed = renew(store, levels.names[0], again, token, 30)
        assert isinstance(renewed, Renewed)
        assert renewed.ended == 0

    def test_a_challenge_to_a_child_is_counted_too(self, store: Store) -> None:
        require(store, Capability.SESSIONS | Capability.RECOVER)
        top = new_id()
        token = taken(store, "top", 30, top).token
        taken(store, "part", 0, parent=("top", token), soft_ns=1_000_000)
        pass_time(0.01)
        assert isinstance(take(store, "part", 30, recover=True), Held)
        renewed = renew(store, "top", top, token, 30)
        assert isinstance(renewed, Renewed)
        assert renewed.ended == 1

    def test_a_revoked_child_ends_as_promised_however_long_its_parent_goes_on(self, store: Store, lab: Harness) -> None:
        require(store, Capability.SESSIONS)
        levels = Levels(store, lab.steady)
        store.apply([Revoke(levels.names[2])], timeout=PATIENCE)

        def ended() -> bool:
            assert isinstance(levels.renew(0, lab.steady), Renewed)
            pass_time(lab.steady / 10)
            return levels.held() == [True, True, False]

        until(ended, "the end of the child")

    def test_many_children_of_one_batch_end_together(self, store: Store) -> None:
        lease_id = new_id()
        token = taken(store, "top", 30, lease_id).token
        ops = [Acquire(f"part/{i}", new_id(), "somebody", 0, parent=("top", token)) for i in range(100)]
        assert all(isinstance(outcome, Granted) for outcome in store.apply(ops, timeout=PATIENCE))
        store.apply([Release("top", lease_id)], timeout=PATIENCE)
        assert list(store.scan("part/", timeout=PATIENCE)) == []

    def test_a_parents_renewals_keep_its_children_and_nothing_else_is_sent(
        self, faulty: FaultyStore, faulty_face: Face
    ) -> None:
        require(faulty, Capability.SESSIONS)
        top = faulty_face.acquire("top", ttl=busily(faulty))
        middle = faulty_face.acquire("middle", ttl=None, parent=top)
        children = [faulty_face.acquire(f"part/{i}", ttl=None, parent=middle) for i in range(20)]
        for _ in range(4):
            believed = children[19]._deadline_ns
            until(lambda: children[19]._deadline_ns > believed, "a renewal that extends all")  # noqa: B023 - at once
            for lease in (top, middle, *children):
                lease.check()
        assert children[0].parent is middle
        assert children[0]._deadline_ns <= top._deadline_ns
        renewed = [op.resource for ops in faulty.calls for op in ops if isinstance(op, Renew)]
        assert set(renewed) == {"top"}
        assert faulty_face.try_acquire("part/7", ttl=30) is None

    def test_the_loss_of_a_parent_is_the_loss_of_all_under_it_at_once(
        self, faulty: FaultyStore, faulty_face: Face, lab: Harness
    ) -> None:
        require(faulty, Capability.SESSIONS)
        told: list[object] = []
        top = faulty_face.acquire("top", ttl=lab.steady)
        rider = faulty_face.acquire("rider", ttl=None, parent=top)
        below = faulty_face.acquire("below", ttl=None, parent=rider)
        sublease = faulty_face.acquire("sublease", ttl=30, parent=top)
        for lease in (rider, below, sublease):
            lease.on_lost(told.append)
        faulty.matching = lambda op: isinstance(op, Renew)
        faulty.lost_requests = 10**9
        assert faulty_face.wait_lost(top, PATIENCE)
        for lease in (rider, below, sublease):
            assert not lease.held
            assert faulty_face.wait_lost(lease, PATIENCE)
            # The sublease has run out at the same time by itself, if it was granted until the end of its parent.
            assert lease.state is State.LOST
            assert lease.loss == "parent" or (lease is sublease and lease.loss == "expired")
            with pytest.raises(LeaseLost):
                lease.check()
        until(lambda: len(told) == 3, "the word to each")
        with pytest.raises(LeaseLost):
            faulty_face.acquire("late", ttl=30, parent=top)
        faulty.lost_requests = 0

    def test_the_release_of_a_parent_frees_all_under_it(self, face: Face, store: Store) -> None:
        require(store, Capability.SESSIONS)
        top = face.acquire("top", ttl=30)
        children = [face.acquire("rider", ttl=None, parent=top), face.acquire("part", ttl=20, parent=top)]
        assert face.release(top)
        for lease in children:
            assert (lease.held, lease.loss) == (False, "parent")
            assert not face.release(lease)
        for name in ("top", "rider", "part"):
            face.acquire(name, ttl=30, wait=0)

    def test_a_child_is_released_and_acquired_again_by_itself(self, face: Face, store: Store) -> None:
        require(store, Capability.SESSIONS)
        top = face.acquire("top", ttl=30)
        first = face.acquire("part", ttl=None, parent=top)
        assert face.release(first)
        assert first.loss == "released"
        second = face.acquire("part", ttl=None, wait=0, parent=top)
        assert second.token > first.token
        top.check()
        second.check()

    def test_a_sublease_renews_itself_as_far_as_its_master_lets_it(self, face: Face, lab: Harness) -> None:
        """Also where the master had little time left when it was granted."""
        master = face.acquire("master", ttl=lab.steady)
        part = face.acquire("part", ttl=30, parent=master)
        assert part.remaining <= lab.steady
        for _ in range(4):
            pass_time(lab.steady / 3)
            master.check()
            part.check()
            assert part._deadline_ns <= master._deadline_ns
        face.release(master)
        assert (part.held, part.loss) == (False, "parent")

    @pytest.mark.parametrize(("force", "deaf"), [(True, False), (True, True), (False, True)])
    def test_a_child_that_somebody_ends_is_lost_and_its_siblings_are_not(
        self, faulty: FaultyStore, open_face: Callable[[Store], Face], lab: Harness, *, force: bool, deaf: bool
    ) -> None:
        """Where nothing is pushed, too: its parent's next renewal tells."""
        require(faulty, Capability.SESSIONS)
        faulty.deaf = deaf
        face = open_face(faulty)
        top = face.acquire("top", ttl=lab.steady)
        rider = face.acquire("rider", ttl=None, parent=top)
        below, sibling = (face.acquire(name, ttl=None, parent=rider) for name in ("below", "sibling"))
        face.revoke("below", force=force)
        assert face.wait_lost(below, PATIENCE)
        assert below.loss == "revoked"
        for lease in (top, rider, sibling):
            lease.check()

    def test_while_it_is_unknown_which_child_was_ended_none_is_extended(
        self, faulty: FaultyStore, open_face: Callable[[Store], Face], lab: Harness
    ) -> None:
        require(faulty, Capability.SESSIONS)
        faulty.deaf = True
        face = open_face(faulty)
        top = face.acquire("top", ttl=lab.steady)
        rider = face.acquire("rider", ttl=None, parent=top)
        faulty.matching = lambda op: isinstance(op, Renew) and op.resource == "rider"
        faulty.lost_requests = 10**9
        face.revoke("rider", force=True)
        revoked = SYSTEM.now()
        while (deadline := rider._deadline_ns) > 0 and rider.held:
            assert deadline <= revoked + ns(lab.steady), "extended by a renewal after it was ended"
            pass_time(0.02)
        assert face.wait_lost(rider, PATIENCE)
        faulty.lost_requests = 0

    def test_after_the_grace_of_a_parent_its_children_are_asked_for(
        self, faulty: FaultyStore, faulty_face: Face, store: Store, lab: Harness
    ) -> None:
        require(faulty, Capability.SESSIONS | Capability.GRACE)
        top = faulty_face.acquire("top", ttl=lab.steady, grace=60)
        kept = faulty_face.acquire("kept", ttl=None, parent=top)
        gone = faulty_face.acquire("gone", ttl=None, parent=top)
        faulty.matching = lambda op: isinstance(op, Renew)
        faulty.lost_requests = 10**9
        until(lambda: isinstance(take(store, "gone", 30), Granted), "somebody else's turn")
        assert [lease.held for lease in (top, kept, gone)] == [False] * 3
        assert [lease.state for lease in (top, kept)] == [State.JEOPARDY] * 2
        faulty.lost_requests = 0
        until(lambda: top.held, "a renewal within the grace")
        kept.check()
        assert kept.state is State.HELD
        assert not gone.held
        assert gone.state is State.LOST

    def test_whoever_waits_under_a_parent_that_is_lost_waits_no_longer(
        self, faulty: FaultyStore, faulty_face: Face, store: Store, lab: Harness
    ) -> None:
        taken(store, "part", 30)
        top = faulty_face.acquire("top", ttl=lab.steady)
        waiting = Thread(lambda: faulty_face.acquire("part", ttl=30, parent=top))
        until(lambda: bool(store.waiters("part", timeout=PATIENCE)), "the waiter")
        faulty.matching = lambda op: isinstance(op, Renew)
        faulty.lost_requests = 10**9
        with pytest.raises(LeaseLost):
            waiting.result()
        until(lambda: not store.waiters("part", timeout=PATIENCE), "the way out")
        faulty.lost_requests = 0
