"""A server that takes connections and says nothing: nobody waits for it longer than was said, an event loop not at all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from leasehold import AsyncClient, StoreUnavailable
from leasehold.testing.conformance.base import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

TIMEOUT = 0.5


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Return a socket that is connected to by the kernel alone."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize(
    "use",
    [lambda client: client.acquire("job", ttl=30), lambda client: client.watch("job")],
    ids=["acquire", "watch"],
)
def test_an_event_loop_goes_on_while_a_silent_server_is_connected_to(
    silent: socket.socket, use: Callable[[AsyncClient], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.stores.redis.subscription.CONNECT_TIMEOUT", PATIENCE / 4)
    went_on: list[bool] = []

    async def main() -> None:
        loop, turned = asyncio.get_running_loop(), threading.Event()

        def hang() -> None:
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(PATIENCE)
                connection.recv(1)
                loop.call_soon_threadsafe(turned.set)
                went_on.append(turned.wait(PATIENCE / 8))
            silent.close()  # nobody is kept waiting any longer

        server = threading.Thread(target=hang, daemon=True)
        server.start()
        async with AsyncClient(f"redis://127.0.0.1:{silent.getsockname()[1]}", timeout=TIMEOUT) as client:
            with contextlib.suppress(StoreUnavailable):
                await use(client)
        server.join(PATIENCE)

    asyncio.run(main())
    assert went_on == [True]
