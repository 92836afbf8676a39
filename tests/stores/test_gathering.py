"""Threads that ask at the same time share a transaction: who waits for whom, without a server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lessor.core.clock import SECOND
from lessor.core.ops import Release, Released, Renew, Renewed, Unknown
from lessor.runtime.clock import SYSTEM
from lessor.stores import gathering
from lessor.stores.gathering import LANES, Gathering
from lessor.testing.conformance.base import Thread, until
from tests.stores.interrupting import interrupted_everywhere

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.ops import Op, Outcome


class Server:
    """Carries out what it is given when a test lets it."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open = threading.Event()
        self.gathering = Gathering("here", self.carry_out, SYSTEM)

    def carry_out(self, ops: Sequence[Op], give_up: int) -> list[Outcome]:
        self.calls.append([op.resource for op in ops])
        self.open.wait(10)
        return [Released(int(op.resource)) if isinstance(op, Release) else Renewed(0) for op in ops]

    def ask(self, *names: str, seconds: float = 10) -> Thread:
        ops = [Release(name, "id") for name in names]
        return Thread(lambda: self.gathering.apply(ops, SYSTEM.now() + int(seconds * SECOND)))

    def fill(self) -> list[Thread]:
        """Have as many under way as may be."""
        threads = [self.ask(str(n)) for n in range(LANES)]
        until(lambda: len(self.calls) == LANES, "the first calls")
        return threads

    def waiting(self, count: int) -> None:
        until(lambda: len(self.gathering._waiting) == count, "the waiters")


def test_those_who_come_meanwhile_go_together_and_each_gets_its_own() -> None:
    server = Server()
    threads = server.fill()
    for n, names in enumerate((["10"], ["11", "12"], ["13"]), 1):
        threads.append(server.ask(*names))
        server.waiting(n)
    server.open.set()
    answers = [thread.result() for thread in threads]
    assert answers[LANES:] == [[Released(10)], [Released(11), Released(12)], [Released(13)]]
    assert len(server.calls[LANES:]) <= LANES
    assert sorted(name for call in server.calls[LANES:] for name in call) == ["10", "11", "12", "13"]
    assert not server.gathering._under_way


def test_who_has_much_time_does_not_go_with_somebody_who_has_little() -> None:
    server = Server()
    threads = server.fill()
    for n, (name, seconds) in enumerate((("10", 10), ("11", 60), ("12", 9), ("13", 50)), 1):
        threads.append(server.ask(name, seconds=seconds))
        server.waiting(n)
    server.open.set()
    for thread in threads:
        thread.result()
    for call in server.calls[LANES:]:
        assert {"10", "12"}.issuperset(call) or {"11", "13"}.issuperset(call), server.calls


def test_those_about_one_resource_go_one_after_the_other() -> None:
    server = Server()
    threads = server.fill()
    for n in range(1, 4):
        threads.append(server.ask("10"))
        server.waiting(n)
    server.open.set()
    for thread in threads:
        thread.result()
    assert server.calls[LANES:] == [["10"]] * 3


def test_renewals_wait_for_nobody() -> None:
    server = Server()
    threads = server.fill()
    renewing = Thread(lambda: server.gathering.apply([Renew("7", "id", 1, 1)], SYSTEM.now() + SECOND))
    until(lambda: ["7"] in server.calls, "the renewal")
    server.open.set()
    for thread in [*threads, renewing]:
        thread.result()


def test_who_has_no_more_time_goes_without_an_answer() -> None:
    server = Server()
    threads = server.fill()
    (answer,) = server.ask("10", seconds=0.05).result()
    assert isinstance(answer, Unknown)
    server.open.set()
    for thread in threads:
        thread.result()
    assert ["10"] not in server.calls


def test_an_error_reaches_one_and_stops_nobody() -> None:
    server = Server()
    server.open.set()

    def fail(ops: Sequence[Op], give_up: int) -> list[Outcome]:
        raise KeyboardInterrupt

    broken = Gathering("here", fail, SYSTEM)
    for _ in range(2 * LANES):
        thread = Thread(lambda: broken.apply([Release("1", "id")], SYSTEM.now() + SECOND))
        thread.join(10)
        assert isinstance(thread._error, KeyboardInterrupt)
        del thread
    assert not broken._under_way


def test_an_interrupt_at_whatever_line_costs_no_lane() -> None:
    server = Server()
    server.open.set()
    ops = [Release("1", "id")]
    for where in interrupted_everywhere(gathering, lambda: server.gathering.apply(ops, SYSTEM.now() + SECOND)):
        assert not server.gathering._under_way, where
    assert server.calls


def test_an_interrupt_at_whatever_line_keeps_nobody_waiting_who_was_taken_along_or_comes_next() -> None:
    server = Server()
    gone = threading.Event()
    threads: list[Thread] = []

    def be_in_the_middle() -> None:
        """Wait for a lane, and go with somebody, while somebody else waits for the next one."""
        server.open.clear()
        server.calls.clear()
        gone.clear()
        threads[:] = server.fill()
        threads.append(Thread(follow))
        server.gathering.apply([Release("9", "id")], SYSTEM.now() + 10 * SECOND)

    def follow() -> None:
        until(lambda: len(server.gathering._waiting) == 1 or gone.is_set(), "the one that is interrupted")
        threads.extend(server.ask(name, seconds=1) for name in ("10", "11", "10"))
        until(lambda: len(server.gathering._waiting) == 4 or gone.is_set(), "the others")
        server.open.set()

    for where in interrupted_everywhere(gathering, be_in_the_middle):
        gone.set()
        for thread in threads:
            thread.result()
        assert not server.gathering._under_way, where
        assert not server.gathering._waiting, where
