"""Closed: nobody holds the resource, and nobody can acquire it yet. It is shown as that, and can be opened."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lessor.core.lease import Closed
from lessor.core.ops import Granted, Held, NotHeld, Release, Released, Revoke
from lessor.errors import LeaseHeld
from lessor.stores.base import Capability
from lessor.testing.conformance.base import PATIENCE, Case, Thread, new_id, ns, require, take, taken, until

if TYPE_CHECKING:
    from lessor.core.lease import Record
    from lessor.core.ops import Outcome
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness

LONG = 30.0
"""Seconds for which a resource would stay closed: longer than any case waits."""


def revoke(store: Store, resource: str, *, force: bool = False, token: int | None = None) -> Outcome:
    """Revoke, straight from the store."""
    return store.apply([Revoke(resource, force, token)], timeout=PATIENCE)[0]


def look(store: Store, resource: str) -> Record | None:
    """Read one resource."""
    return store.read([resource], timeout=PATIENCE)[0]


def released_early(store: Store, resource: str) -> Granted:
    """Acquire, and release within the minimum hold."""
    lease_id = new_id()
    granted = taken(store, resource, LONG, lease_id, hold_at_least_ns=ns(LONG), metadata='{"a":"b"}')
    assert isinstance(store.apply([Release(resource, lease_id)], timeout=PATIENCE)[0], Released)
    return granted


def expired_with_delay(store: Store, resource: str, ttl: float) -> Granted:
    """Acquire, and let the lease expire; its lock delay follows."""
    granted = taken(store, resource, ttl, lock_delay_ns=ns(LONG))
    until(lambda: (found := look(store, resource)) is not None and found.closed is not None, "the lock delay")
    return granted


class Closing(Case):
    """After a release within the minimum hold, and after an expiry with a lock delay."""

    def test_it_is_shown_as_closed_after_a_release_within_the_minimum_hold(self, store: Store, lab: Harness) -> None:
        token = released_early(store, "jobs/a").token
        other = lab.open()
        for seen in (store, other):
            record = look(seen, "jobs/a")
            assert record is not None
            assert (record.closed, record.holder, record.token) == (Closed.HOLD_AT_LEAST, "somebody", token)
            assert 0 < record.remaining_ns <= ns(LONG + 1)
            assert record.hold_at_least_ns == ns(LONG)
            assert [(r.resource, r.closed) for r in seen.scan("jobs/", timeout=PATIENCE)] == [("jobs/a", record.closed)]
            held = take(seen, "jobs/a", LONG)
            assert isinstance(held, Held)
            assert (held.closed, held.by, held.token) == (Closed.HOLD_AT_LEAST, "somebody", token)
            assert 0 < held.remaining_ns <= ns(LONG + 1)
        other.close()

    @pytest.mark.parametrize("force", [False, True], ids=["plain", "force"])
    def test_a_revocation_opens_what_is_closed_after_a_release(
        self, store: Store, lab: Harness, *, force: bool
    ) -> None:
        token = released_early(store, "job").token
        other = lab.open()
        assert revoke(other, "job", force=force, token=token - 1) == NotHeld()
        assert revoke(other, "job", force=force) == Released()
        other.close()
        assert look(store, "job") is None
        assert list(store.scan("", timeout=PATIENCE)) == []
        assert revoke(store, "job", force=force) == NotHeld()
        assert taken(store, "job", LONG).token > token

    def test_it_is_shown_as_closed_after_an_expiry_with_a_lock_delay(self, store: Store, lab: Harness) -> None:
        require(store, Capability.DELAY_SHOWN)
        token = expired_with_delay(store, "jobs/a", lab.ttl).token
        other = lab.open()
        for seen in (store, other):
            record = look(seen, "jobs/a")
            assert record is not None
            assert (record.closed, record.holder, record.token) == (Closed.LOCK_DELAY, "somebody", token)
            assert 0 < record.remaining_ns <= ns(LONG + 1)
            assert [(r.resource, r.closed) for r in seen.scan("jobs/", timeout=PATIENCE)] == [("jobs/a", record.closed)]
            held = take(seen, "jobs/a", LONG)
            assert isinstance(held, Held)
            assert (held.closed, held.by, held.token) == (Closed.LOCK_DELAY, "somebody", token)
        other.close()

    def test_only_force_opens_what_is_closed_by_a_lock_delay(self, store: Store, lab: Harness) -> None:
        """The delay protects what can't check tokens."""
        require(store, Capability.DELAY_SHOWN)
        token = expired_with_delay(store, "job", lab.ttl).token
        refused = revoke(store, "job")
        assert isinstance(refused, Held)
        assert (refused.closed, refused.by, refused.token) == (Closed.LOCK_DELAY, "somebody", token)
        assert isinstance(take(store, "job", LONG), Held)
        assert revoke(store, "job", force=True) == Released()
        assert look(store, "job") is None
        assert taken(store, "job", LONG).token > token

    def test_a_revocation_by_force_opens_it_whatever_the_store_shows(self, store: Store, lab: Harness) -> None:
        """Also where a lock delay can't be told from a lease that is held."""
        token = taken(store, "job", lab.ttl, lock_delay_ns=ns(LONG)).token
        assert revoke(store, "job", force=True) == Released()
        assert taken(store, "job", LONG).token > token

    def test_what_was_revoked_by_force_is_not_closed_by_its_minimum_hold(self, store: Store) -> None:
        taken(store, "job", LONG, hold_at_least_ns=ns(LONG))
        assert revoke(store, "job", force=True) == Released()
        assert look(store, "job") is None
        taken(store, "job", LONG)

    def test_what_has_expired_is_not_closed_by_its_minimum_hold(self, store: Store, lab: Harness) -> None:
        """The next run must not wait for the minimum hold of one that died."""
        taken(store, "job", lab.ttl, hold_at_least_ns=ns(LONG))
        until(lambda: isinstance(take(store, "job", LONG), Granted), "the expiry")

    def test_a_waiter_gets_what_is_opened(self, face: Face, other: Face) -> None:
        lease = other.acquire("job", ttl=LONG, hold_at_least=LONG)
        waiting = Thread(lambda: face.acquire("job", ttl=LONG, wait=PATIENCE))
        until(lambda: len(other.contenders("job")) == 1, "the waiter")
        other.release(lease)
        assert other.revoke("job") == 0
        assert waiting.result().token > lease.token

    def test_the_errors_and_records_say_that_it_is_closed(self, face: Face, other: Face) -> None:
        lease = other.acquire("job", ttl=LONG, hold_at_least=LONG)
        other.release(lease)
        with pytest.raises(LeaseHeld, match=r"closed for another .* hold_at_least") as caught:
            face.acquire("job", ttl=LONG, wait=0)
        error = caught.value
        assert (error.closed, error.holder, error.token) == ("hold_at_least", lease.holder, lease.token)
        assert 0 < error.remaining <= LONG + 1
        record = face.get("job")
        assert record is not None
        assert record.closed == "hold_at_least"
        assert [record.closed for record in face.list()] == ["hold_at_least"]
        assert face.leader("job") is None
        assert face.revoke("job") == 0
        assert face.get("job") is None
        assert face.revoke("job") is None

    def test_a_plain_revocation_during_a_lock_delay_says_why_it_is_refused(
        self, face: Face, store: Store, lab: Harness
    ) -> None:
        require(store, Capability.DELAY_SHOWN)
        token = expired_with_delay(store, "job", lab.ttl).token
        with pytest.raises(LeaseHeld, match=r"lock_delay.*force") as caught:
            face.revoke("job")
        assert (caught.value.closed, caught.value.token) == ("lock_delay", token)
        assert face.revoke("job", force=True) == 0
        face.acquire("job", ttl=LONG, wait=0)

    def test_watchers_are_told_that_it_was_opened(self, face: Face, store: Store) -> None:
        require(store, Capability.WATCH)
        ready = threading.Event()
        watching = Thread(lambda: face.watch("", 4, ready))
        assert ready.wait(PATIENCE)
        first = face.acquire("job", ttl=LONG, hold_at_least=LONG)
        face.release(first)
        face.revoke("job")
        second = face.acquire("job", ttl=LONG, wait=0)
        events = watching.result()
        assert [(str(event.kind), event.token) for event in events] == [
            ("granted", first.token),
            ("released", first.token),
            ("revoked", first.token),
            ("granted", second.token),
        ]
        assert 0 < events[1].closed_for <= LONG + 1
