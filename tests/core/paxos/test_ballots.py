from __future__ import annotations

from lessor.core.paxos.ballots import DAY_US, Ballots

WALL = 10**15


def test_numbers_follow_the_wall_clock_and_never_go_back() -> None:
    ballots = Ballots(3)
    assert [ballots.fresh(WALL), ballots.fresh(WALL), ballots.fresh(WALL - 10), ballots.next(WALL + 10, 0)] == [
        WALL, WALL + 1, WALL + 2, WALL + 3,
    ]  # fmt: skip
    ballots.saw(WALL + 50)
    assert ballots.fresh(WALL) == WALL + 51


def test_what_one_demands_is_heeded_within_half_a_day() -> None:
    ballots = Ballots(3)
    ballots.heard("a", WALL + DAY_US // 2 + 1)
    assert ballots.fresh(WALL) == WALL
    assert ballots.next(WALL + 1, 0) == WALL + DAY_US // 2 + 2, "the clock has gone on"


def test_what_a_majority_demands_is_heeded_whatever_the_own_clock_shows() -> None:
    ballots = Ballots(5)
    ballots.heard("a", WALL + 30 * DAY_US)
    ballots.heard("b", WALL + 3 * DAY_US)
    assert ballots.fresh(WALL) == WALL
    ballots.heard("c", WALL + 2 * DAY_US)
    assert ballots.fresh(WALL) == WALL + 2 * DAY_US + 1
    ballots.heard("c", WALL)
    assert ballots.heeds(WALL + 2 * DAY_US, WALL), "a floor never goes back"
