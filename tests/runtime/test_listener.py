"""A thread that waits for a call reads the store's news itself; otherwise a thread of its own does."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lessor import Client
from lessor.core.ops import Notice, Summons
from lessor.runtime import listener
from lessor.runtime.host import HERE, ThisHost
from lessor.runtime.listener import Bell, Listener
from lessor.runtime.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lessor.core.ops import Event

LONG = 20.0


class Line:
    """A subscription whose news are put in by hand; it tells which thread reads them."""

    address = "me"

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._news: list[Event | Notice] = []
        self._interrupted = self._closed = False
        self.readers: list[str] = []
        self.reading: str | None = None

    def get(self, timeout: float) -> list[Event | Notice] | None:
        with self._changed:
            assert self.reading is None, "read by two threads at once"
            self.reading = threading.current_thread().name
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._news or self._interrupted or self._closed, timeout)
            news, self._news, self._interrupted = self._news, [], False
            self.reading = None
            self._changed.notify_all()
            if news:
                self.readers.append(threading.current_thread().name)
            return news

    def interrupt(self) -> None:
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def say(self, lease_id: str) -> None:
        with self._changed:
            self._news.append(Notice("me", Summons.RESERVED, "r", lease_id))
            self._changed.notify_all()

    def wait_for_reader(self, name: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.reading == name, LONG), f"{self.reading} reads, not {name}"

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Desk:
    """A listener, and threads that wait for calls by name."""

    def __init__(self) -> None:
        self.line = Line()
        self.bells: dict[str, Bell] = {}
        self.heard: list[str] = []
        self.listener = Listener(self.line, HERE, self._take)
        self.listener.start()

    def _take(self, news: list[Event | Notice]) -> None:
        for item in news:
            assert isinstance(item, Notice)
            self.heard.append(item.lease_id)
            if item.lease_id in self.bells:
                self.bells[item.lease_id].ring()

    def wait(self, name: str, seconds: float = LONG) -> threading.Thread:
        bell = self.bells[name] = Bell()

        def wait() -> None:
            self.listener.wait(bell, seconds)
            self.listener.leave(bell)

        thread = threading.Thread(target=wait, name=name, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.listener.close()


def test_that_nobody_waits_so_the_thread_of_its_own_reads(desk: Desk) -> None:
    desk.line.wait_for_reader("lessor-listener")
    desk.line.say("nobody")
    while not desk.heard:
        time.sleep(0.01)
    assert desk.line.readers == ["lessor-listener"]


def test_the_one_that_waits_reads_its_call_itself_and_then_the_thread_goes_on(desk: Desk) -> None:
    desk.line.wait_for_reader("lessor-listener")
    first = desk.wait("first")
    desk.line.wait_for_reader("first")
    desk.line.say("first")
    first.join(LONG)
    assert desk.bells["first"].called
    assert desk.line.readers == ["first"]
    desk.line.wait_for_reader("lessor-listener")


def test_a_call_that_comes_while_the_reader_changes_is_not_slept_over(desk: Desk) -> None:
    """The thread of its own is called away, and has just read the call for the one that takes its place."""
    desk.line.wait_for_reader("lessor-listener")
    interrupt, ring = desk.line.interrupt, desk.listener._take

    def call_and_interrupt() -> None:
        desk.line.say("first")
        interrupt()

    def take_slowly(news: list[Event | Notice]) -> None:
        time.sleep(0.1)
        ring(news)

    desk.line.interrupt = call_and_interrupt  # type: ignore[method-assign]
    desk.listener._take = take_slowly
    started = time.monotonic()
    desk.wait("first").join(LONG)
    assert desk.bells["first"].called
    assert time.monotonic() - started < LONG / 2


def test_one_that_waits_soon_after_another_calls_nobody_away(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LINGER", LONG)
    desk.line.wait_for_reader("lessor-listener")
    interruptions: list[str] = []
    interrupt = desk.line.interrupt

    def count() -> None:
        interruptions.append("one")
        interrupt()

    desk.line.interrupt = count  # type: ignore[method-assign]
    for name in ("first", "second", "third"):
        thread = desk.wait(name)
        desk.line.wait_for_reader(name)
        desk.line.say(name)
        thread.join(LONG)
        assert desk.bells[name].called
    assert desk.line.readers == ["first", "second", "third"]
    assert interruptions == ["one"]


def test_one_of_several_reads_for_all_and_another_follows_it(desk: Desk) -> None:
    desk.line.wait_for_reader("lessor-listener")
    first = desk.wait("first")
    desk.line.wait_for_reader("first")
    second, third = desk.wait("second"), desk.wait("third")
    time.sleep(0.05)
    desk.line.say("second")
    second.join(LONG)
    assert desk.line.readers == ["first"]
    desk.line.say("first")
    first.join(LONG)
    desk.line.wait_for_reader("third")
    desk.line.say("third")
    third.join(LONG)
    assert all(bell.called for bell in desk.bells.values())
    desk.line.wait_for_reader("lessor-listener")


def test_whoever_gives_up_waiting_leaves_the_reading_to_others(desk: Desk) -> None:
    first, second = desk.wait("first", 0.1), desk.wait("second")
    first.join(LONG)
    assert not desk.bells["first"].called
    desk.line.wait_for_reader("second")
    desk.line.say("second")
    second.join(LONG)
    assert desk.bells["second"].called


def test_a_call_that_was_read_just_before_the_one_that_waits_took_over(desk: Desk) -> None:
    """It must not wait for news that another thread has in hand."""
    desk.line.wait_for_reader("lessor-listener")
    passed_on, take = threading.Event(), desk.listener._take

    def slow(news: list[Event | Notice]) -> None:
        passed_on.wait(LONG)
        take(news)

    desk.listener._take = slow
    desk.line.say("first")
    while not desk.line.readers:
        time.sleep(0.01)
    first = desk.wait("first")
    time.sleep(0.1)
    passed_on.set()
    first.join(LONG / 4)
    assert not first.is_alive()
    assert desk.bells["first"].called


def test_a_reader_that_fails_leaves_the_others_waiting_until_their_time(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: float) -> None:
        raise RuntimeError("torn")

    desk.line.wait_for_reader("lessor-listener")
    desk.line.get = broken  # type: ignore[method-assign,assignment]
    waiting = desk.wait("first", 0.2)
    waiting.join(LONG)
    assert not waiting.is_alive()
    assert "come at the known times" in caplog.text


def test_whoever_takes_over_does_not_wait_for_a_call_that_the_one_before_has_in_hand(desk: Desk) -> None:
    may_take, in_hand = threading.Event(), threading.Event()

    def slowly(news: list[Event | Notice]) -> None:
        in_hand.set()
        may_take.wait(LONG)
        desk._take(news)

    desk.listener._take = slowly
    desk.line.wait_for_reader("lessor-listener")
    desk.line.say("first")
    assert in_hand.wait(LONG)
    first = desk.wait("first", 10 * LONG)
    while desk.listener._reader is not desk.bells["first"]:
        time.sleep(0.01)
    may_take.set()
    first.join(LONG)
    assert not first.is_alive()
    assert desk.bells["first"].called


class Turnstile:
    """Stands for the lock of the one that reads: the listener's own thread is held up before it, and then goes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.arrived, self.open, self._passed = threading.Event(), threading.Event(), threading.Event()

    def __enter__(self) -> None:
        if threading.current_thread().name == "lessor-listener" and not self._passed.is_set():
            self.arrived.set()
            self.open.wait(LONG)
            self._lock.acquire()
            self._passed.set()
            return
        if self.open.is_set():
            self._passed.wait(LONG)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_the_thread_of_its_own_does_not_read_when_it_was_called_away_before_it_began(desk: Desk) -> None:
    """The interruption is spent by then: it would read for a minute, and the one that waits would wait for it."""
    desk.line.wait_for_reader("lessor-listener")
    turnstile: Any = Turnstile()
    desk.listener._reading = turnstile
    desk.line.interrupt()
    assert turnstile.arrived.wait(LONG)
    first = desk.wait("first", 10 * LONG)
    desk.line.wait_for_reader("first")
    turnstile.open.set()
    desk.line.say("nobody")
    while desk.heard != ["nobody"]:
        time.sleep(0.01)
    desk.line.wait_for_reader("first")
    desk.line.say("first")
    first.join(LONG)
    assert desk.line.readers == ["first", "first"]


