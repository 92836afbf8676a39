"""Tokens increase strictly for each resource, whatever happens in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.lease import TOKEN_LIMIT
from lessor.core.ops import Release, Revoke
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import PATIENCE, Case, new_id, pass_time, taken

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness

YEAR_US = 365 * 24 * 3600 * 1_000_000


class BackwardClock:
    """The real clock, with a wall clock that is set back a year at each reading, as no administrator would."""

    def __init__(self) -> None:
        self.now, self.mark = SYSTEM.now, SYSTEM.mark
        self.host_ns, self.host_epoch = SYSTEM.host_ns, SYSTEM.host_epoch
        self._years = 0

    def wall_us(self) -> int:
        """Microseconds since 1970, in an ever earlier year."""
        self._years += 1
        return max(0, SYSTEM.wall_us() - self._years * YEAR_US)


class Tokens(Case):
    """A newer holder has a higher token, so that a guard can tell."""

    def test_over_release_expiry_and_revocation(self, store: Store, lab: Harness) -> None:
        tokens = []
        for ending in ("release", "expiry", "revocation", "release"):
            lease_id = new_id()
            tokens.append(taken(store, "job", lab.ttl, lease_id).token)
            if ending == "release":
                store.apply([Release("job", lease_id)], timeout=PATIENCE)
            elif ending == "revocation":
                store.apply([Revoke("job", force=True)], timeout=PATIENCE)
            else:
                pass_time(lab.ttl + lab.lag)
        tokens.append(taken(store, "job", lab.ttl).token)
        assert tokens == sorted(set(tokens)), "tokens out of order"
        assert all(0 < token < TOKEN_LIMIT for token in tokens)

    def test_over_the_collection_of_old_records(self, store: Store, lab: Harness) -> None:
        tokens = []
        for _ in range(3):
            lease_id = new_id()
            tokens.append(taken(store, "job", lab.ttl, lease_id).token)
            store.apply([Release("job", lease_id)], timeout=PATIENCE)
            lab.collect(store)
            assert list(store.scan("", timeout=PATIENCE)) == []
        assert tokens == sorted(set(tokens)), "tokens out of order"

    def test_over_a_wall_clock_that_goes_back(self, lab: Harness) -> None:
        """Neither a release, nor the collection of what is left of it, may take the counter along."""
        if not lab.mints_by_our_clock:
            pytest.skip("the store's server mints tokens by a clock of its own")
        store = lab.open(BackwardClock())
        tokens = []
        for turn in range(6):
            lease_id = new_id()
            tokens.append(taken(store, "job", lab.ttl, lease_id).token)
            store.apply([Release("job", lease_id)], timeout=PATIENCE)
            if turn % 2:
                lab.collect(store)
        store.close()
        assert tokens == sorted(set(tokens)), "tokens out of order"

    def test_above_what_the_client_has_seen(self, store: Store, lab: Harness) -> None:
        """A store that lost its counter still can't grant below what the asker knows of."""
        seen = taken(store, "job", lab.ttl).token + 10**9
        assert taken(store, "other", lab.ttl, seen_token=seen).token > seen

    def test_kept_by_a_renewal(self, face: Face, lab: Harness) -> None:
        lease = face.acquire("job", ttl=30)
        token = lease.token
        face.renew(lease)
        record = face.get("job")
        assert record is not None
        assert record.token == lease.token == token

    def test_the_same_for_an_acquire_that_is_repeated(self, store: Store, lab: Harness) -> None:
        lease_id = new_id()
        first = taken(store, "job", 30, lease_id)
        again = taken(store, "job", 30, lease_id)
        assert again.token == first.token
        assert again.ttl_ns <= first.ttl_ns
