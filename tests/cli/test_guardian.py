"""What the guardian decides, without processes or time."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from lessor.cli import guardian
from lessor.cli.guardian import DEADLINE, GRACE, LONGEST_SLEEP_NS, STOPPING, Orders
from lessor.core.clock import MILLISECOND, SECOND


def orders(*, gentle: bool = True, enforce: bool = True, deadline: int | None = 1000, grace: int = 100) -> Orders:
    made = Orders(gentle, enforce)
    made.take(GRACE, grace)
    if deadline is not None:
        made.take(DEADLINE, deadline)
    return made


def test_sigterm_before_and_sigkill_at_the_deadline_once_each() -> None:
    made = orders()
    assert made.due(900) is None  # that is when lessor itself does it
    assert made.due(910) == signal.SIGTERM
    assert made.due(999) is None
    assert made.due(1000) == signal.SIGKILL
    assert made.due(2000) is None


def test_a_later_deadline_moves_both() -> None:
    made = orders()
    made.take(DEADLINE, 2000)
    assert made.due(1500) is None
    assert made.due(1910) == signal.SIGTERM


def test_once_it_is_being_stopped_no_deadline_moves_it() -> None:
    made = orders()
    made.take(STOPPING, 600)
    made.take(DEADLINE, 2000)
    assert made.due(599) is None
    assert made.due(600) == signal.SIGKILL


def test_an_orphan_gets_sigterm_at_once_and_sigkill_after_the_grace_by_the_deadline() -> None:
    made = orders()
    assert made.orphan(200) == signal.SIGTERM
    assert made.due(299) is None
    assert made.due(300) == signal.SIGKILL
    late = orders()
    assert late.orphan(950) == signal.SIGTERM
    assert late.due(1000) == signal.SIGKILL


def test_an_orphan_that_was_never_told_a_deadline_is_killed() -> None:
    made = orders(deadline=None)
    assert made.due(10**18) is None
    assert made.orphan(5) is None
    assert made.due(5) == signal.SIGKILL


def test_without_gentleness_there_is_no_sigterm() -> None:
    made = orders(gentle=False)
    assert made.due(999) is None
    assert made.due(1000) == signal.SIGKILL
    made = orders(gentle=False)
    assert made.orphan(200) is None
    assert made.due(200) == signal.SIGKILL


def test_with_warn_only_the_orphan_is_ended() -> None:
    made = orders(enforce=False)
    assert made.due(10**9) is None
    made = orders(enforce=False)
    assert made.orphan(200) == signal.SIGTERM
    assert made.due(300) == signal.SIGKILL


def test_it_never_sleeps_long() -> None:
    made = orders(deadline=10**15)
    assert made.sleep_ns(0) <= LONGEST_SLEEP_NS <= 5 * 10**8


def test_signals_that_take_long_to_send_make_the_next_ones_no_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM takes 2 s to send here, and SIGKILL is due meanwhile: it goes out right after, without another sleep."""

    class Clock:
        ns = 0

        def host_ns(self) -> int:
            return self.ns

    clock = Clock()
    sent: list[tuple[int, int]] = []

    class Busy:
        leader: int | None = 1

        def end(self, signum: int) -> None:
            sent.append((signum, clock.ns))
            clock.ns += 2 * SECOND

    class Nothing:
        def news(self) -> None:
            return None

        def reap(self, *, leader: bool) -> bool:
            return not leader

    class Poll:
        def poll(self, milliseconds: int) -> list[tuple[int, int]]:
            clock.ns += milliseconds * MILLISECOND
            if sent and sent[-1][0] == signal.SIGKILL:
                raise InterruptedError
            return []

    monkeypatch.setattr(guardian, "SYSTEM", clock)
    watch: Any = object.__new__(guardian._Watch)
    watch._orders = orders(deadline=10 * SECOND, grace=SECOND)
    watch._group, watch._reaper, watch._poll = Busy(), Nothing(), Poll()
    watch._told, watch._left, watch._say = False, None, lambda *_: None
    with pytest.raises(InterruptedError):
        watch.keep()
    (_, termed), (_, killed) = sent
    assert killed - termed <= 2 * SECOND + MILLISECOND
