from __future__ import annotations

from lessor.testing import PatternCases
from tests.conformance.test_sqlite import SqliteHarness


class TestPatternsOnSqlite(PatternCases):
    harness = SqliteHarness
