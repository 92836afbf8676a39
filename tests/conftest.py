"""For all tests: one PostgreSQL server, a second chance where time decides, and signals as a terminal would have them.

A machine that runs six tests at a time on two processors may stop one of them for longer than a TTL, and then a lease
is lost as it should be. So a test that waits for real clocks may be tried again, and the summary says that it was. What
tells of two holders, of tokens out of order or of a stale write is never tried again, and no pure test is.

Whoever starts the tests in the background of a script starts them with SIGINT and SIGQUIT ignored, with nohup also
SIGHUP, and every process that a test starts would inherit that.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgres import PostgresServer

pytest.register_assert_rewrite("lessor.testing")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)


PURE = ("core", "fuzz", "sim")
UNSAFE = [r"\.token", "two holders", "out of order", "stale", "overlap"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that may be tried again."""
    here = Path(__file__).parent
    for item in items:
        pure = item.path.relative_to(here).parts[0] in PURE or "interleavings" in item.path.name
        if not pure and item.get_closest_marker("chaos") is None:
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=1, rerun_except=UNSAFE))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests that don't harm it; each makes a database of its own."""
    from tests.servers.postgres import postgres_server

    # What survives a power cut is for tests with a server of their own.
    with postgres_server("fsync=off", "full_page_writes=off") as server:
        yield server
