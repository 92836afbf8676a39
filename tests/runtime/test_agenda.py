"""What is due when, and the thread that sees to it."""

from __future__ import annotations

import threading

from leasehold.runtime.agenda import Agenda
from leasehold.runtime.host import HERE
from leasehold.testing.conformance.base import PATIENCE


def test_what_is_lost_when_it_is_received_does_not_make_the_thread_wait_for_itself() -> None:
    done = threading.Event()

    def receive(key: str) -> bool:
        if key == "new":
            agenda.set("lost", -1)
        return key == "new"

    agenda: Agenda[str] = Agenda(
        HERE, "agenda", lambda keys, _now: done.set(), wanted=lambda _: True, slack=lambda _: 0, receive=receive
    )
    agenda.set("new", HERE.clock.now())
    assert done.wait(PATIENCE)
    agenda.close()
