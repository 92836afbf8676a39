"""A lease that is renewed by hand after the keeper has given up: too close to the deadline for another attempt."""

from __future__ import annotations

import asyncio

from lessor import AsyncClient, AsyncLease, Client, Lease
from lessor.core.ops import Unknown
from lessor.errors import StoreUnavailable
from lessor.testing.conformance.base import until


def give_up(lease: Lease | AsyncLease) -> None:
    """Do what the keeper does when the last attempt that is of use had no answer."""
    now = lease._now()
    lease._answer(Unknown(StoreUnavailable("memory", "silent")), now, now, 0.0)
    assert lease._engine.keeper._form([lease], [lease._cohort], None)


def test_renewals_go_on_after_one_by_hand() -> None:
    with Client("memory://renewed-late") as client, client.acquire("x", 3600) as lease:
        give_up(lease)
        lease.renew()
        until(lambda: (record := client.get("x")) is not None and record.renewals > 1, "a renewal")


def test_renewals_go_on_after_one_by_hand_in_a_task() -> None:
    async def main() -> None:
        async with AsyncClient("memory://renewed-late") as client, client.acquire("y", 3600) as lease:
            give_up(lease)
            await lease.renew()
            with Client("memory://renewed-late") as other:
                until(lambda: (record := other.get("y")) is not None and record.renewals > 1, "a renewal")

    asyncio.run(main())
