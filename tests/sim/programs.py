"""Programs to simulate: the same job runner, with and without what it must not forget."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leasehold import Fenced, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.sim import ProgramWorld, Register, SimProcess

STEPS = 5


async def forgetful(process: SimProcess, ledger: Register) -> None:
    """Gets the lease, and never looks at it again."""
    async with process.client() as leases:
        while True:
            lease = await leases.acquire("job", ttl=10)
            for step in range(STEPS):
                await asyncio.sleep(1)
                await ledger.write(lease.token, step)
            await lease.release()


async def careful(process: SimProcess, ledger: Register) -> None:
    """Is cancelled when its lease is lost, and checks it before each write."""
    async with process.client() as leases:
        while True:
            try:
                async with leases.acquire("job", ttl=10) as lease:
                    for step in range(STEPS):
                        await asyncio.sleep(1)
                        lease.check()
                        await ledger.write(lease.token, step)
            except (LeaseLost, Fenced) as lost:
                process.note(f"starts over: {lost}")


def three(
    main: Callable[[SimProcess, Register], Awaitable[None]], *, fenced: bool = False
) -> Callable[[ProgramWorld], None]:
    """Return a program of three processes that do this."""

    def program(world: ProgramWorld) -> None:
        ledger = world.register("ledger", fenced=fenced)
        for number in range(3):
            world.process(f"worker-{number}", main, ledger)

    return program
