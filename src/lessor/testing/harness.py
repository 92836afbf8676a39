"""What the conformance suite needs to know about a store. Subclass it; override what your store can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lessor.core.clock import Clock
    from lessor.stores.base import Store


class Harness:
    """One test's view of a store. A new one is made for each test, with a folder of its own."""

    ttl: float = 0.5
    """A short TTL that the store takes, in seconds. The suite waits for it many times."""

    @property
    def steady(self) -> float:
        """A TTL that renewals keep alive on any machine, and that is still waited for: for what must not be lost."""
        return max(4 * self.ttl, 6.0)

    mints_by_our_clock: bool = False
    """Whether the wall clock in the tokens is that of the clock handed in, so that tests can set it back."""

    lag: float = 0.0
    """Seconds after its expiry for which a resource may stay closed, where the store's server looks from time to time."""

    can_hang: bool = True
    """Whether a call to the store can be left without an answer at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self) -> str:
        """Return the URL of an empty store: the same one for the whole test."""
        raise NotImplementedError

    def open(self, clock: Clock | None = None) -> Store:
        """Open the store itself."""
        return open_store(self.url(), clock or SYSTEM)

    def collect(self, store: Store) -> None:
        """Make the store forget all that it may forget about free resources."""
        raise NotImplementedError

    def hanging(self) -> AbstractContextManager[None]:
        """Let the store answer nobody meanwhile, as if it hung; afterwards it goes on where it was."""
        raise NotImplementedError

    def close(self) -> None:
        """Clean up after the test."""
