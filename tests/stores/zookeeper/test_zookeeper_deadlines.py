"""One deadline for each call, however many servers are silent and however many steps it takes."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from lessor.core.ops import Acquire, Unknown
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, Thread, new_id, ns

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = 60


@pytest.fixture
def silent() -> Iterator[str]:
    """Servers that take connections and say nothing; with a second for each of them, a call would take a minute."""
    with socket.create_server(("0.0.0.0", 0), backlog=1000) as listening:
        port = listening.getsockname()[1]
        yield "zookeeper://" + ",".join(f"127.0.0.{n}:{port}" for n in range(1, SERVERS + 1))


def test_many_silent_servers_take_no_longer_than_one(silent: str) -> None:
    store = Thread(lambda: open_store(silent, SYSTEM)).result(PATIENCE)
    try:
        op = Acquire("job", new_id(), "somebody", ns(5))
        [outcome] = Thread(lambda: store.apply([op], timeout=0.3)).result(PATIENCE)
        assert isinstance(outcome, Unknown)
    finally:
        store.close()
