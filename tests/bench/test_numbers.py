"""The arithmetic between samples and tables."""

from __future__ import annotations

import pytest

from bench.contestants import everybody
from bench.goals import GOALS, Goal, Reached
from bench.places import STORES
from bench.results import Entry, Found, Measure, ratio
from bench.works import on_no_store, on_stores, selected

SPEED = Measure("speed", "speed", "a second", "speed", lower_is_better=False)
WAIT = Measure("wait", "wait", "ms", "wait")


def entry(name: str = "x", kind: str = "peer", league: str = "threads", **samples: list[float]) -> Entry:
    return Entry(name, kind, league, samples=samples)


@pytest.mark.parametrize(
    ("measure", "ours", "theirs", "times"),
    [(SPEED, 200.0, 100.0, 2.0), (SPEED, 100.0, 200.0, 0.5), (WAIT, 2.0, 10.0, 5.0), (WAIT, 10.0, 2.0, 0.2)],
)
def test_a_ratio_above_one_means_that_ours_is_better(
    measure: Measure, ours: float, theirs: float, times: float
) -> None:
    found = ratio(measure, entry(speed=[ours], wait=[ours]), entry(speed=[theirs], wait=[theirs]))
    assert found is not None
    assert found.value == times


def test_ratios_are_taken_within_each_round() -> None:
    found = ratio(SPEED, entry(speed=[10.0, 200.0, 30.0]), entry(speed=[5.0, 100.0, 10.0]))
    assert found is not None
    assert found.value == 2.0
    assert found.spread == (2.0, 2.5)


def test_nothing_is_compared_with_zero() -> None:
    assert ratio(SPEED, entry(speed=[1.0]), entry(speed=[0.0])) is None


@pytest.mark.parametrize(
    ("statistic", "value"), [("median", 2.5), ("max", 4.0), ("min", 1.0), ("p50", 3.0), ("p99", 4.0)]
)
def test_a_measure_reduces_its_samples(statistic: str, value: float) -> None:
    assert Measure("x", "x", "", "x", statistic).reduce([4.0, 1.0, 3.0, 2.0]) == value


def test_ours_comes_first_floors_last_and_the_best_peer_before_the_others() -> None:
    entries = [
        entry("floor", "floor", speed=[9.0]),
        entry("slow", speed=[1.0]),
        entry("fast", speed=[2.0]),
        entry("ours", "ours", speed=[0.5]),
    ]
    assert [e.name for e in Found("x", "x", [SPEED], entries, []).entries] == ["ours", "fast", "slow", "floor"]


def test_tasks_are_compared_with_tasks_and_threads_with_threads() -> None:
    tasks, threads = entry("a", "ours", "tasks", speed=[2.0]), entry("b", "ours", "threads", speed=[1.0])
    peers = [entry("c", league="tasks", speed=[1.0]), entry("d", league="threads", speed=[1.0])]
    found = Found("x", "x", [SPEED], [tasks, threads, *peers], [])
    assert [found.ours_for(peer) for peer in peers] == [tasks, threads]


@pytest.mark.parametrize(("at_least", "value", "met"), [(True, 1.9, True), (True, 1.7, False), (False, 1.9, False)])
def test_a_goal_is_a_bound_from_one_side(*, at_least: bool, value: float, met: bool) -> None:
    assert Reached(Goal("x", "x", "x", "x", 1.8, at_least), value).met is met


def test_goals_name_works_measures_and_contestants_that_exist() -> None:
    stores = tuple(STORES)
    works = {f"{store}.{work.name}": work for store in stores for work in on_stores(quick=False)}
    names = {(kind.store, kind.name) for kind in everybody() if kind.takes_part("sequential") or kind.kind == "floor"}
    others = {work.name: work for work in on_no_store(quick=False)}
    for goal in GOALS:
        measures = (works | others)[goal.work].measures
        assert goal.measure in {measure.key for measure in measures}, goal
        if goal.work in works:
            store = goal.work.partition(".")[0]
            assert (store, goal.ours) in names, goal
            assert not goal.peer or (store, goal.peer) in names, goal


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [([], True), (["redis"], True), (["handover"], True), (["redis.h*"], True), (["sqlite"], False), (["red"], False)],
)
def test_works_are_selected_by_name_store_or_kind(*, patterns: list[str], chosen: bool) -> None:
    assert selected("redis.handover", patterns) is chosen
