"""The stores that claim to need nothing of Linux alone work without it, and the one that needs it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[2]


def elsewhere(url: str) -> str:
    command = [sys.executable, "-m", "tests.runtime.elsewhere", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_memory() -> None:
    assert elsewhere("memory://").endswith("done\n")


def test_on_redis() -> None:
    with redis_server() as server:
        said = elsewhere(server.url)
    assert "held by" in said
    assert "lost: revoked" in said
    assert said.endswith("done\n")


def test_on_postgresql(postgres: PostgresServer) -> None:
    assert elsewhere(postgres.url).endswith("done\n")


def test_sqlite_is_refused_with_a_hint(tmp_path: Path) -> None:
    said = elsewhere(f"sqlite:///{tmp_path}/leases.db")
    assert said.startswith("refused: this platform doesn't tell one boot from the next")
    assert "use memory:// or a server" in said
