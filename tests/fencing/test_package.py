from __future__ import annotations

import subprocess
import sys

import pytest

from lessor import fencing

LIBRARIES = ["sqlite3", "sqlalchemy", "psycopg", "redis", "obstore"]


def test_every_name_is_there() -> None:
    assert all(getattr(fencing, name) is not None for name in fencing.__all__)
    assert dir(fencing) == sorted(fencing.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'fense'"):
        _ = fencing.fense


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import lessor", ["lessor.fencing", *LIBRARIES]),
        (
            "import lessor.fencing",
            ["lessor.fencing.stamp", "lessor.fencing.registry", *LIBRARIES],
        ),
        ("from lessor.fencing import Fence", ["lessor.fencing.file", *LIBRARIES]),
        ("from lessor.fencing import fence, FencedFile", ["lessor.fencing.sqlite", *LIBRARIES]),
        (
            "import sqlite3; from lessor.fencing import fence\nwith fence(sqlite3.connect(':memory:'), ('a', 1)): pass",
            ["sqlalchemy", "psycopg", "redis", "obstore", "asyncio"],
        ),
        ("from lessor.fencing import FencedObject", ["sqlite3", "sqlalchemy", "psycopg", "redis"]),
        ("from lessor.fencing import FencedRedis", ["sqlite3", "sqlalchemy", "psycopg", "obstore"]),
        ("import lessor.fencing.psycopg", ["sqlite3", "sqlalchemy", "redis", "obstore"]),
        ("import lessor.fencing.postgresql", LIBRARIES),
    ],
)
def test_nothing_is_imported_before_it_is_needed(code: str, unwanted: list[str]) -> None:
    program = f"{code}\nimport sys; print(*[name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
