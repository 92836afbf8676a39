"""All cases on the oldest Redis that works, and on Valkey."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.testing import StoreConformance
from tests.conformance.test_redis import RedisHarness
from tests.servers.redis import oldest_redis, redis_server, valkey

if TYPE_CHECKING:
    from collections.abc import Iterator


class OldestRedisHarness(RedisHarness):
    pass


class ValkeyHarness(RedisHarness):
    pass


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    with redis_server(program=oldest_redis()) as oldest, redis_server(program=valkey()) as other:
        OldestRedisHarness.place, ValkeyHarness.place = oldest, other
        yield


class TestOldestRedis(StoreConformance):
    harness = OldestRedisHarness


class TestValkey(StoreConformance):
    harness = ValkeyHarness
