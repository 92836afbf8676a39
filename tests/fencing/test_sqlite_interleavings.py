from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fencing.interleavings import Interleavings
from tests.fencing.sql_places import SqlitePlace

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy


class TestSqlite(Interleavings):
    @pytest.fixture(params=[False, True], ids=["sqlite3", "sqlalchemy"])
    def place(self, request: pytest.FixtureRequest) -> Iterator[SqlitePlace]:
        in_memory = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=in_memory if in_memory.is_dir() else None) as folder:
            yield SqlitePlace(f"{folder}/data.db", alchemy=request.param)
