"""An asyncio event loop in virtual time. It has timers, tasks and threads, and no sockets, pipes or processes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from lessor.core.clock import MICROSECOND, SECOND
from lessor.sim.program.threads import VirtualThread, this_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.sim.program.process import SimProcess

STEP_NS = 10 * MICROSECOND
"""How long a round of the loop takes at least. Not drawn: another Python may take more rounds for the same."""
ROUNDS = 100
"""How often what is cancelled at the end is given a turn."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs on the thread that makes it. Its time is the clock of its process."""

    def __init__(self, process: SimProcess) -> None:
        super().__init__()
        self.process = process
        self._thread = this_thread()
        self._selector = self  # which BaseEventLoop asks to wait
        self.set_exception_handler(self._report)

    def time(self) -> float:
        """Return the time of the process's clock."""
        return self.process.clock.now() / SECOND

    def select(self, timeout: float | None) -> list[object]:
        """Wait for a timer, or for another thread to call. Never takes no time at all."""
        until = None
        if timeout is not None:
            until = self.process.in_true_time(max(timeout, STEP_NS / SECOND))
        self._thread.park(until)
        return []

    def _process_events(self, event_list: list[object]) -> None:
        """There are none: what comes, comes by ``call_soon_threadsafe``."""

    def _write_to_self(self) -> None:
        self._thread.unpark()

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,  # noqa: ARG002 - all are alike
        func: Callable[..., Any],
        *args: Any,
    ) -> asyncio.Future[Any]:
        """Run it in a virtual thread."""
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                self.call_soon_threadsafe(_settle, future, error, None)
            else:
                self.call_soon_threadsafe(_settle, future, None, result)

        if self.process.world.scheduler.over:
            work()
        else:
            VirtualThread(self.process, work, "executor")
        return future

    def cancel_all(self) -> None:
        """Cancel what still runs, and give it some time to end."""
        for _ in range(ROUNDS):
            tasks = asyncio.all_tasks(self)
            if not tasks:
                return
            for task in sorted(tasks, key=lambda task: task.get_name()):
                task.cancel()
            self.call_soon(self.stop)
            self.run_forever()

    def put_away(self) -> None:
        """End what is left once the world is over, when nothing of it counts any more."""
        self._thread.tidying = True
        self.set_exception_handler(lambda _loop, _context: None)
        with contextlib.suppress(Exception):
            self.cancel_all()
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # it refuses to end
        self.close()

    def _report(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception):
            self.process.failed(error)


def _settle(future: asyncio.Future[Any], error: Exception | None, result: object) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
