from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lessor import AsyncClient, Client, ConfigError, LeaseLost, LessorError
from lessor.fencing import Fenceable, Stamp, from_environ
from lessor.fencing.stamp import stamp_of
from tests.fencing.bearers import Message, bad_bearers

if TYPE_CHECKING:
    from pathlib import Path


def test_a_pair_a_stamp_and_a_message_will_do() -> None:
    assert stamp_of(("job", 7)) == stamp_of(Stamp("job", 7)) == stamp_of(Message("x", "job", 7)) == ("job", 7)


@pytest.mark.parametrize("token", [0, 1, 2**53 - 1])
def test_the_smallest_and_the_largest_token(token: int) -> None:
    assert stamp_of(("job", token)).token == token


def test_a_lease_will_do_until_it_is_over() -> None:
    with Client("memory://stamp") as leases:
        lease = leases.acquire("job", ttl=30)
        assert isinstance(lease, Fenceable)
        assert stamp_of(lease) == ("job", lease.token)
        lease.release()
        with pytest.raises(LeaseLost, match="released"):
            stamp_of(lease)


def test_an_async_lease_will_do() -> None:
    import asyncio

    async def use() -> tuple[Stamp, int]:
        async with AsyncClient("memory://stamp-async") as leases, leases.acquire("job", ttl=30) as lease:
            return stamp_of(lease), lease.token

    stamp, token = asyncio.run(use())
    assert stamp == ("job", token)


def test_what_the_store_shows_of_a_holder_is_no_stamp() -> None:
    with Client("memory://stamp-record") as leases, leases.watch() as events, leases.acquire("job", ttl=30):
        record = leases.get("job")
        assert record is not None
        for shown in (record, next(events)):
            with pytest.raises(ConfigError, match="not that you hold the resource"):
                stamp_of(shown)


@bad_bearers
def test_what_can_not_be_a_stamp(bearer: Any, error: type[LessorError], text: str) -> None:
    with pytest.raises(error, match=text):
        stamp_of(bearer)


def test_from_the_environment() -> None:
    assert from_environ({"LESSOR_RESOURCE": "job", "LESSOR_TOKEN": "1790000000000000"}) == (
        "job",
        1_790_000_000_000_000,
    )


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({}, "LESSOR_RESOURCE is not set"),
        ({"LESSOR_RESOURCE": "job"}, "LESSOR_TOKEN is not set"),
        ({"LESSOR_RESOURCE": "job", "LESSOR_TOKEN": ""}, "LESSOR_TOKEN is not set"),
        ({"LESSOR_RESOURCE": "job", "LESSOR_TOKEN": "-1"}, "no token"),
        ({"LESSOR_RESOURCE": "job", "LESSOR_TOKEN": "1e3"}, "no token"),
        ({"LESSOR_RESOURCE": "job", "LESSOR_TOKEN": "٣"}, "no token"),
        ({"LESSOR_RESOURCE": "job", "LESSOR_TOKEN": str(2**53)}, "below"),
        ({"LESSOR_RESOURCE": "/job", "LESSOR_TOKEN": "1"}, "starts or ends"),
    ],
)
def test_an_environment_without_a_stamp(environ: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        from_environ(environ)


def test_a_command_under_lessor_run_knows_its_stamp(tmp_path: Path) -> None:
    import subprocess
    import sys

    url = f"sqlite:///{tmp_path}/leases.db"
    show = "from lessor.fencing import from_environ; print(*from_environ())"
    command = [sys.executable, "-m", "lessor", "run", "--url", url, "job/nightly", "--", sys.executable, "-c", show]
    resource, token = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert resource == "job/nightly"
    assert int(token) > 0
