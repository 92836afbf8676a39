"""Something that holders write to: a row, a file, a device. It notices what a lease alone can't prevent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lessor.errors import Fenced
from lessor.sim.checks import Violation
from lessor.sim.program.loop import VirtualLoop

if TYPE_CHECKING:
    from lessor.sim.program.process import SimProcess
    from lessor.sim.program.world import ProgramWorld

NOTHING = -1


class Register:
    """Holds one value. A write takes time to arrive, as long as anything else; it arrives even if its writer has died.

    Without a fence every write is let in, and one with an older token than was seen before is a violation. With one it
    is refused with `Fenced`.
    """

    def __init__(self, world: ProgramWorld, name: str, *, fenced: bool) -> None:
        self.name = name
        self.value: Any = None
        self._world = world
        self._fenced = fenced
        self._newest = NOTHING
        self._writer = ""

    async def write(self, token: int, value: object) -> None:
        """Write, in the name of the grant with this token."""
        await self._ask(self._write, token, value)

    async def read(self) -> Any:
        """Return what was written last."""
        return await self._ask(self._read)

    async def _ask(self, act: Any, *details: object) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "a register is for simulated processes"
        process = loop.process
        process.point()
        answer = loop.create_future()
        self._world.carry(process, self._arrive, process, loop, answer, act, details, reliably=True)
        return await answer

    def _arrive(
        self, process: SimProcess, loop: VirtualLoop, answer: asyncio.Future[Any], act: Any, details: tuple[object, ...]
    ) -> None:
        result = act(process, *details)
        self._world.carry(process, self._return, process.life, process, loop, answer, result, reliably=True)

    def _return(
        self, life: int, process: SimProcess, loop: VirtualLoop, answer: asyncio.Future[Any], result: object
    ) -> None:
        if life == process.life:
            loop.call_soon_threadsafe(_settle, answer, result)

    def _read(self, _process: SimProcess) -> object:
        return self.value

    def _write(self, process: SimProcess, token: int, value: object) -> object:
        world, who = self._world, process.name
        if token < self._newest:
            seen = f"after {self._writer} had written with token {self._newest}"
            if self._fenced:
                world.note(who, f"was refused: it wrote {self.name} with token {token} {seen}")
                return Fenced(self.name, token=token, newest=self._newest)
            world.mark(who, "stale write")
            world.fail(Violation("stale write", f"{who} wrote {self.name} with token {token} {seen}", world.now))
        elif token == self._newest and who != self._writer:
            both = f"{who} and {self._writer} wrote {self.name} with the same token {token}"
            world.fail(Violation("two owners", both, world.now))
        self._newest, self._writer, self.value = max(token, self._newest), who, value
        world.mark(who, "writes")
        world.note(who, f"wrote {self.name} with token {token}: {value!r}")
        return None


def _settle(answer: asyncio.Future[Any], result: object) -> None:
    if answer.done():
        return
    if isinstance(result, Fenced):
        answer.set_exception(result)
    else:
        answer.set_result(result)
