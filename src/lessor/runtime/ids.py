"""Lease ids: 128 bits that nobody can guess, and that nobody else has.

Drawn from the system some at a time: a system call for each lets go of the interpreter in the middle of an acquisition,
which many tasks pay for. What is left over is thrown away at once, because a virtual machine that is copied has its
memory copied too, and two leases with one id would be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.core.clock import MILLISECOND

if TYPE_CHECKING:
    from lessor.runtime.host import Host

BYTES: Final = 16
DRAWN: Final = 64
FRESH_NS: Final = 10 * MILLISECOND


class Ids:
    """Makes ids. One for each client, made anew in a forked child."""

    def __init__(self, host: Host) -> None:
        self._entropy = host.entropy
        self._fresh_until_ns = 0
        self._left: list[str] = []

    def new(self, now: int) -> str:
        """Return an id that was never used."""
        if now < self._fresh_until_ns:
            try:
                return self._left.pop()
            except IndexError:
                pass
        text = self._entropy(BYTES * DRAWN).hex()
        left = [text[at : at + 2 * BYTES] for at in range(0, len(text), 2 * BYTES)]
        mine = left.pop()
        self._left, self._fresh_until_ns = left, now + FRESH_NS
        return mine
