"""The main job on every server that is said to work; all cases on each of them are in ``make variants``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.testing.conformance.base import PATIENCE, Thread, until
from tests.servers.redis import oldest_redis, redis_server, valkey

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("program", "version"), [(oldest_redis, "6.2."), (valkey, "7.2.4")], ids=["the oldest Redis", "Valkey"]
)
def test_the_main_job(program: Callable[[], str], version: str) -> None:
    with (
        redis_server(program=program()) as server,
        Client(server.url, holder="one") as one,
        Client(server.url, holder="two") as two,
        one.watch() as watch,
    ):
        assert server.run("INFO", "server")["redis_version"].startswith(version), "Valkey says which Redis it is like"
        first = one.acquire("job", ttl=5)
        waiting = Thread(lambda: two.acquire("job", ttl=5, wait=PATIENCE))
        until(lambda: [waiter.holder for waiter in one.contenders("job")] == ["two"], "the waiter")
        first.renew()
        first.release()
        second = waiting.result()
        assert second.token > first.token
        bundle = one.acquire_all(["a", "b", "c"], ttl=5)
        assert [record.resource for record in one.list()] == ["a", "b", "c", "job"]
        bundle.release()
        seen = [next(watch) for _ in range(3)]
        assert [(event.kind, event.resource) for event in seen] == [
            ("granted", "job"),
            ("released", "job"),
            ("granted", "job"),
        ]
