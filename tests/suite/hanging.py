"""Tests that can't finish, or that end their worker: for `test_time_limits`. pytest finds them only when they are named."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def endless() -> Iterator[None]:
    yield
    threading.Event().wait()


def test_loops() -> None:
    another = threading.Thread(target=threading.Event().wait, name="another-thread", daemon=True)
    another.start()
    while True:
        pass


def test_is_blocked_in_c_with_the_gil_held() -> None:
    ctypes.PyDLL(None).sleep(3600)


def test_hangs_in_its_teardown(endless: None) -> None:
    pass


def test_catches_whatever_is_raised() -> None:
    while True:
        with contextlib.suppress(BaseException):
            threading.Event().wait()


def test_ends_its_process() -> None:
    os._exit(3)


def test_is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_ends_its_process_and_leaves_a_child_with_all_its_pipes() -> None:
    if os.fork() == 0:
        threading.Event().wait()
    os._exit(3)


def test_leaves_a_child_that_keeps_the_output_open() -> None:
    if os.fork() == 0:
        threading.Event().wait()


def test_passes() -> None:
    pass


def test_leaves_a_thread_that_the_interpreter_waits_for() -> None:
    threading.Thread(target=threading.Event().wait).start()
