"""Two clients about one resource while things break: what the holder believes, and when the rival gets it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from leasehold import Client
from leasehold.core.holder import State
from leasehold.errors import StoreUnavailable
from leasehold.runtime.clock import SYSTEM
from leasehold.testing.conformance.base import Thread, until

if TYPE_CHECKING:
    from typing import Self

    from leasehold.client.sync import Lease

PATIENCE = 60.0


class Contest:
    """A holder that looks at its lease all the time, and a rival that waits for it."""

    def __init__(self, holder_url: str, rival_url: str, ttl: float) -> None:
        self.ttl = ttl
        self.holder = Client(holder_url, holder="holder", timeout=3)
        self.rival = Client(rival_url, holder="rival", timeout=3)
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        self.lease: Lease = self.holder.acquire("job", ttl=self.ttl)
        self.believed_ns = 0
        """When the holder last found its lease safe."""
        self._looking = Thread(self._look)
        self._waiting = Thread(self._wait)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.holder.close()
        self.rival.close()

    def _look(self) -> None:
        while not self._stop.wait(0.001):
            before = SYSTEM.now()
            if self.lease.state is not State.LOST and self.lease.remaining > 0:
                self.believed_ns = before

    def _wait(self) -> tuple[Lease, int]:
        lease = self.rival.acquire("job", ttl=self.ttl, wait=PATIENCE)
        return lease, SYSTEM.now()

    def rival_gets_it(self) -> Lease:
        """Wait for that; the holder must have stopped believing before, and the token must be higher."""
        newer, at = self._waiting.result(PATIENCE)
        lease: Lease = newer
        assert self.believed_ns < at, "two holders at once"
        assert self.lease.state is State.LOST
        assert lease.token > self.lease.token
        return lease

    def holder_gets_it_again(self, rivals: Lease) -> None:
        """Both go on with the clients that they have."""
        rivals.release()
        again: list[Lease] = []

        def acquired() -> bool:
            with contextlib.suppress(StoreUnavailable):  # a member takes its time to find back to the others
                again.append(self.holder.acquire("job", ttl=self.ttl, wait=PATIENCE))
            return bool(again)

        until(acquired, "the holder's next lease", PATIENCE)
        assert again[0].token > rivals.token
        again[0].release()
