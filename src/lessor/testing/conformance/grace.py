"""Grace: a lease that ran out comes back, with its token, if nobody else came meanwhile. Where the store can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.ops import WAITER_LIFE_NS, Acquire, Held, Loss, Lost, Release, Renew, Renewed
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Capability
from lessor.testing.conformance.base import PATIENCE, Case, new_id, ns, require, take, taken, until

if TYPE_CHECKING:
    from lessor.core.ops import Granted, Op, Outcome
    from lessor.stores.base import Store
    from lessor.testing.harness import Harness

LONG = 60.0


class Late:
    """A lease with a grace, whose holder has not renewed it in time."""

    def __init__(self, store: Store, ttl: float) -> None:
        self.store = store
        self.ttl = ttl
        self.lease_id = new_id()
        self.grant: Granted = taken(store, "job", ttl, self.lease_id, grace_ns=ns(LONG))

    def do(self, op: Op) -> Outcome:
        """Ask the store."""
        return self.store.apply([op], timeout=PATIENCE)[0]

    def renew(self, ttl: float | None = None) -> Outcome:
        """Come back."""
        return self.do(Renew("job", self.lease_id, self.grant.token, ns(ttl or self.ttl)))

    def runs_out(self) -> None:
        """Wait for that."""
        until(lambda: self.store.read(["job"], timeout=PATIENCE) == [None], "the expiry")


class Grace(Case):
    """It was nobody else's, so it may be the same one's again."""

    @pytest.fixture
    def late(self, store: Store, lab: Harness) -> Late:
        require(store, Capability.GRACE)
        return Late(store, lab.ttl)

    def test_a_lease_comes_back_within_its_grace_with_the_same_token(self, late: Late) -> None:
        late.runs_out()
        assert isinstance(late.renew(), Renewed)
        late.runs_out()
        assert isinstance(late.renew(LONG), Renewed), "and once more"
        record = late.store.read(["job"], timeout=PATIENCE)[0]
        assert record is not None
        assert record.token == late.grant.token
        assert isinstance(take(late.store, "job", LONG), Held)

    def test_others_need_not_wait_for_the_grace_to_end(self, late: Late) -> None:
        late.runs_out()
        newer = taken(late.store, "job", LONG)
        assert newer.token > late.grant.token
        assert late.renew() == Lost(Loss.TAKEN)

    def test_a_lease_does_not_come_back_after_another_ones_whole_turn(self, late: Late) -> None:
        late.runs_out()
        other = new_id()
        taken(late.store, "job", LONG, other)
        late.do(Release("job", other))
        assert isinstance(late.renew(), Lost)
        taken(late.store, "job", LONG)

    def test_a_lease_does_not_come_back_before_those_who_wait(self, late: Late) -> None:
        waiter = Acquire("job", new_id(), "waiter", ns(LONG), queue=True)
        asked = SYSTEM.now()
        queued = late.do(waiter)
        late.runs_out()
        back = late.renew()
        if SYSTEM.now() - asked < WAITER_LIFE_NS:  # or its place may be gone
            assert isinstance(queued, Held)
            assert isinstance(back, Lost)

    def test_a_lease_that_was_given_up_does_not_come_back(self, late: Late) -> None:
        late.runs_out()
        late.do(Release("job", late.lease_id))
        assert isinstance(late.renew(), Lost)
        taken(late.store, "job", LONG)
