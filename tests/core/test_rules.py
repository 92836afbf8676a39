"""Each operation by itself: what the rules answer, and what they leave behind."""

from __future__ import annotations

import pytest

from lessor.core import rules
from lessor.core.clock import SECOND
from lessor.core.lease import TOKEN_LIMIT, Closed
from lessor.core.ops import (
    RESERVATION_NS,
    WAITER_LIFE_NS,
    EventKind,
    Granted,
    Held,
    Loss,
    Lost,
    NotHeld,
    Released,
    Renewed,
    Summons,
)
from lessor.errors import ConfigError
from tests.core.virtual_table import MS, TTL, WALL_US, CopyingTable, SharingTable, World

RESERVED = RESERVATION_NS
LIFE = WAITER_LIFE_NS


@pytest.fixture(params=[CopyingTable, SharingTable])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param())


# --- acquire, renew, release --------------------------------------------------------------------------------------


def test_a_free_resource_is_granted_for_the_whole_ttl(world: World) -> None:
    assert world.acquire("r", "A") == Granted(WALL_US, TTL)
    record = world.record("r")
    assert record is not None
    assert (record.holder, record.token, record.remaining_ns, record.renewals) == ("h-A", WALL_US, TTL, 0)


def test_the_record_never_shows_the_lease_id(world: World) -> None:
    world.grant("r", "secret-id", holder="somebody")
    world.queue("r", "other-secret", holder="somebody else")
    assert "secret" not in repr(world.record("r"))


def test_somebody_else_is_told_who_has_it_and_for_how_long(world: World) -> None:
    token = world.grant("r", "A")
    world.advance(3 * SECOND)
    assert world.acquire("r", "B") == Held("h-A", token, TTL - 3 * SECOND, 0)
    assert "B" not in repr(world.table.load("r"))


def test_an_acquire_repeated_gets_its_own_grant_back_and_no_longer_time(world: World) -> None:
    token = world.grant("r", "A")
    world.advance(3 * SECOND)
    assert world.acquire("r", "A") == Granted(token, TTL - 3 * SECOND)
    assert len(world.table.events) == 1


def test_an_acquire_repeated_after_its_own_expiry_starts_no_second_turn(world: World) -> None:
    world.grant("r", "A")
    world.advance(TTL)
    assert world.acquire("r", "A") == Lost(Loss.EXPIRED)
    assert isinstance(world.acquire("r", "B"), Granted)


def test_it_is_over_at_the_expiry_and_not_a_nanosecond_before(world: World) -> None:
    first = world.grant("r", "A")
    world.advance(TTL - 1)
    assert isinstance(world.acquire("r", "B"), Held)
    world.advance(1)
    assert world.record("r") is None
    assert world.grant("r", "B") > first


def test_a_renewal_extends_from_now_and_keeps_the_token(world: World) -> None:
    token = world.grant("r", "A")
    world.advance(4 * SECOND)
    assert world.renew("r", "A", token) == Renewed(TTL)
    record = world.record("r")
    assert record is not None
    assert (record.token, record.renewals, record.remaining_ns) == (token, 1, TTL)


def test_a_renewal_never_shortens_what_was_promised(world: World) -> None:
    token = world.grant("r", "A")
    assert world.renew("r", "A", token, ttl_ns=SECOND) == Renewed(TTL)


def test_what_a_store_without_its_clock_must_wait_out_covers_the_longest_promise(world: World) -> None:
    token = world.grant("r", "A", SECOND)
    world.renew("r", "A", token, ttl_ns=TTL)
    assert world.table.load("r").ttl_ns == TTL


def test_only_the_owner_renews(world: World) -> None:
    token = world.grant("r", "A")
    assert world.renew("r", "B", token) == Lost(Loss.EXPIRED)
    assert world.table.load("r").renewals == 0


@pytest.mark.parametrize("late", [0, 1, TTL])
def test_nothing_is_renewed_after_its_expiry(world: World, late: int) -> None:
    token = world.grant("r", "A")
    world.advance(TTL + late)
    assert world.renew("r", "A", token) == Lost(Loss.EXPIRED)
    assert world.record("r") is None


def test_a_renewal_after_somebody_elses_whole_turn_is_lost_to_it(world: World) -> None:
    token = world.grant("r", "A")
    world.advance(TTL)
    world.grant("r", "B")
    assert world.renew("r", "A", token) == Lost(Loss.TAKEN)
    world.release("r", "B")
    assert world.renew("r", "A", token) == Lost(Loss.TAKEN)


def test_a_renewal_after_the_release_says_so_and_brings_nothing_back(world: World) -> None:
    token = world.grant("r", "A")
    assert world.release("r", "A") == Released(0)
    assert world.renew("r", "A", token) == Lost(Loss.RELEASED)
    assert world.record("r") is None


def test_a_renewal_of_what_the_store_forgot_is_lost(world: World) -> None:
    assert world.renew("r", "A", 77) == Lost(Loss.EXPIRED)


def test_a_release_can_be_repeated_and_frees_only_ones_own(world: World) -> None:
    world.grant("r", "A")
    assert world.release("r", "B") == NotHeld()
    assert world.holds("r", "A")
    assert world.release("r", "A") == Released(0)
    assert world.release("r", "A") == NotHeld()
    world.grant("r", "B")
    assert world.release("r", "A") == NotHeld()
    assert world.holds("r", "B")


