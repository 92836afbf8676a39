"""Signal handlers that raise, or fork, in the middle of a call: nothing stays held that the program hasn't got."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from lessor.client.lease import Lease
from lessor.client.sync import Client
from lessor.errors import LeaseLost
from lessor.patterns.drain import Work
from lessor.testing.conformance.base import PATIENCE, Case, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, FunctionType

    from lessor.stores.base import Store
    from lessor.testing.harness import Harness


class Interruptions(Case):
    """By threads' clients: a signal handler runs in the main thread."""

    @pytest.mark.parametrize("where", [Lease.__enter__, Lease._exit])
    def test_an_interrupt_at_the_start_or_end_of_a_block_leaves_nothing_held(
        self, lab: Harness, store: Store, where: FunctionType
    ) -> None:
        with Client(lab.url()) as client:

            def way() -> None:
                with client.acquire("job", ttl=lab.ttl, wait=0) as lease:
                    lease.check()

            assert _is_interrupted(way, where.__code__)

            def is_free() -> bool:
                gc.collect()  # of what was caught in a cycle with its own traceback
                return store.read(["job"], timeout=PATIENCE) == [None]

            until(is_free, "the lease being given back")
            assert client.acquire("job", ttl=lab.ttl, wait=PATIENCE).release()

    def test_an_interrupt_at_the_end_of_work_counts_it_out(self, lab: Harness, store: Store) -> None:
        with Client(lab.url()) as client:
            lease = client.acquire("job", ttl=lab.steady)

            def way() -> None:
                with lease.work():
                    lease.check()

            assert _is_interrupted(way, Work._exit.__code__)
            assert lease.drain(PATIENCE)

    def test_a_fork_in_a_signal_handler_gives_the_child_nothing(self, lab: Harness, store: Store) -> None:
        """The acquire that waits goes on in the parent alone."""
        children: list[int] = []

        def fork(*_: object) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads that forks: just that
                children.append(os.fork())

        def fork_and_release() -> None:
            until(lambda: bool(store.waiters("job", timeout=PATIENCE)), "the waiter")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
            until(lambda: bool(children), "the fork")
            before.release()

        reader, writer = os.pipe()
        handler = signal.signal(signal.SIGUSR2, fork)
        try:
            with Client(lab.url()) as client, Client(lab.url()) as holder:
                before = holder.acquire("job", ttl=60)
                releasing = threading.Thread(target=fork_and_release)
                releasing.start()
                found = b""
                try:
                    lease = client.acquire("job", ttl=60, wait=PATIENCE)
                    found = b"held" if lease.held else b"lost"
                except LeaseLost as error:
                    found = str(error.reason).encode()
                finally:
                    if children == [0]:
                        os.write(writer, found or repr(sys.exception()).encode())
                        os._exit(0)
                releasing.join(PATIENCE)
                assert found == b"held"
                lease.check()
                ready, _, _ = select.select([reader], [], [], PATIENCE)
                assert ready, "the child waits"
                assert os.read(reader, 1000) == b"forked"
        finally:
            signal.signal(signal.SIGUSR2, handler)
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            os.close(reader)
            os.close(writer)


def _is_interrupted(way: Callable[[], object], code: CodeType) -> bool:
    """Do something with a Ctrl-C at the first instruction of a function; return whether that came out of it."""

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code:
            sys.setprofile(None)
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        way()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False
