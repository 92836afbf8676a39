"""A store of each kind that needs no server, and clients of it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from lessor import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lessor.stores.base import Store


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/leases.db"


@pytest.fixture
def memory_url() -> str:
    return f"memory://{os.urandom(8).hex()}"


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, sqlite_url: str, memory_url: str) -> str:
    return sqlite_url if request.param == "sqlite" else memory_url


@pytest.fixture
def open_client() -> Iterator[Callable[..., Client]]:
    """Return what opens a client; all are closed in the end."""
    with contextlib.ExitStack() as stack:

        def open_client(where: str | Store, **settings: float) -> Client:
            client = Client(where, **settings)  # type: ignore[arg-type]
            stack.callback(client.close)
            return client

        yield open_client


@pytest.fixture
def client(url: str, open_client: Callable[..., Client]) -> Client:
    return open_client(url)


@pytest.fixture
def other(url: str, open_client: Callable[..., Client]) -> Client:
    """Return somebody else's client."""
    return open_client(url)
