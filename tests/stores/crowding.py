"""More threads than connections."""

from __future__ import annotations

import threading
from functools import partial

from lessor import Client
from lessor.stores.pool import CONNECTIONS
from lessor.testing.conformance.base import PATIENCE, Thread, until

THREADS = 4 * CONNECTIONS
ENOUGH = 100


def turns_of_each(url: str) -> list[int]:
    """Let each ask again as soon as it is answered, and return how often each was when one had enough."""
    turns = [0] * THREADS
    over = threading.Event()
    together = threading.Barrier(THREADS)
    with Client(url) as client:

        def ask(number: int) -> None:
            together.wait(PATIENCE)
            while not over.is_set():
                client.acquire(f"job/{number}", ttl=30).release()
                turns[number] += 1

        threads = [Thread(partial(ask, number)) for number in range(THREADS)]
        try:
            until(lambda: max(turns) >= ENOUGH, "enough turns of one", patience=2 * PATIENCE)
        finally:
            over.set()
        for thread in threads:
            thread.result()
    return sorted(turns)
