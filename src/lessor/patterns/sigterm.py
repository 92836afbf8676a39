"""Draining when the process is asked to end. SIGKILL can't be answered: then the leases end with their TTL."""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from lessor.errors import ConfigError, Draining, LessorError
from lessor.runtime.log import log

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from lessor.core.timing import Duration
    from lessor.patterns.drain import Heir, State


class DrainOnSigterm:
    """What ``drain_on_sigterm`` returns: for a ``with`` or, where the leases are async, an ``async with``.

    A signal handler must not wait for the very thread that it interrupts, so a thread or task of its own does the
    draining. The end of the ``with`` waits for that.
    """

    def __init__(
        self, leases: tuple[Any, ...], timeout: Duration | None, to: Heir, state: State, within: Duration
    ) -> None:
        if not leases:
            raise ConfigError("drain_on_sigterm() needs at least one lease or campaign, and there is none")
        self._leases = leases
        self._how = (timeout, to, state, within)
        self._orders: SimpleQueue[bool] = SimpleQueue()  # its put() is safe in a signal handler
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._before: Any = None
        self.begun: Any = None
        """An event, of the kind that the face has: set when SIGTERM has come."""

    # --- threads --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError("signals come to the main thread: call drain_on_sigterm there")
        self.begun = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="lessor-drain", daemon=True)
        self._thread.start()
        self._before = signal.signal(signal.SIGTERM, lambda *_: self._orders.put(True))
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
        self._orders.put(False)  # a SIGTERM that came before it counts
        assert self._thread is not None
        self._thread.join()
        return self._is_ours(exc)

    def _wait(self) -> None:
        if self._orders.get():
            self._announce()
            threads = [threading.Thread(target=self._drain, args=(lease,)) for lease in self._leases[1:]]
            for thread in threads:
                thread.start()
            self._drain(self._leases[0])
            for thread in threads:
                thread.join()

    def _drain(self, lease: Any) -> None:
        try:
            lease.drain(*self._how)
        except LessorError as error:
            log().warning("not drained: %s", error)

    # --- asyncio --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 - here and below: threads don't need it

        self.begun = asyncio.Event()
        self._before = signal.getsignal(signal.SIGTERM)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._begin)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        import asyncio  # noqa: PLC0415

        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
        if self._task is not None:
            await self._task
        return self._is_ours(exc)

    def _begin(self) -> None:
        import asyncio  # noqa: PLC0415

        if self._task is None:
            self._announce()
            self._task = asyncio.get_running_loop().create_task(self._drain_all())

    async def _drain_all(self) -> None:
        import asyncio  # noqa: PLC0415

        for outcome in await asyncio.gather(
            *(lease.drain(*self._how) for lease in self._leases), return_exceptions=True
        ):
            if isinstance(outcome, LessorError):
                log().warning("not drained: %s", outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    def _announce(self) -> None:
        """Tell the body. By then a campaign is stopped: a body that ends at once must not be elected again."""
        for lease in self._leases:
            lease._announce_drain()
        self.begun.set()

    def _is_ours(self, error: BaseException | None) -> bool:
        """Whether the body ended because there is no more work to take: that is no failure."""
        return isinstance(error, Draining) and any(lease._refused(error) for lease in self._leases)


def drain_on_sigterm(
    *leases: Any,
    timeout: Duration | None = None,
    to: str | Callable[[], Any] | None = None,
    state: bytes | Callable[[], Any] = b"",
    within: Duration = 5.0,
) -> DrainOnSigterm:
    """Drain these leases or campaigns when SIGTERM comes, as their ``drain()`` does. Use it in a ``with``, in the main thread.

    A campaign is stopped as well: a candidate leaves the queue, and the loop ends after the term that is drained. The
    body should end then: ``lease.work()`` raises `Draining`, which ends the ``with`` and goes no further, and
    ``begun`` is an event for bodies that wait for something else. The end of the ``with`` waits for the drain. When the
    ``timeout`` is over and work is still in flight, the lease is kept, and a warning logged.
    """
    return DrainOnSigterm(leases, timeout, to, state, within)
