"""Processes for these tests: each does what the lines on its standard input say, and tells about it in JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from lessor.client.sync import Client
from lessor.core.ops import Acquire, Release
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.faults import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.ops import Op, Outcome


def start(work: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process that does this work."""
    code = f"import sys; from tests.patterns.processes import {work}; {work}(*sys.argv[1:])"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def hear(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def tell(process: subprocess.Popen[str], word: object) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def say(**words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


# --- what they do ---------------------------------------------------------------------------------------------------


def hold_session(url: str, children: str, ttl: str) -> None:
    """Hold a session with so many children; at each line, tell how many calls the store had so far, or release it."""
    store = FaultyStore(open_store(url, SYSTEM))
    with Client(store) as client:
        began = SYSTEM.now()
        session = client.session(float(ttl))
        session.acquire_all([f"part/{number}" for number in range(int(children))])
        say(session=session.lease.resource, calls=len(store.calls), seconds=(SYSTEM.now() - began) / 1e9)
        for line in sys.stdin:
            began = SYSTEM.now()
            if line.strip() == "release":
                session.release()
            say(calls=len(store.calls), held=len(session.leases), seconds=(SYSTEM.now() - began) / 1e9)


def hold_two_levels(url: str, children: str, grandchildren: str, ttl: str) -> None:
    """Hold a session with so many children, and so many under each of them; at the first line, release it."""
    with Client(url) as client:
        session = client.session(float(ttl))
        parts = [f"part/{number}" for number in range(int(children))]
        bundle = session.acquire_all(parts)
        for part in parts:
            below = [f"{part}/{number}" for number in range(int(grandchildren))]
            client.acquire_all(below, ttl=None, parent=bundle[part])
        say(session=session.lease.resource)
        sys.stdin.readline()
        session.release()
        say(released=True)


class Counting(FaultyStore):
    """Writes a line for each call of the store, before it is sent: when, and which leases it asks for or gives back."""

    def __init__(self, url: str, path: str) -> None:
        super().__init__(open_store(url, SYSTEM))
        self._path = path

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        about = [[type(op).__name__, op.lease_id] for op in ops if isinstance(op, Acquire | Release)]
        with open(self._path, "a", encoding="ascii") as file:
            file.write(json.dumps([SYSTEM.host_ns(), about]) + "\n")
        return super().apply(ops, timeout=timeout)


def wait_in_line(url: str, ttl: str, path: str) -> None:
    """For each number that comes, wait in a thread of its own, and write the number down when it has its turn."""
    store = Counting(url, path + ".asked")
    threads = []
    with Client(store) as client:

        def wait(number: str) -> None:
            with client.acquire("job", ttl=float(ttl)), open(path, "a", encoding="ascii") as file:
                file.write(f"{number} {SYSTEM.host_ns()}\n")

        for line in sys.stdin:
            threads.append(threading.Thread(target=wait, args=(line.strip(),)))
            threads[-1].start()
            say(started=line.strip())
        for thread in threads:
            thread.join()
    say(done=len(threads))
