"""What users are shown of a lease: seconds, aware datetimes, and a dict that can be written as JSON."""

from __future__ import annotations

import json
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from lessor.core.view import instant
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import Case

if TYPE_CHECKING:
    from lessor.testing.faces import Face


class Showing(Case):
    """A record, a waiter and a leader are for people, and for programs that write JSON."""

    def test_a_record_in_seconds_and_datetimes(self, face: Face, other: Face) -> None:
        lease = face.acquire("job", ttl=30, metadata={"k": "v"}, hold_at_least=2)
        record = other.get("job")
        assert record is not None
        assert (record.resource, record.holder, record.token) == ("job", lease.holder, lease.token)
        assert (record.ttl, record.hold_at_least, record.soft) == (30.0, 2.0, None)
        assert 0 < record.remaining <= 60
        assert record.granted.tzinfo is UTC
        assert record.granted <= record.renewed
        assert abs(instant(SYSTEM.wall_us()) - record.granted) < timedelta(days=1)  # the server's clock may be off
        assert [one.token for one in other.list("jo")] == [record.token]

    def test_a_record_as_json(self, face: Face, other: Face) -> None:
        parent = face.acquire("above", ttl=30)
        face.acquire("job", ttl=20, parent=parent, metadata={"k": "v"})
        place = other.enqueue("job", ttl=20)
        record = face.get("job")
        assert record is not None
        said = record.as_dict()
        assert json.loads(json.dumps(said)) == said
        assert said["metadata"] == {"k": "v"}
        assert said["parent"] == {"resource": "above", "token": parent.token}
        assert said["granted"] == record.granted.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert [waiter["holder"] for waiter in said["queue"]] == [other.client.holder]
        place.leave()

    def test_a_leader_as_json(self, face: Face, other: Face) -> None:
        term = face.acquire("scheduler", ttl=30)
        leader, record = other.leader("scheduler"), other.get("scheduler")
        assert leader is not None
        assert record is not None
        said = leader.as_dict()
        assert json.loads(json.dumps(said)) == said
        assert (said["holder"], said["token"]) == (term.holder, term.token)
