"""For all tests: a time limit, one PostgreSQL server, and signals as a terminal would have them.

A test run that is started in the background of a script starts with SIGINT and SIGQUIT ignored, with nohup also SIGHUP,
and every process that a test starts would inherit that.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgres import PostgresServer

# The tests start thousands of Python processes. Without a cache each of them would compile the library for itself.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = ["tests.timelimit", "tests.scheduling"]
pytest.register_assert_rewrite("lessor.testing")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests that don't harm it; each makes a database of its own."""
    from tests.servers.postgres import postgres_server

    # What survives a power cut is for tests with a server of their own.
    with postgres_server("fsync=off", "full_page_writes=off") as server:
        yield server
