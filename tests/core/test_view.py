from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from lessor import Contender, Event, EventKind, Leader, Parent, Record
from lessor.core import lease, ops
from lessor.core.view import iso

GRANTED_US = 1_794_786_822_124_246
GRANTED = datetime(2026, 11, 15, 23, 53, 42, 124246, UTC)
STORED = lease.Record(
    "shard/7",
    "worker-1",
    17,
    ttl_ns=30_000_000_000,
    remaining_ns=12_500_000_000,
    granted_us=GRANTED_US,
    renewed_us=GRANTED_US + 1_000_000,
    renewals=3,
    metadata={"pid": "4711"},
    parent=("session/a", 16),
    lock_delay_ns=1_500_000_000,
    queue=(lease.Contender("worker-2", GRANTED_US, 5),),
)


def test_a_record_has_seconds_and_aware_datetimes() -> None:
    record = STORED.as_view()
    assert record == Record(
        "shard/7",
        "worker-1",
        17,
        ttl=30.0,
        remaining=12.5,
        granted=GRANTED,
        renewed=GRANTED + timedelta(seconds=1),
        renewals=3,
        metadata={"pid": "4711"},
        parent=Parent("session/a", 16),
        lock_delay=1.5,
        queue=(Contender("worker-2", GRANTED, 5),),
    )
    assert record.granted.utcoffset() == timedelta(0)
    assert (record.soft, record.grace, record.hold_at_least) == (None, None, None)


def test_a_record_as_a_dict_can_be_written_as_json() -> None:
    said = STORED.as_view().as_dict()
    assert json.loads(json.dumps(said)) == said
    assert said == {
        "resource": "shard/7",
        "holder": "worker-1",
        "token": 17,
        "ttl": 30.0,
        "remaining": 12.5,
        "granted": "2026-11-15T23:53:42.124Z",
        "renewed": "2026-11-15T23:53:43.124Z",
        "renewals": 3,
        "metadata": {"pid": "4711"},
        "parent": {"resource": "session/a", "token": 16},
        "soft": None,
        "grace": None,
        "lock_delay": 1.5,
        "hold_at_least": None,
        "revoked": False,
        "reserved_for": None,
        "queue": [{"holder": "worker-2", "since": "2026-11-15T23:53:42.124Z", "priority": 5}],
        "closed": None,
    }


def test_a_record_of_a_closed_resource_says_why_as_plain_text() -> None:
    said = STORED._replace(closed=lease.Closed.LOCK_DELAY).as_view().as_dict()
    assert said["closed"] == "lock_delay"
    assert type(said["closed"]) is str


def test_an_event_as_a_dict_is_named_as_those_of_the_command_line() -> None:
    event = ops.Event(EventKind.REVOKED, "x", 4, "me", GRANTED_US, 2_000_000_000).as_view()
    assert event == Event(EventKind.REVOKED, "x", 4, "me", GRANTED, 2.0)
    said = event.as_dict()
    assert json.loads(json.dumps(said)) == said
    assert said == {
        "event": "revoked",
        "resource": "x",
        "token": 4,
        "holder": "me",
        "at": "2026-11-15T23:53:42.124Z",
        "remaining": 2.0,
        "closed_for": 0.0,
    }
    assert type(said["event"]) is str


def test_a_release_says_for_how_long_the_resource_stays_closed() -> None:
    event = ops.Event(EventKind.RELEASED, "x", 4, "me", GRANTED_US, 2_000_000_000).as_view()
    assert (event.remaining, event.closed_for) == (0.0, 2.0)


def test_a_leader_is_shown_by_the_record_of_the_elections_lease() -> None:
    leader = Leader.of(STORED.as_view())
    assert leader == Leader("worker-1", 17, GRANTED)
    assert leader.as_dict() == {"holder": "worker-1", "token": 17, "since": "2026-11-15T23:53:42.124Z"}
    assert Leader.of(None) is None
    assert Leader.of(STORED._replace(closed=lease.Closed.HOLD_AT_LEAST).as_view()) is None


def test_views_are_values_that_can_be_pickled_hashed_and_replaced() -> None:
    record = STORED.as_view()
    assert pickle.loads(pickle.dumps(record)) == record
    assert hash(record) == hash(STORED.as_view())
    assert replace(record, revoked=True).revoked
    with pytest.raises(FrozenInstanceError):
        record.token = 18  # type: ignore[misc]


def test_times_are_written_in_utc_whatever_their_zone() -> None:
    assert iso(GRANTED.astimezone(timezone(timedelta(hours=5, minutes=30)))) == "2026-11-15T23:53:42.124Z"