def test_whoever_is_to_read_next_and_leaves_instead_passes_it_on(desk: Desk) -> None:
    desk.line.wait_for_reader("lessor-listener")
    first = desk.wait("first")
    desk.line.wait_for_reader("first")
    second = Bell()
    assert not desk.listener._takes_over(second)
    desk.line.say("first")
    first.join(LONG)
    assert not second._asleep.locked(), "it is to read next"
    desk.listener.leave(second)
    desk.line.wait_for_reader("lessor-listener")


def test_whoever_waits_a_second_time_reads_again() -> None:
    """As a waiter does that came by itself in between, to say that it still lives."""
    store = SimpleNamespace(subscribe=Line)
    waiters = Waiters(store, HERE, lambda _: None)
    waiters.start()
    assert waiters.address == "me"
    line: Any = waiters._subscription
    waiters.expect("id")
    assert not waiters.wait(["id"], 0.05)
    called: list[bool] = []
    second = threading.Thread(target=lambda: called.append(waiters.wait(["id"], LONG)), name="second", daemon=True)
    second.start()
    line.wait_for_reader("second")
    line.say("id")
    second.join(LONG)
    assert called == [True]
    waiters.leave("id")
    line.wait_for_reader("lessor-listener")
    waiters.close()


class InterruptedHost(ThisHost):
    """Where Ctrl-C is pressed when the first thread has just been started."""

    def __init__(self) -> None:
        self.started: list[threading.Thread] = []

    def start(self, run: Callable[[], None], name: str) -> threading.Thread:
        self.started.append(super().start(run, name))
        if len(self.started) == 1:
            raise KeyboardInterrupt
        return self.started[-1]


def test_an_interrupt_while_the_listener_starts_leaves_no_thread_behind_and_the_next_one_starts_it() -> None:
    host, lines = InterruptedHost(), [Line(), Line()]
    store = SimpleNamespace(subscribe=iter(lines).__next__)
    waiters = Waiters(store, host, lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        waiters.start()
    host.started[0].join(LONG)
    assert not host.started[0].is_alive()
    waiters.start()
    lines[1].wait_for_reader("lessor-listener")
    waiters.close()
    host.started[1].join(LONG)
    assert not host.started[1].is_alive()


@pytest.mark.parametrize("url", ["memory://listener", "sqlite:///{}/leases.db"])
def test_a_client_with_many_waiting_threads_serves_each_once(url: str, tmp_path: Path) -> None:
    served: list[int] = []
    with Client(url.format(tmp_path)) as leases, Client(url.format(tmp_path)) as holder:
        lease = holder.acquire("r", 10)

        def work(number: int) -> None:
            with leases.acquire("r", 10):
                served.append(number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        lease.release()
        for thread in threads:
            thread.join(LONG)
    assert sorted(served) == list(range(12))
