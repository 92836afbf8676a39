"""What is due when, and the thread that sees to it."""

from __future__ import annotations

import threading
import time
import weakref

from lessor.core.clock import HOUR, SECOND
from lessor.runtime.agenda import Agenda
from lessor.runtime.host import HERE
from lessor.testing.conformance.base import PATIENCE


def test_what_is_lost_when_it_is_received_does_not_make_the_thread_wait_for_itself() -> None:
    done = threading.Event()

    def receive(keys: list[str]) -> list[str]:
        if "new" in keys:
            agenda.set("lost", -1)
        return [key for key in keys if key != "new"]

    agenda: Agenda[str] = Agenda(
        HERE, "agenda", lambda keys, _now: done.set(), wanted=lambda _: True, slack=lambda _: 0, receive=receive
    )
    agenda.set("new", HERE.clock.now())
    assert done.wait(PATIENCE)
    agenda.close()


def test_what_is_dropped_is_not_kept_until_it_would_be_due() -> None:
    acted = threading.Event()
    agenda: Agenda[object] = Agenda(
        HERE, "agenda", lambda _keys, _now: acted.set(), wanted=lambda _: True, slack=lambda _: 0
    )
    late, now = 24 * HOUR, HERE.clock.now()
    things = [Thing() for _ in range(100)]
    for thing in things:
        agenda.set(thing, now + late)
    agenda.set("soon", now)  # when this was done, they are sorted in
    assert acted.wait(PATIENCE)
    gone = [weakref.ref(thing) for thing in things]
    while things:
        agenda.drop(things.pop())
    del thing
    agenda.set("again", now)  # wakes it up
    give_up = now + int(PATIENCE * SECOND)
    while any(thing() is not None for thing in gone) and HERE.clock.now() < give_up:
        time.sleep(0.01)
    assert [thing() for thing in gone] == [None] * 100
    agenda.close()


class Thing:
    """Something of which one can tell that nobody knows it any more."""
