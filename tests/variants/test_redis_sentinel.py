"""All cases on servers behind Sentinel, which fail over twice on the way."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, ClassVar

import pytest

from lessor.testing import StoreConformance
from tests.conformance.test_redis import RedisHarness
from tests.servers.redis_sentinel import SentinelGroup, sentinel_group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.redis import RedisServer

FAILOVERS = (40, 110)
"""Before which tests the servers fail over."""


class SentinelHarness(RedisHarness):
    group: ClassVar[SentinelGroup]
    count: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if next(self.count) in FAILOVERS:
            self.group.fail_over()

    def url(self) -> str:
        return f"{self.group.url}?namespace={self._namespace}"

    def master(self) -> RedisServer:
        return self.group.master

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """All servers stand still, for a shorter time than Sentinel takes for death."""
        with contextlib.ExitStack() as still:
            for server in self.group.servers:
                still.enter_context(server.standing_still())
            yield


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[SentinelGroup]:
    with sentinel_group(replicas=1, down_after_ms=20_000) as group:
        SentinelHarness.group = group
        yield group


class TestRedisSentinel(StoreConformance):
    harness = SentinelHarness
