from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lessor import ConfigError, Fenced, LessorError
from lessor.fencing import Fence
from tests.fencing.bearers import bad_bearers


def test_older_is_refused_equal_passes_newer_is_remembered() -> None:
    fence = Fence()
    fence.check(("job", 5))
    fence.check(("job", 5))
    with pytest.raises(Fenced) as refused:
        fence.check(("job", 4))
    assert (refused.value.resource, refused.value.token, refused.value.newest) == ("job", 4, 5)
    fence.check(("job", 6))
    assert fence.newest("job") == 6


def test_resources_have_nothing_to_do_with_each_other() -> None:
    fence = Fence()
    fence.check(("a", 5))
    fence.check(("b", 1))
    assert (fence.newest("a"), fence.newest("b"), fence.newest("c")) == (5, 1, None)


@bad_bearers
def test_what_can_not_be_a_stamp_changes_nothing(bearer: Any, error: type[LessorError], text: str) -> None:
    fence = Fence()
    fence.check(("job", 5))
    with pytest.raises(error, match=text):
        fence.check(bearer)
    with pytest.raises(error, match=text), fence.guard(bearer):
        pytest.fail("the body was entered")
    assert (len(fence), fence.newest("job")) == (1, 5)


def test_a_newer_holder_waits_until_the_write_is_done() -> None:
    fence = Fence()
    inside, arrived = threading.Event(), threading.Event()
    happened = []

    def newer() -> None:
        assert inside.wait(60)
        arrived.set()
        with fence.guard(("job", 2)):
            happened.append("newer")

    def check_newer() -> None:
        assert inside.wait(60)
        fence.check(("job", 2))
        happened.append("checked")

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(newer), pool.submit(check_newer)]
        with fence.guard(("job", 1)):
            inside.set()
            assert arrived.wait(60)
            fence.check(("job", 1))  # the holder itself may ask again
            assert all(not future.done() for future in futures)
            happened.append("older")
        for future in futures:
            future.result(60)
    assert happened[0] == "older"
    assert sorted(happened[1:]) == ["checked", "newer"]
    with pytest.raises(Fenced), fence.guard(("job", 1)):
        pytest.fail("the body was entered")


def test_no_lost_update_among_threads() -> None:
    fence = Fence()
    written: list[int] = []

    def write(token: int) -> None:
        for _ in range(50):
            try:
                with fence.guard(("job", token)):
                    written.append(token)
            except Fenced:
                return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert written == sorted(written)


def test_a_body_that_fails_lets_the_next_one_in() -> None:
    fence = Fence()
    with pytest.raises(ZeroDivisionError), fence.guard(("job", 1)):
        _ = 1 / 0
    with fence.guard(("job", 1)) as stamp:
        assert stamp == ("job", 1)


def test_a_thread_does_not_wait_for_itself() -> None:
    fence = Fence()
    with fence.guard(("job", 1)), fence.guard(("other", 1)):
        with pytest.raises(ConfigError, match="wait for itself"), fence.guard(("job", 1)):
            pytest.fail("the body was entered")
        with pytest.raises(ConfigError, match="wait for itself"):
            fence.check(("job", 2))
        with pytest.raises(Fenced):
            fence.check(("job", 0))
        with pytest.raises(ConfigError, match="inside its own guard"):
            fence.forget("job")
    assert fence.newest("job") == 1


def test_it_refuses_to_remember_more_than_its_limit() -> None:
    fence = Fence(limit=2)
    fence.check(("a", 1))
    fence.check(("b", 1))
    with pytest.raises(ConfigError, match="limit is 2"):
        fence.check(("c", 1))
    fence.check(("a", 2))
    fence.forget("b")
    fence.forget("never seen")
    fence.check(("c", 1))
    assert len(fence) == 2
    with pytest.raises(ConfigError):
        Fence(limit=0)


def test_who_waited_at_a_resource_that_was_forgotten_is_remembered() -> None:
    fence = Fence()
    fence.check(("job", 1))
    seat = fence._seats["job"]
    with ThreadPoolExecutor(1) as pool, seat.lock:
        waiting = pool.submit(fence.check, ("job", 7))
        del fence._seats["job"]  # as forget() does when it has the lock
    waiting.result(60)
    assert fence.newest("job") == 7


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6)), max_size=30))
def test_what_gets_in_never_goes_back(stamps: list[tuple[str, int]]) -> None:
    fence = Fence()
    let_in: dict[str, list[int]] = {"a": [], "b": []}
    for resource, token in stamps:
        try:
            fence.check((resource, token))
        except Fenced as refused:
            assert token < refused.newest == max(let_in[resource])  # noqa: PT017 - also right when nothing is raised
        else:
            let_in[resource].append(token)
    assert all(tokens == sorted(tokens) for tokens in let_in.values())
