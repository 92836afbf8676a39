"""Watching: what happened to a resource, in order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lessor.stores.base import Capability
from lessor.testing.conformance.base import PATIENCE, Case, Thread, require

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness


class Watching(Case):
    """Granted, released, revoked, and expired as the watcher derives it."""

    def test_in_order_for_each_resource(self, face: Face, lab: Harness, store: Store) -> None:
        require(store, Capability.WATCH)
        ready = threading.Event()
        watching = Thread(lambda: face.watch("jobs/", 8, ready))
        assert ready.wait(PATIENCE)
        face.release(face.acquire("elsewhere", ttl=30))
        first = face.acquire("jobs/a", ttl=30)
        face.release(first)
        second = face.acquire("jobs/a", ttl=30)
        face.revoke("jobs/a", force=True)
        third = face.acquire("jobs/a", ttl=lab.ttl, max_hold=lab.ttl)
        fourth = face.acquire("jobs/a", ttl=30, wait=PATIENCE)
        face.release(fourth)
        events = [(str(event.kind), event.token) for event in watching.result()]
        assert events == [
            ("granted", first.token),
            ("released", first.token),
            ("granted", second.token),
            ("revoked", second.token),
            ("granted", third.token),
            ("expired", third.token),
            ("granted", fourth.token),
            ("released", fourth.token),
        ]
        assert face.gaps == 0

    def test_an_expiry_that_nobody_follows_up(self, face: Face, lab: Harness) -> None:
        lease = face.acquire("jobs/a", ttl=lab.ttl, max_hold=lab.ttl)
        ready = threading.Event()
        watching = Thread(lambda: face.watch("jobs/", 1, ready))
        event = watching.result()[0]
        assert (str(event.kind), event.token, event.holder) == ("expired", lease.token, lease.holder)

    def test_list_and_get(self, face: Face, lab: Harness) -> None:
        assert face.list() == []
        assert face.get("jobs/a") is None
        leases = [face.acquire(f"jobs/{name}", ttl=30) for name in "cab"]
        face.acquire("other", ttl=30)
        assert [record.resource for record in face.list("jobs/")] == ["jobs/a", "jobs/b", "jobs/c"]
        assert len(face.list()) == 4
        face.release(leases[0])
        assert [record.resource for record in face.list("jobs/")] == ["jobs/a", "jobs/b"]
        assert face.get("jobs/c") is None
