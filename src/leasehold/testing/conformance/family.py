"""Parents and children: nothing outlives what it stands under, and one renewal carries any number along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.core.ops import Acquire, Granted, Held, Loss, Lost, Release, Renewed, Revoke, Unknown
from leasehold.errors import ConfigError
from leasehold.stores.base import Capability
from leasehold.testing.conformance.base import PATIENCE, Case, new_id, ns, pass_time, require, take, taken
from leasehold.testing.conformance.renewing import renew

if TYPE_CHECKING:
    from leasehold.stores.base import Store
    from leasehold.testing.harness import Harness


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
            pass_time(lab.steady / 2)
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
        token = taken(store, "master", lab.ttl, master).token
        granted = taken(store, "part", 30, part, parent=("master", token))
        assert granted.ttl_ns <= ns(lab.ttl + 1)
        renewed = renew(store, "part", part, granted.token, 30)
        assert isinstance(renewed, Renewed)
        assert renewed.ttl_ns <= ns(lab.ttl + 1)

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
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, ConfigError)

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
        levels = Levels(store, lab.steady)
        store.apply([Revoke(levels.names[2])], timeout=PATIENCE)
        for _ in range(3):
            pass_time(lab.steady / 2)
            levels.renew(0, lab.steady)
        pass_time(lab.lag)
        assert levels.held() == [True, True, False]

    def test_many_children_of_one_batch_end_together(self, store: Store) -> None:
        lease_id = new_id()
        token = taken(store, "top", 30, lease_id).token
        ops = [Acquire(f"part/{i}", new_id(), "somebody", 0, parent=("top", token)) for i in range(100)]
        assert all(isinstance(outcome, Granted) for outcome in store.apply(ops, timeout=PATIENCE))
        store.apply([Release("top", lease_id)], timeout=PATIENCE)
        assert list(store.scan("part/", timeout=PATIENCE)) == []
