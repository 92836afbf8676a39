"""What the patterns decide, without a store."""

from __future__ import annotations

import random

import pytest

from lessor.core.view import EPOCH, Record
from lessor.errors import ConfigError
from lessor.patterns.semaphore import Slots, at_gate, at_slot
from lessor.patterns.several import Order


class Claim:
    """As much of a lease as is asked for."""

    def check(self) -> None: ...


class Actor:
    """One that acquires several, step by step, on a table of who holds what."""

    def __init__(self, name: int, wanted: list[str], table: dict[str, int]) -> None:
        self.name = name
        self.order = Order(wanted)
        self.table = table

    def step(self) -> bool:
        """Do what can be done now; False: it waits for somebody."""
        taken = [name for name in self.order.missing if self.table.setdefault(name, self.name) == self.name]
        self.order.held |= {name: Claim() for name in taken}
        if self.order.missing:
            before = set(self.order.held)
            self.order.give_back()
            for name in before - set(self.order.held):
                del self.table[name]
        return bool(taken) and not self.order.missing


@pytest.mark.parametrize("seed", range(200))
def test_nobody_waits_in_a_circle(seed: int) -> None:
    choice = random.Random(seed)
    names = list("abcdef")
    table: dict[str, int] = {}
    actors = [Actor(n, choice.sample(names, choice.randint(1, 5)), table) for n in range(6)]
    done: list[Actor] = []
    for _ in range(1000):
        actor = choice.choice(actors)
        if actor.step():
            assert list(actor.order.all()) == sorted(actor.order.held)
            actors.remove(actor)
            done.append(actor)
        elif done and choice.random() < 0.5:
            finished = done.pop()
            for name in finished.order.held:
                del table[name]
        if not actors:
            return
        waiting_for = [table.get(other.order.missing[0]) for other in actors]
        holders = {other.name for other in actors}
        assert not all(holder in holders for holder in waiting_for), "all wait for each other"
    pytest.fail("somebody never got its turn")


def test_nothing_is_kept_that_comes_after_what_is_waited_for() -> None:
    order = Order(["c", "a", "d", "b"])
    assert order.missing == ["a", "b", "c", "d"]
    order.held |= {"a": 1, "c": 3, "d": 4}
    assert order.give_back() == [3, 4]
    assert (order.held, order.missing) == ({"a": 1}, ["b", "c", "d"])


def record(resource: str, remaining: float) -> Record:
    return Record(resource, f"holder of {resource}", 7, 10, remaining, EPOCH, EPOCH, 0)


def test_a_free_slot_is_looked_for_from_any_place_on() -> None:
    slots = Slots.of("pool", 4)
    records = [None, record("pool/1", 5), None, None]
    assert slots.free(records, 0.0) == ["pool/0", "pool/2", "pool/3"]
    assert slots.free(records, 0.5) == ["pool/2", "pool/3", "pool/0"]
    assert slots.free(records, 0.999) == ["pool/3", "pool/0", "pool/2"]
    assert slots.free([record("pool/0", 1)] * 4, 0.5) == []


def test_who_gets_no_slot_is_told_which_is_free_first() -> None:
    slots = Slots.of("pool", 2)
    error = slots.taken([record("pool/0", 9.0), record("pool/1", 5.0)])
    assert (error.resource, error.holder, error.remaining) == ("pool", "holder of pool/1", 5.0)
    assert slots.taken([None, None]).holder == ""


def test_what_is_said_about_waiting_goes_to_the_gate() -> None:
    options = {"priority": 1, "queue_limit": 2, "metadata": {}, "soft": 3}
    assert at_gate(options) == {"priority": 1, "queue_limit": 2, "metadata": {}}
    assert at_slot(options) == {"metadata": {}, "soft": 3}


def test_names_of_slots_are_names_of_resources() -> None:
    with pytest.raises(ConfigError, match="can't name a resource"):
        Slots.of("pool/", 2)
