"""What a watcher tells: each resource's story in order, with the expiries that nobody pushes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lessor.core.clock import SECOND
from lessor.core.lease import Closed, Record
from lessor.core.ops import Event, EventKind
from lessor.core.watching import Watching
from tests.core.virtual_table import MS, TTL, World

G, R, V, X = EventKind.GRANTED, EventKind.RELEASED, EventKind.REVOKED, EventKind.EXPIRED


def event(kind: EventKind, token: int, *, ttl: int = 0, resource: str = "r") -> Event:
    return Event(kind, resource, token, f"h-{token}", 1000 + token, ttl)


def record(token: int, remaining: int = 10, resource: str = "r") -> Record:
    return Record(resource, f"h-{token}", token, 10, remaining, 1000 + token, 1000 + token, 0)


def told(events: list[Event]) -> list[tuple[EventKind, int]]:
    return [(e.kind, e.token) for e in events]


def test_pushed_events_are_told_as_they_come() -> None:
    watching = Watching()
    assert told(watching.heard(event(G, 1, ttl=10), 0)) == [(G, 1)]
    assert watching.next_look() == 10
    assert told(watching.heard(event(R, 1), 5)) == [(R, 1)]
    assert watching.next_look() is None


def test_the_next_grant_implies_that_the_one_before_expired() -> None:
    watching = Watching()
    watching.heard(event(G, 1, ttl=10), 0)
    assert told(watching.heard(event(G, 2, ttl=10), 20)) == [(X, 1), (G, 2)]


def test_an_expiry_is_told_when_the_store_confirms_it() -> None:
    watching = Watching()
    watching.heard(event(G, 1, ttl=10), 0)
    assert watching.due(9) == []
    assert watching.due(10) == ["r"]
    assert told(watching.looked("r", None, 10, 77)) == [(X, 1)]
    assert watching.due(1000) == []


def test_a_renewed_lease_is_looked_at_again_later() -> None:
    watching = Watching()
    watching.heard(event(G, 1, ttl=10), 0)
    assert watching.looked("r", record(1, remaining=8), 10, 77) == []
    assert watching.next_look() == 18


def test_what_is_closed_after_a_release_is_followed_until_it_opens() -> None:
    watching = Watching()
    watching.heard(event(G, 1, ttl=10), 0)
    assert told(watching.heard(event(R, 1, ttl=60), 5)) == [(R, 1)]
    assert watching.next_look() == 65
    assert told(watching.heard(event(V, 1), 20)) == [(V, 1)]
    assert watching.next_look() is None


def test_what_opens_by_itself_is_no_news() -> None:
    watching = Watching()
    watching.heard(event(G, 1, ttl=10), 0)
    watching.heard(event(R, 1, ttl=60), 5)
    assert watching.looked("r", None, 65, 77) == []
    assert watching.next_look() is None
    watching.heard(event(G, 2, ttl=10), 70)
    watching.heard(event(R, 2, ttl=60), 71)
    assert told(watching.heard(event(G, 3, ttl=10), 140)) == [(G, 3)]


def test_an_expiry_that_a_lock_delay_follows_is_told_once() -> None:
    watching = Watching()
    watching.heard(event(G, 1, ttl=10), 0)
    closed = record(1, remaining=60)._replace(closed=Closed.LOCK_DELAY)
    assert told(watching.looked("r", closed, 10, 77)) == [(X, 1)]
    assert watching.looked("r", closed._replace(remaining_ns=1), 69, 77) == []
    assert told(watching.heard(event(V, 1), 69)) == [(V, 1)]


def test_what_was_closed_before_is_no_news() -> None:
    watching = Watching()
    closed = record(1, remaining=60)._replace(closed=Closed.HOLD_AT_LEAST)
    assert watching.resync([closed], 0, 77) == []
    assert told(watching.looked("r", record(2), 70, 77)) == [(G, 2)]


def test_a_look_that_finds_the_next_lease_tells_both() -> None:
    watching = Watching()
    watching.heard(event(G, 1, ttl=10), 0)
    found = watching.looked("r", record(2), 10, 77)
    assert told(found) == [(X, 1), (G, 2)]
    assert found[1].at_us == 1002
    assert watching.heard(event(G, 2, ttl=10), 11) == []


def test_a_revocation_that_takes_effect_later_is_followed_by_an_expiry() -> None:
    watching = Watching()
    watching.heard(event(G, 1, ttl=10), 0)
    assert told(watching.heard(event(V, 1, ttl=5), 5)) == [(V, 1)]
    assert told(watching.looked("r", None, 10, 77)) == [(X, 1)]


def test_a_revocation_by_force_is_the_end() -> None:
    watching = Watching()
    watching.heard(event(G, 1, ttl=10), 0)
    assert told(watching.heard(event(V, 1), 5)) == [(V, 1)]
    assert watching.next_look() is None


def test_what_is_older_than_the_state_is_not_told() -> None:
    watching = Watching()
    watching.resync([record(5)], 0, 0)
    for stale in (event(G, 4, ttl=10), event(R, 4), event(G, 5, ttl=10)):
        assert watching.heard(stale, 1) == []
    assert told(watching.heard(event(R, 5), 2)) == [(R, 5)]


def test_the_end_of_something_unknown_is_not_told() -> None:
    assert Watching().heard(event(R, 1), 0) == []


def test_a_resync_tells_what_must_have_happened() -> None:
    watching = Watching()
    for name, token in (("gone", 1), ("same", 2), ("next", 3)):
        watching.heard(event(G, token, ttl=10, resource=name), 0)
    state = [record(2, resource="same"), record(9, resource="next"), record(8, resource="new")]
    found = watching.resync(state, 5, 77)
    assert [(e.resource, e.kind, e.token) for e in found] == [
        ("gone", X, 1), ("next", X, 3), ("next", G, 9), ("new", G, 8),
    ]  # fmt: skip
    assert watching.resync(state, 6, 78) == []


steps = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "acquire", "release", "revoke", "force", "renew", "pass", "miss", "hear", "hear"]),
        st.sampled_from(["x", "y"]),
    ),
    max_size=60,
    min_size=5,
)


def act(world: World, what: str, name: str, serial: int) -> None:
    """Do one thing to the world that others may hear of."""
    entry = world.table.load(name)
    holder = entry.lease_id or "nobody"
    if what == "acquire":
        world.acquire(name, f"id{serial}", ttl_ns=SECOND)
    elif what == "release":
        world.release(name, holder)
    elif what == "renew":
        world.renew(name, holder, entry.token, TTL)
    elif what == "pass":
        world.advance(700 * MS)
    else:
        world.revoke(name, force=what == "force")


def listen(world: World, watching: Watching, *, miss: bool) -> list[Event]:
    """Take in what was pushed, or miss it and take the state in; return what the watcher tells."""
    heard: list[Event] = []
    if miss:
        records = [r for r in (world.record("x"), world.record("y")) if r is not None]
        heard += watching.resync(records, world.now, world.table.wall_us)
    else:
        for pushed in world.table.events:
            heard += watching.heard(pushed, world.now)
        for due in watching.due(world.now):
            heard += watching.looked(due, world.record(due), world.now, world.table.wall_us)
    world.table.events.clear()
    return heard


def standing_after(story: list[Event]) -> int | None:
    """Return the token that is held at the end of one resource's story, which must make sense."""
    standing, last = None, 0
    for one in story:
        if one.kind is G:
            assert standing is None, "granted before the last one ended"
            assert one.token > last
            standing = last = one.token
        else:
            assert one.token == standing, "something ended that had not begun"
            if one.kind is not V or one.ttl_ns == 0:
                standing = None
    return standing


@given(steps)
@settings(deadline=None, max_examples=300)
def test_each_resources_story_makes_sense(story: list[tuple[str, str]]) -> None:
    """Drive the rules, and hear of it late, or miss it and take the state in anew."""
    world, watching = World(), Watching()
    heard: list[Event] = []
    for serial, (what, name) in enumerate(story):
        if what in ("miss", "hear"):
            heard += listen(world, watching, miss=what == "miss")
        else:
            act(world, what, name, serial)
    for name in ("x", "y"):
        standing = standing_after([e for e in heard if e.resource == name])
        if not world.table.events and world.record(name) is not None:
            assert standing is not None, "a lease that everybody was told of is not known"