def test_a_release_after_the_expiry_finds_nothing(world: World) -> None:
    world.grant("r", "A")
    world.advance(TTL)
    assert world.release("r", "A") == NotHeld()


def test_events_name_what_happened_in_order(world: World) -> None:
    first = world.grant("r", "A")
    world.release("r", "A")
    second = world.grant("r", "B")
    world.revoke("r", force=True)
    told = [(e.kind, e.token, e.holder, e.ttl_ns) for e in world.table.events]
    assert told == [
        (EventKind.GRANTED, first, "h-A", TTL),
        (EventKind.RELEASED, first, "h-A", 0),
        (EventKind.GRANTED, second, "h-B", TTL),
        (EventKind.REVOKED, second, "h-B", 0),
    ]


# --- tokens -------------------------------------------------------------------------------------------------------


def test_tokens_rise_although_the_wall_clock_stands_or_steps_back(world: World) -> None:
    tokens = []
    for turn in range(4):
        tokens.append(world.grant("r", f"A{turn}"))
        world.release("r", f"A{turn}")
        world.table.wall_us -= 3_600_000_000
    assert tokens == sorted(set(tokens)), "tokens out of order"


def test_a_token_lies_above_the_floor_and_above_what_the_asker_has_seen(world: World) -> None:
    world.table.floor = WALL_US + 50
    assert world.grant("r", "A") == WALL_US + 51
    assert world.grant("s", "A", seen_token=WALL_US + 1000) == WALL_US + 1001
    world.table.wall_us = 5
    assert world.grant("t", "A", seen_token=3) == WALL_US + 51


def test_a_forgotten_resource_goes_on_above_its_last_token(world: World) -> None:
    last = world.grant("r", "A", seen_token=WALL_US + 10**9)
    world.release("r", "A")
    assert world.table.collect(world.now) == {"r"}
    assert world.grant("r", "B") > last


def test_tokens_stay_below_two_to_the_53(world: World) -> None:
    assert world.grant("r", "A", seen_token=TOKEN_LIMIT - 2) == TOKEN_LIMIT - 1
    with pytest.raises(ConfigError, match=str(TOKEN_LIMIT)):
        world.acquire("s", "A", seen_token=TOKEN_LIMIT - 1)
    assert world.record("s") is None


# --- the queue ----------------------------------------------------------------------------------------------------


def test_waiters_are_told_their_place_and_keep_it(world: World) -> None:
    token = world.grant("r", "H")
    assert world.queue("r", "A") == Held("h-H", token, TTL, 0)
    assert world.queue("r", "B") == Held("h-H", token, TTL, 1)
    assert world.queue("r", "A") == Held("h-H", token, TTL, 0)
    assert world.acquire("r", "C") == Held("h-H", token, TTL, 2)
    record = world.record("r")
    assert record is not None
    assert [c.holder for c in record.queue] == ["h-A", "h-B"]


