"""A pytest plugin: which tests a worker of xdist gets together, and in which order they are given out.

The tests of a file stay together, since they share its servers. The cases of the conformance suite are too many for one
worker: each class of them is dealt out in parts, every part with a server of its own. What takes longest is given out
first, so that no worker is left with it at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Sequence

PART = 75
"""Cases that a worker gets at a time."""
LONG = {
    "tests/singletons/test_singletons.py": 80,
    "tests/sim/test_mutants.py": 73,
    "tests/cli/test_run.py": 67,
    "tests/patterns/test_large_session.py": 60,
    "tests/stores/paxos/test_paxos_faults.py": 79,
    "tests/stores/paxos/test_paxos_sessions.py": 78,
    "tests/runtime/test_riders.py": 40,
    "tests/stores/zookeeper/test_zookeeper_faults.py": 52,
    "tests/cli/test_words.py": 61,
    "tests/stores/postgresql/test_postgres_transaction.py": 57,
    "tests/fencing/test_psycopg_fence.py": 50,
    "tests/stores/paxos/test_paxos_mended.py": 48,
    "tests/stores/etcd/test_etcd_faults.py": 48,
    "tests/cli/test_terminal.py": 47,
    "tests/stores/redis/test_redis_sentinel.py": 43,
    "tests/stores/zookeeper/test_zookeeper_nodes.py": 43,
    "tests/suite/test_time_limits.py": 40,
    "tests/conformance": 45,
    "tests/variants": 45,
}
"""Seconds that files take, or parts of the conformance suite; the others are short."""


def part_of(collection: Sequence[str]) -> dict[str, str]:
    """Return for each test what it is given out with."""
    parts: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for test in collection:
        file, _, rest = test.partition("::")
        scope = file
        if file.startswith(("tests/conformance/", "tests/variants/")) and "::" in rest:
            scope = f"{file}::{rest.partition('::')[0]}"
            number = sizes[scope] = sizes.get(scope, -1) + 1
            scope = f"{scope}#{number // PART}"
        parts[test] = scope
    return parts


def seconds(test: str) -> int:
    """Return about how long the test's part takes."""
    file = test.partition("::")[0]
    return LONG.get(file) or LONG.get(file.rpartition("/")[0], 0)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes longest first, and leave the rest in its order."""
    items.sort(key=lambda item: -seconds(item.nodeid))


class Parts(LoadScopeScheduling):  # type: ignore[misc]
    """Deals out parts."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._parts: dict[str, str] = {}

    def schedule(self) -> None:
        """Deal them out, once it is known what there is."""
        if not self._parts:
            self._parts = part_of(next(iter(self.registered_collections.values())))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._parts[nodeid]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Parts | None:
    """Deal out parts, unless the command line says otherwise."""
    return Parts(config, log) if config.getvalue("dist") == "loadscope" else None
