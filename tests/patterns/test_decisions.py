from __future__ import annotations

import pytest

from lessor import Event, EventKind, Leader
from lessor.core.view import EPOCH
from lessor.patterns.drain import Intake
from lessor.patterns.election import FIRST_REST, LONGEST_REST, Leaders, Rest


def event(kind: EventKind, token: int, remaining: float = 0.0, resource: str = "x") -> Event:
    return Event(kind, resource, token, "somebody", EPOCH, remaining)


def test_a_grant_makes_a_leader_and_its_end_unmakes_it() -> None:
    leaders = Leaders("x")
    leaders.begin(None)
    assert leaders.changes(event(EventKind.GRANTED, 3))
    assert leaders.leader == Leader("somebody", 3, EPOCH)
    assert leaders.changes(event(EventKind.RELEASED, 3))
    assert leaders.leader is None


def test_what_happened_before_the_first_look_is_no_news() -> None:
    leaders = Leaders("x")
    leaders.begin(Leader("b", 6, EPOCH))
    for old in (event(EventKind.GRANTED, 5), event(EventKind.RELEASED, 5), event(EventKind.GRANTED, 6)):
        assert not leaders.changes(old)
    assert leaders.leader == Leader("b", 6, EPOCH)


def test_a_revoked_leader_leads_until_the_expiry_already_promised() -> None:
    leaders = Leaders("x")
    leaders.begin(Leader("b", 6, EPOCH))
    assert not leaders.changes(event(EventKind.REVOKED, 6, remaining=0.1))
    assert leaders.changes(event(EventKind.EXPIRED, 6))
    leaders.begin(Leader("b", 6, EPOCH))
    assert leaders.changes(event(EventKind.REVOKED, 6))


def test_other_resources_that_begin_alike_are_none_of_its_business() -> None:
    leaders = Leaders("x")
    leaders.begin(None)
    assert not leaders.changes(event(EventKind.GRANTED, 3, resource="x/y"))


@pytest.mark.parametrize("drawn", [0.0, 0.5, 1.0])
def test_a_rest_grows_with_the_losses_in_a_row_within_bounds(drawn: float) -> None:
    rest = Rest(lambda: drawn)
    rests = [rest.after(well=False) for _ in range(20)]
    assert rests == sorted(rests)
    assert FIRST_REST / 2 <= rests[0] <= FIRST_REST
    assert LONGEST_REST / 2 <= rests[-1] <= LONGEST_REST
    assert rest.after(well=True) == 0
    assert rest.after(well=False) == rests[0]


def test_an_intake_tells_when_the_last_one_has_left() -> None:
    intake, told = Intake(), []
    assert intake.enter("a")
    assert intake.enter("b")
    intake.leave("a")
    intake.close(lambda: told.append(1))
    assert not intake.enter("c")
    intake.leave("c")
    assert (intake.in_flight, told) == (1, [])
    intake.leave("b")
    assert told == [1]
    intake.close(lambda: told.append(2))
    assert told == [1, 2]