def test_a_release_reserves_it_for_the_first_and_calls_only_that_one(world: World) -> None:
    world.grant("r", "H")
    world.queue("r", "A")
    world.queue("r", "B")
    world.release("r", "H")
    assert [(n.address, n.summons, n.lease_id) for n in world.table.notices] == [("to-A", Summons.RESERVED, "A")]
    world.advance(RESERVED // 4)
    assert world.queue("r", "B") == Held("", world.table.load("r").token, RESERVED - RESERVED // 4, 1)
    assert isinstance(world.acquire("r", "passer-by"), Held)
    assert isinstance(world.queue("r", "A"), Granted)


def test_nobody_barges_in_before_a_waiter_when_the_lease_runs_out_by_itself(world: World) -> None:
    world.grant("r", "H")
    world.advance(TTL - SECOND)
    world.queue("r", "A")
    world.advance(SECOND)
    assert isinstance(world.acquire("r", "passer-by"), Held)
    world.advance(RESERVED - 1)
    assert isinstance(world.acquire("r", "passer-by"), Held)
    assert isinstance(world.queue("r", "A"), Granted)


@pytest.mark.parametrize("how", ["release", "expire", "force"])
def test_a_reservation_lapses_and_it_is_the_next_ones_turn(world: World, how: str) -> None:
    world.grant("r", "H")
    world.advance(TTL - SECOND)
    for name in "ABC":
        world.queue("r", name)
    if how == "release":
        world.release("r", "H")
    elif how == "force":
        world.revoke("r", force=True)
    else:
        world.advance(SECOND)
    world.advance(RESERVED)
    assert isinstance(world.queue("r", "C"), Held)
    assert isinstance(world.queue("r", "B"), Granted)


def test_who_stands_behind_one_that_never_came_is_called_and_not_passed_over(world: World) -> None:
    world.grant("r", "H")
    for waiter in "ABC":
        world.queue("r", waiter)
    world.release("r", "H")  # A is called, and is dead; nobody else knows
    world.advance(10 * RESERVED)
    assert isinstance(world.queue("r", "C"), Held), "C came before B, which was never called"
    assert world.table.notices[-1].lease_id == "B"
    assert isinstance(world.acquire("r", "B"), Granted)


def test_a_waiter_that_was_passed_keeps_its_place_when_it_shows_up_again(world: World) -> None:
    world.grant("r", "H")
    world.queue("r", "A")
    world.queue("r", "B")
    world.release("r", "H")
    world.advance(RESERVED)
    world.grant("r", "B", queue=True)
    world.queue("r", "C")
    assert world.queue("r", "A") == Held("h-B", world.table.load("r").token, TTL, 0)
    world.called()
    world.release("r", "B")
    assert world.called() == ["A"]
    assert isinstance(world.queue("r", "C"), Held)
    assert isinstance(world.queue("r", "A"), Granted)


def test_a_waiter_that_was_passed_and_stays_away_is_not_called_again(world: World) -> None:
    world.grant("r", "H")
    world.queue("r", "A")
    world.queue("r", "B")
    world.release("r", "H")
    world.advance(RESERVED)
    world.grant("r", "B", queue=True)
    world.called()
    world.release("r", "B")
    assert world.called() == []
    assert isinstance(world.acquire("r", "passer-by"), Granted)


def test_a_turn_that_somebody_was_told_of_stays_that_ones_for_everybody(world: World) -> None:
    """Asking without queueing settles whose turn it is, also in a table that keeps copies."""
    world.grant("r", "H")
    world.queue("r", "A")
    world.queue("r", "B")
    world.release("r", "H")
    world.advance(RESERVED + 50 * MS)
    assert isinstance(world.acquire("r", "passer-by"), Held)
    assert isinstance(world.queue("r", "A"), Held)
    assert isinstance(world.queue("r", "B"), Granted)


def test_a_waiter_that_never_shows_up_drops_out(world: World) -> None:
    world.grant("r", "H", ttl_ns=60 * SECOND)
    world.queue("r", "dead")
    world.advance(WAITER_LIFE_NS)
    assert world.queue("r", "A") == Held("h-H", world.table.load("r").token, 54 * SECOND, 0)
    world.release("r", "H")
    assert world.called() == ["A"]


@pytest.mark.parametrize("how", ["release", "expire"])
def test_when_the_one_whose_turn_it_is_leaves_the_next_is_called_at_once(world: World, how: str) -> None:
    world.grant("r", "H")
    world.advance(TTL - SECOND)
    for name in "ABC":
        world.queue("r", name)
    if how == "release":
        world.release("r", "H")
    else:
        world.advance(SECOND)
    world.advance(RESERVED // 2)
    world.called()
    assert world.release("r", "A") == NotHeld("was waiting")
    assert world.called() == ["B"]
    world.advance(RESERVED - 1)
    assert isinstance(world.acquire("r", "passer-by"), Held)
    assert isinstance(world.queue("r", "B"), Granted)


def test_when_somebody_leaves_the_turn_of_another_is_left_alone(world: World) -> None:
    world.grant("r", "H")
    for name in "ABC":
        world.queue("r", name)
    world.release("r", "H")
    world.advance(RESERVED + RESERVED // 2)  # A has missed its turn, and it is B's
    world.called()
    world.release("r", "C")
    assert isinstance(world.queue("r", "A"), Held)
    assert isinstance(world.queue("r", "B"), Granted)


def test_leaving_the_queue_of_a_held_resource_calls_nobody(world: World) -> None:
    world.grant("r", "H")
    world.queue("r", "A")
    world.queue("r", "B")
    world.release("r", "A")
    assert world.called() == []
    assert world.queue("r", "B") == Held("h-H", world.table.load("r").token, TTL, 0)


def test_a_higher_priority_comes_first_and_equals_in_the_order_of_arrival(world: World) -> None:
    token = world.grant("r", "H")
    for name, priority, before in (("A", 0, 0), ("B", 5, 0), ("C", 0, 2), ("D", 5, 1), ("E", -1, 4), ("F", 9, 0)):
        assert world.queue("r", name, priority=priority) == Held("h-H", token, TTL, before)
    assert world.queue("r", "A") == Held("h-H", token, TTL, 3)
    assert world.acquire("r", "passer-by", priority=5) == Held("h-H", token, TTL, 3)
    assert [c.holder for c in world.table.load("r").contenders(world.now)] == [f"h-{name}" for name in "FBDACE"]
    world.release("r", "H")
    assert world.called() == ["F"]
    for name in "FBDACE":
        assert isinstance(world.queue("r", name), Granted)
        world.release("r", name)


def test_a_place_keeps_its_priority(world: World) -> None:
    world.grant("r", "H")
    world.queue("r", "A", priority=1)
    world.queue("r", "B", priority=2)
    world.queue("r", "A", priority=3)
    assert [c.priority for c in world.table.load("r").contenders(world.now)] == [2, 1]


def test_a_higher_priority_does_not_take_what_is_reserved_already(world: World) -> None:
    world.grant("r", "H")
    world.queue("r", "A")
    world.release("r", "H")
    assert isinstance(world.queue("r", "B", priority=9), Held)
    assert isinstance(world.queue("r", "A"), Granted)


def test_a_full_queue_takes_nobody_more_and_keeps_those_in_it(world: World) -> None:
    token = world.grant("r", "H")
    world.queue("r", "A")
    assert world.queue("r", "B", queue_limit=2) == Held("h-H", token, TTL, 1)
    assert world.queue("r", "C", queue_limit=2, priority=1) == Held("h-H", token, TTL, 0, refused=True)
    assert world.queue("r", "B", queue_limit=1) == Held("h-H", token, TTL, 1)
    assert world.acquire("r", "C", queue_limit=2) == Held("h-H", token, TTL, 2)
    world.advance(LIFE - SECOND)
    world.queue("r", "B")
    world.advance(SECOND)
    assert world.queue("r", "C", queue_limit=2) == Held("h-H", token, TTL - LIFE, 1)


def test_a_full_queue_keeps_nobody_from_what_is_free(world: World) -> None:
    world.grant("r", "H")
    world.queue("r", "A")
    world.release("r", "H")
    world.advance(RESERVED)
    assert isinstance(world.queue("r", "B", queue_limit=1), Granted)


def test_a_full_queue_behind_a_reservation(world: World) -> None:
    token = world.grant("r", "H")
    world.queue("r", "A")
    world.release("r", "H")
    assert world.queue("r", "B", queue_limit=1) == Held("", token, RESERVED, 1, refused=True)
    assert isinstance(world.queue("r", "A"), Granted)


def test_a_release_to_a_successor_keeps_it_for_that_name_and_not_for_long(world: World) -> None:
    world.grant("r", "H")
    world.queue("r", "A")
    world.release("r", "H", successor="h-S")
    assert isinstance(world.queue("r", "A"), Held)
    assert isinstance(world.acquire("r", "S"), Granted)
    world.release("r", "S", successor="nobody")
    world.advance(RESERVED)
    assert isinstance(world.queue("r", "A"), Granted)


def test_the_successor_gets_what_was_left_for_it_as_often_as_it_asks(world: World) -> None:
    world.grant("r", "H")
    world.release("r", "H", successor="h-S", state="blob", reserve_ns=2 * SECOND)
    world.advance(2 * SECOND - 1)
    assert isinstance(world.acquire("r", "B"), Held)
    first = world.acquire("r", "S")
    assert isinstance(first, Granted)
    assert first.state == "blob"
    world.advance(SECOND)
    assert world.acquire("r", "S") == Granted(first.token, TTL - SECOND, "blob")
    world.renew("r", "S", first.token)
    world.release("r", "S")
    assert world.acquire("r", "B") == Granted(world.table.wall_us, TTL)


def test_what_was_left_for_a_successor_that_never_came_goes_to_nobody(world: World) -> None:
    world.grant("r", "H")
    world.release("r", "H", successor="h-S", state="blob", reserve_ns=SECOND)
    world.advance(SECOND)
    other = world.acquire("r", "S")
    assert isinstance(other, Granted)
    assert other.state == ""


def test_a_successor_in_the_queue_is_called_and_goes_first(world: World) -> None:
    token = world.grant("r", "H")
    for name in "ABC":
        world.queue("r", name)
    world.release("r", "H", successor="h-B", state="blob", reserve_ns=SECOND)
    assert world.called() == ["B", "A"]
    assert world.queue("r", "A") == Held("", token, SECOND, 1)
    granted = world.queue("r", "B")
    assert isinstance(granted, Granted)
    assert granted.state == "blob"
    assert [c.holder for c in world.table.load("r").contenders(world.now)] == ["h-A", "h-C"]


def test_a_successor_in_the_queue_that_leaves_makes_room_for_the_first(world: World) -> None:
    world.grant("r", "H")
    world.queue("r", "A")
    world.queue("r", "B")
    world.release("r", "H", successor="h-B", state="blob", reserve_ns=SECOND)
    world.called()
    world.release("r", "B")
    assert world.called() == ["A"]
    granted = world.queue("r", "A")
    assert isinstance(granted, Granted)
    assert granted.state == ""


def test_while_it_waits_for_a_successor_the_first_in_the_queue_learns_when_to_come(world: World) -> None:
    token = world.grant("r", "H")
    world.queue("r", "A")
    world.queue("r", "B")
    world.release("r", "H", successor="h-S", reserve_ns=SECOND)
    assert world.called() == ["A"]
    assert world.queue("r", "A") == Held("", token, SECOND, 1)
    world.release("r", "A")
    assert world.called() == ["B"]
    assert world.queue("r", "B") == Held("", token, SECOND, 1)
    world.advance(SECOND)
    assert isinstance(world.queue("r", "B"), Granted)


def test_a_handover_before_the_minimum_hold_is_over_waits_for_it(world: World) -> None:
    token = world.grant("r", "H", hold_at_least_ns=3 * SECOND)
    world.advance(SECOND)
    assert world.release("r", "H", successor="h-S", state="blob", reserve_ns=SECOND) == Released(2 * SECOND)
    assert world.acquire("r", "S") == Held("h-H", token, 2 * SECOND, 0, closed=Closed.HOLD_AT_LEAST)
    world.advance(3 * SECOND - 1)
    granted = world.acquire("r", "S")
    assert isinstance(granted, Granted)
    assert granted.state == "blob"


# --- abandoned requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seen", ["never", "holding", "waiting", "expired"])
def test_an_abandoned_id_is_never_granted_again(world: World, seen: str) -> None:
    if seen == "holding":
        world.grant("r", "A")
    elif seen == "waiting":
        world.grant("r", "H")
        world.queue("r", "A")
        world.release("r", "H")
    elif seen == "expired":
        world.grant("r", "A")
        world.advance(TTL)
    world.release("r", "A", abandon=True)
    assert world.acquire("r", "A") == Lost(Loss.RELEASED)
    other = world.grant("r", "B")
    world.release("r", "B")
    world.advance(rules.TOMBSTONE_NS - 1)
    assert world.acquire("r", "A") == Lost(Loss.RELEASED)
    world.table.collect(world.now)
    assert world.acquire("r", "A") == Lost(Loss.RELEASED)
    world.advance(1)
    assert world.grant("r", "C") > other


def test_a_tombstone_goes_away_in_the_end(world: World) -> None:
    world.release("r", "A", abandon=True)
    world.advance(rules.TOMBSTONE_NS)
    assert world.table.collect(world.now) == {"r"}


# --- times around a lease -----------------------------------------------------------------------------------------


def test_the_lock_delay_comes_after_an_expiry_and_not_after_a_release(world: World) -> None:
    world.grant("r", "A", lock_delay_ns=2 * SECOND)
    world.advance(TTL)
    token = world.table.load("r").token
    assert world.acquire("r", "B") == Held("h-A", token, 2 * SECOND, 0, closed=Closed.LOCK_DELAY)
    world.advance(2 * SECOND)
    world.grant("r", "B", lock_delay_ns=2 * SECOND)
    world.release("r", "B")
    assert isinstance(world.acquire("r", "C"), Granted)


def test_turns_begin_when_the_lock_delay_is_over(world: World) -> None:
    world.grant("r", "H", ttl_ns=SECOND, lock_delay_ns=SECOND)
    world.queue("r", "A")
    world.advance(2 * SECOND)
    assert isinstance(world.acquire("r", "passer-by"), Held)
    world.advance(RESERVED)
    assert isinstance(world.acquire("r", "passer-by"), Granted)


def test_a_release_before_the_minimum_hold_keeps_others_out_until_then(world: World) -> None:
    world.grant("r", "A", hold_at_least_ns=5 * SECOND)
    world.queue("r", "B")
    world.advance(SECOND)
    assert world.release("r", "A") == Released(4 * SECOND)
    record = world.record("r")
    assert record is not None
    assert (record.closed, record.remaining_ns) == (Closed.HOLD_AT_LEAST, 4 * SECOND)
    assert isinstance(world.queue("r", "B"), Held)
    world.advance(4 * SECOND)
    assert isinstance(world.acquire("r", "passer-by"), Held)
    assert isinstance(world.queue("r", "B"), Granted)


def test_a_revocation_opens_what_the_minimum_hold_closes_and_calls_whose_turn_it_is(world: World) -> None:
    token = world.grant("r", "A", hold_at_least_ns=60 * SECOND)
    world.queue("r", "B")
    world.queue("r", "C")
    world.release("r", "A")
    world.table.notices.clear()
    world.table.events.clear()
    assert world.revoke("r", token=token - 1) == NotHeld()
    assert world.revoke("r") == Released()
    assert [notice.lease_id for notice in world.table.notices] == ["B"]
    assert [(event.kind, event.token, event.ttl_ns) for event in world.table.events] == [(EventKind.REVOKED, token, 0)]
    assert isinstance(world.queue("r", "C"), Held)
    assert isinstance(world.queue("r", "B"), Granted)


def test_what_is_opened_after_a_handover_is_kept_for_the_successor(world: World) -> None:
    world.grant("r", "A", hold_at_least_ns=60 * SECOND)
    world.queue("r", "B")
    world.release("r", "A", successor="h-S", state="blob", reserve_ns=SECOND)
    assert world.revoke("r") == Released()
    assert world.record("r") is None
    held = world.queue("r", "B")
    assert isinstance(held, Held)
    assert (held.by, held.remaining_ns) == ("", SECOND)
    granted = world.acquire("r", "S")
    assert isinstance(granted, Granted)
    assert granted.state == "blob"


def test_what_is_opened_when_nobody_waits_any_more_is_free(world: World) -> None:
    world.grant("r", "A", hold_at_least_ns=60 * SECOND)
    world.queue("r", "B")
    world.release("r", "A")
    world.advance(LIFE)
    assert world.revoke("r") == Released()
    assert isinstance(world.acquire("r", "passer-by"), Granted)


def test_only_force_opens_what_the_lock_delay_closes(world: World) -> None:
    token = world.grant("r", "A", lock_delay_ns=60 * SECOND, grace_ns=60 * SECOND)
    world.advance(TTL)
    world.queue("r", "B")
    assert world.revoke("r") == Held("h-A", token, 60 * SECOND, 0, closed=Closed.LOCK_DELAY)
    record = world.record("r")
    assert record is not None
    assert (record.closed, record.remaining_ns, record.grace_ns) == (Closed.LOCK_DELAY, 60 * SECOND, 0)
    assert world.revoke("r", force=True) == Released()
    assert [notice.lease_id for notice in world.table.notices] == ["B"]
    assert world.renew("r", "A", token) == Lost(Loss.REVOKED)
    assert isinstance(world.queue("r", "B"), Granted)


def test_after_the_minimum_hold_a_release_frees_at_once(world: World) -> None:
    world.grant("r", "A", hold_at_least_ns=SECOND)
    world.advance(SECOND)
    assert world.release("r", "A") == Released(0)


def test_within_the_grace_a_renewal_revives_what_nobody_wanted(world: World) -> None:
    token = world.grant("r", "A", grace_ns=SECOND)
    world.advance(TTL + SECOND - 1)
    assert world.renew("r", "A", token) == Renewed(TTL)


def test_the_grace_ends_and_yields_to_whoever_waits(world: World) -> None:
    token = world.grant("r", "A", grace_ns=SECOND)
    world.advance(TTL + SECOND)
    assert world.renew("r", "A", token) == Lost(Loss.EXPIRED)
    token = world.grant("s", "A", grace_ns=SECOND)
    world.advance(TTL - SECOND)
    world.queue("s", "B")
    world.advance(SECOND)
    assert world.renew("s", "A", token) == Lost(Loss.EXPIRED)


def test_the_grace_keeps_nobody_out(world: World) -> None:
    token = world.grant("r", "A", grace_ns=SECOND)
    world.advance(TTL)
    assert isinstance(world.acquire("r", "B"), Granted)
    assert world.renew("r", "A", token) == Lost(Loss.TAKEN)


def test_a_renewal_overtaken_by_the_release_is_not_saved_by_the_grace(world: World) -> None:
    token = world.grant("r", "A", grace_ns=SECOND)
    world.advance(TTL)
    world.release("r", "A")
    assert world.renew("r", "A", token) == Lost(Loss.EXPIRED)


# --- revocation ---------------------------------------------------------------------------------------------------


def test_a_revoked_lease_keeps_others_out_until_the_promised_expiry_and_is_not_renewed(world: World) -> None:
    token = world.grant("r", "A", notify="to-A")
    world.advance(SECOND)
    assert world.revoke("r") == Released(TTL - SECOND)
    assert [(n.address, n.summons, n.lease_id) for n in world.table.notices] == [("to-A", Summons.REVOKED, "A")]
    world.advance(SECOND)
    assert world.renew("r", "A", token) == Lost(Loss.REVOKED, TTL - 2 * SECOND)
    assert isinstance(world.acquire("r", "B"), Held)
    world.advance(TTL - 2 * SECOND)
    assert isinstance(world.acquire("r", "B"), Granted)


def test_a_lease_revoked_by_force_is_free_at_once(world: World) -> None:
    token = world.grant("r", "A", hold_at_least_ns=TTL, lock_delay_ns=TTL)
    assert world.revoke("r", force=True) == Released(0)
    assert world.grant("r", "B") > token
    assert world.renew("r", "A", token) == Lost(Loss.TAKEN)


def test_the_holder_learns_that_it_was_revoked_by_force(world: World) -> None:
    token = world.grant("r", "A")
    world.revoke("r", force=True)
    assert world.renew("r", "A", token) == Lost(Loss.REVOKED)


def test_a_revocation_for_one_token_spares_the_next_lease(world: World) -> None:
    old = world.grant("r", "A")
    world.release("r", "A")
    world.grant("r", "B")
    assert world.revoke("r", force=True, token=old) == NotHeld()
    assert world.holds("r", "B")


@pytest.mark.parametrize("force", [True, False])
def test_there_is_nothing_to_revoke_where_nobody_holds(world: World, *, force: bool) -> None:
    assert world.revoke("r", force=force) == NotHeld()
    world.grant("r", "A")
    world.advance(TTL)
    assert world.revoke("r", force=force) == NotHeld()


def test_a_revoked_lease_can_still_be_released_early(world: World) -> None:
    world.grant("r", "A")
    world.revoke("r")
    assert world.release("r", "A") == Released(0)
    assert isinstance(world.acquire("r", "B"), Granted)


# --- soft limits ----------------------------------------------------------------------------------------------------


def test_a_challenger_ends_a_lease_held_beyond_its_soft_limit_as_a_revocation_does(world: World) -> None:
    token = world.grant("r", "A", soft_ns=3 * SECOND, notify="to-A")
    world.advance(2 * SECOND)
    world.renew("r", "A", token)
    world.advance(SECOND - 1)
    assert world.acquire("r", "B", recover=True) == Held("h-A", token, TTL - SECOND + 1, 0)
    assert isinstance(world.renew("r", "A", token), Renewed)
    world.table.events.clear()
    world.advance(1)
    assert world.acquire("r", "B") == Held("h-A", token, TTL - 1, 0)
    assert world.queue("r", "B", recover=True) == Held("h-A", token, TTL - 1, 0)
    assert world.renew("r", "A", token) == Lost(Loss.REVOKED, TTL - 1)
    assert world.called() == ["A"]
    assert [(e.kind, e.ttl_ns) for e in world.table.events] == [(EventKind.REVOKED, TTL - 1)]
    assert isinstance(world.queue("r", "B", recover=True), Held)
    assert world.called() == []
    world.advance(TTL - 1)
    assert isinstance(world.queue("r", "B"), Granted)


def test_a_lease_without_a_soft_limit_is_not_ended_by_a_challenger(world: World) -> None:
    token = world.grant("r", "A")
    world.advance(TTL - 1)
    assert isinstance(world.acquire("r", "B", recover=True), Held)
    assert isinstance(world.renew("r", "A", token), Renewed)


def test_a_recovery_that_finds_the_queue_full_has_still_asked_for_it(world: World) -> None:
    token = world.grant("r", "A", soft_ns=1)
    world.queue("r", "B")
    world.advance(1)
    outcome = world.queue("r", "C", queue_limit=1, recover=True)
    assert isinstance(outcome, Held)
    assert outcome.refused
    assert isinstance(world.renew("r", "A", token), Lost)


# --- parents ------------------------------------------------------------------------------------------------------


def three_levels(world: World, *, child_ttl: int = TTL) -> tuple[int, int, int]:
    top = world.grant("top", "T", 5 * SECOND)
    middle = world.grant("middle", "M", child_ttl, parent=("top", top))
    bottom = world.grant("bottom", "B", child_ttl, parent=("middle", middle))
    return top, middle, bottom


@pytest.mark.parametrize("child_ttl", [0, TTL])
def test_a_child_ends_when_its_parents_do(world: World, child_ttl: int) -> None:
    _, middle, bottom = three_levels(world, child_ttl=child_ttl)
    world.advance(5 * SECOND - 1)
    assert world.holds("bottom", "B")
    world.advance(1)
    assert world.record("bottom") is None
    assert world.renew("bottom", "B", bottom) == Lost(Loss.EXPIRED)
    assert world.renew("middle", "M", middle) == Lost(Loss.EXPIRED)
    assert isinstance(world.acquire("bottom", "X"), Granted)


@pytest.mark.parametrize("child_ttl", [0, TTL])
def test_a_renewal_of_a_child_does_not_reach_beyond_its_parent(world: World, child_ttl: int) -> None:
    _, _, bottom = three_levels(world, child_ttl=child_ttl)
    world.advance(SECOND)
    assert world.renew("bottom", "B", bottom, ttl_ns=100 * SECOND) == Renewed(4 * SECOND)


def test_a_sessions_renewal_carries_its_children_along(world: World) -> None:
    top, _, bottom = three_levels(world, child_ttl=0)
    for _ in range(30):
        world.advance(4 * SECOND)
        assert world.renew("top", "T", top, 5 * SECOND) == Renewed(5 * SECOND)
        assert world.table.collect(world.now) == set()
    assert world.holds("bottom", "B")
    record = world.record("bottom")
    assert record is not None
    assert (record.token, record.remaining_ns, record.parent) == (bottom, 5 * SECOND, ("middle", bottom))


def test_a_lease_that_lasts_as_long_as_its_parent_is_not_forgotten_without_a_look_at_it(world: World) -> None:
    three_levels(world, child_ttl=0)
    assert not rules.is_dead(world.table.load("bottom"), world.now + 100 * TTL)


@pytest.mark.parametrize("child_ttl", [0, TTL])
@pytest.mark.parametrize("how", ["release", "force"])
def test_ending_a_parent_ends_what_stands_under_it_in_the_same_step(world: World, how: str, child_ttl: int) -> None:
    _, _, bottom = three_levels(world, child_ttl=child_ttl)
    world.queue("bottom", "W")
    world.table.events.clear()
    if how == "release":
        world.release("top", "T")
    else:
        world.revoke("top", force=True)
    assert [world.record(name) for name in ("top", "middle", "bottom")] == [None] * 3
    assert sorted(e.resource for e in world.table.events) == ["bottom", "middle", "top"]
    assert world.called() == ["W"]
    assert isinstance(world.renew("bottom", "B", bottom), Lost)
    assert isinstance(world.queue("bottom", "W"), Granted)


@pytest.mark.parametrize("child_ttl", [0, TTL])
def test_a_child_of_an_expired_parent_stays_dead_when_the_parents_resource_goes_on(
    world: World, child_ttl: int
) -> None:
    top = world.grant("top", "T", 5 * SECOND)
    child = world.grant("child", "C", child_ttl, parent=("top", top), grace_ns=TTL)
    world.advance(5 * SECOND)
    world.grant("top", "T2")
    assert world.record("child") is None
    assert world.renew("child", "C", child) == Lost(Loss.EXPIRED)
    assert isinstance(world.acquire("child", "X"), Granted)


@pytest.mark.parametrize("child_ttl", [0, TTL])
def test_a_released_child_is_free_although_its_parent_lives(world: World, child_ttl: int) -> None:
    _, _, bottom = three_levels(world, child_ttl=child_ttl)
    assert world.release("bottom", "B") == Released(0)
    assert world.grant("bottom", "X") > bottom


@pytest.mark.parametrize("child_ttl", [0, TTL])
def test_a_revoked_child_ends_as_promised_however_long_its_parent_goes_on(world: World, child_ttl: int) -> None:
    top, _, bottom = three_levels(world, child_ttl=child_ttl)
    assert world.revoke("bottom") == Released(5 * SECOND)
    world.advance(4 * SECOND)
    world.renew("top", "T", top, 5 * SECOND)
    assert world.renew("bottom", "B", bottom) == Lost(Loss.REVOKED, SECOND)
    world.advance(SECOND)
    assert world.record("bottom") is None
    assert isinstance(world.acquire("bottom", "X"), Granted)


@pytest.mark.parametrize("how", ["revoke", "force", "recover"])
def test_a_lease_ended_by_somebody_else_is_counted_in_all_above_it(world: World, how: str) -> None:
    top, middle, bottom = three_levels(world, child_ttl=0)
    assert world.renew("top", "T", top) == Renewed(TTL)
    if how == "recover":
        world.release("bottom", "B")
        world.grant("bottom", "B", 0, parent=("middle", middle), soft_ns=1)
        world.advance(1)
        world.acquire("bottom", "X", recover=True)
    else:
        world.revoke("bottom", force=how == "force")
    for name, lease_id, token in (("top", "T", top), ("middle", "M", middle)):
        outcome = world.renew(name, lease_id, token)
        assert isinstance(outcome, Renewed)
        assert outcome.ended == 1
    assert bottom
    world.revoke("middle", force=True)
    assert world.renew("top", "T", top) == Renewed(TTL, 2)


def test_a_lease_that_its_owner_ends_is_not_counted(world: World) -> None:
    top, *_ = three_levels(world)
    world.release("bottom", "B")
    assert world.renew("top", "T", top) == Renewed(TTL)


def test_the_count_begins_anew_with_the_next_lease(world: World) -> None:
    three_levels(world)
    world.revoke("bottom", force=True)
    world.release("top", "T")
    top = world.grant("top", "T2")
    assert world.renew("top", "T2", top) == Renewed(TTL)


def test_a_lease_under_an_earlier_one_is_not_counted_in_the_next(world: World) -> None:
    _, middle, _ = three_levels(world)
    world.release("middle", "M")
    world.grant("bottom", "B", parent=None)
    world.grant("middle", "M2")
    world.revoke("bottom", force=True)
    outcome = world.renew("middle", "M2", middle + 1)
    assert isinstance(outcome, Renewed)
    assert outcome.ended == 0


def test_a_child_is_not_granted_under_a_parent_that_is_over(world: World) -> None:
    top = world.grant("top", "T")
    assert world.acquire("child", "C", parent=("top", top + 1)) == Lost(Loss.EXPIRED)
    assert world.acquire("child", "C", parent=("elsewhere", top)) == Lost(Loss.EXPIRED)
    world.release("top", "T")
    assert world.acquire("child", "C", parent=("top", top)) == Lost(Loss.EXPIRED)
    assert world.record("child") is None


def test_cycles_are_refused_and_change_nothing(world: World) -> None:
    _, _, bottom = three_levels(world)
    world.queue("top", "W", parent=None)
    before = repr(sorted(world.table.entries.items()))
    for name in ("top", "middle"):
        with pytest.raises(ConfigError, match="cycle"):
            world.acquire(name, "X", parent=("bottom", bottom))
    with pytest.raises(ConfigError, match="itself"):
        world.acquire("bottom", "X", parent=("bottom", bottom))
    assert repr(sorted(world.table.entries.items())) == before


def test_a_pointer_left_by_an_ended_lease_makes_no_cycle(world: World) -> None:
    top, middle, _ = three_levels(world)
    world.release("top", "T")
    assert world.acquire("top", "X", parent=("middle", middle)) == Lost(Loss.EXPIRED)
    fresh = world.grant("middle", "M2")
    assert isinstance(world.acquire("top", "X", parent=("middle", fresh)), Granted)
    assert top < fresh


def test_leases_stand_at_most_so_many_levels_deep(world: World) -> None:
    parent = ("r0", world.grant("r0", "A"))
    for level in range(1, rules.MAX_DEPTH + 1):
        parent = (f"r{level}", world.grant(f"r{level}", "A", 0, parent=parent))
    with pytest.raises(ConfigError, match=str(rules.MAX_DEPTH)):
        world.acquire("too-deep", "A", parent=parent)
    world.release("r0", "A")
    assert world.record(f"r{rules.MAX_DEPTH}") is None


# --- forgetting ---------------------------------------------------------------------------------------------------


def test_only_what_is_free_and_unwanted_is_forgotten(world: World) -> None:
    world.grant("held", "A")
    world.grant("delayed", "A", ttl_ns=SECOND, lock_delay_ns=TTL)
    world.grant("closed", "A", hold_at_least_ns=TTL)
    world.release("closed", "A")
    world.grant("wanted", "A", ttl_ns=3 * SECOND)
    world.queue("wanted", "B")
    world.grant("free", "A")
    world.release("free", "A")
    world.advance(3 * SECOND)
    world.grant("handed", "A")
    world.release("handed", "A", successor="S")
    world.release("buried", "A", abandon=True)
    assert world.table.collect(world.now) == {"free"}
    world.advance(10 * TTL)
    assert world.table.collect(world.now) == {"held", "delayed", "closed", "wanted", "handed", "buried"}
