"""Files to put leases in, and stores on them."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from lessor.stores.base import StoreURL
from lessor.stores.sqlite import SqliteStore
from lessor.testing.clock import FakeClock
from tests.needs import run_as_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lessor.core.clock import Clock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "leases.db")


@pytest.fixture
def open_store(path: str, clock: FakeClock) -> Iterator[Callable[..., SqliteStore]]:
    """Return a function that opens the file, again and again if need be; all are closed in the end."""
    with contextlib.ExitStack() as stack:

        def opened(at: str = path, with_clock: Clock = clock, namespace: str = "default") -> SqliteStore:
            url = StoreURL("sqlite", "", "/" + at, {"namespace": namespace})
            store = SqliteStore(url, with_clock)
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def store(open_store: Callable[..., SqliteStore]) -> SqliteStore:
    return open_store()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return a function that mounts a small file system, as root can."""
    mounted: list[str] = []

    def tmpfs(options: str) -> str:
        point = tmp_path / f"mount{len(mounted)}"
        point.mkdir()
        run_as_root("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(point))
        mounted.append(str(point))
        return str(point)

    yield tmpfs
    for point in mounted:
        subprocess.run(["umount", "--lazy", point], check=True)
