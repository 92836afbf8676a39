"""Programs to simulate: the same job runner, with and without what it must not forget."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from lessor import Fenced, LeaseHeld, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lessor.patterns.campaign_async import AsyncCampaign
    from lessor.sim import ProgramWorld, Register, SimProcess

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


async def takes_part(process: SimProcess, ledgers: dict[str, Register]) -> None:
    """Uses all that stands on leases: a semaphore, several at once, and a session."""
    async with process.client() as leases:
        desks = leases.semaphore("desk", slots=2)
        while True:
            try:
                async with desks.acquire(ttl=10) as desk:
                    await asyncio.sleep(process.rng.random())
                    await ledgers[desk.resource].write(desk.token, process.name)
                async with leases.acquire_all(["left", "right"], ttl=10, wait=20) as both:
                    await asyncio.sleep(process.rng.random())
                    for resource, token in both.tokens.items():
                        await ledgers[resource].write(token, process.name)
                async with leases.session(ttl=10) as session:
                    lease = await session.acquire("one", wait=20)
                    await asyncio.sleep(process.rng.random())
                    await ledgers["one"].write(lease.token, process.name)
            except (LeaseLost, LeaseHeld, Fenced) as lost:
                process.note(f"starts over: {lost}")


def guild(world: ProgramWorld) -> None:
    """Four that do so, with a fenced ledger for each resource."""
    names = ("desk/0", "desk/1", "left", "right", "one")
    ledgers = {name: world.register(name, fenced=True) for name in names}
    for number in range(4):
        world.process(f"worker-{number}", takes_part, ledgers)


async def stands(process: SimProcess, campaigns: dict[str, AsyncCampaign], decree: Register) -> None:
    """Stands for election again and again. While it leads, nobody else may believe to, by whatever clock."""
    async with process.client() as leases:
        campaign = campaigns[process.name] = leases.campaign("ruler", ttl=10)
        async for term in campaign:
            async with term:
                process.note(f"leads, token {term.token}")
                for _ in range(process.rng.randrange(5, 30)):
                    rulers = [name for name, other in campaigns.items() if other.is_leader]
                    assert rulers == [process.name] or not term.is_leader, f"{process.name} leads among {rulers}"
                    term.check()
                    with contextlib.suppress(Fenced):
                        await decree.write(term.token, process.name)
                    await asyncio.sleep(process.rng.random())


def election(world: ProgramWorld) -> None:
    """Three candidates, and a fenced register that the leader writes to."""
    campaigns: dict[str, AsyncCampaign] = {}
    decree = world.register("decree", fenced=True)
    for name in ("alice", "bob", "carol"):
        world.process(name, stands, campaigns, decree)


def three(
    main: Callable[[SimProcess, Register], Awaitable[None]], *, fenced: bool = False
) -> Callable[[ProgramWorld], None]:
    """Return a program of three processes that do this."""

    def program(world: ProgramWorld) -> None:
        ledger = world.register("ledger", fenced=fenced)
        for number in range(3):
            world.process(f"worker-{number}", main, ledger)

    return program
