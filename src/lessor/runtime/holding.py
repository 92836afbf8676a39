"""How the engine refers to leases: weakly, so that a lease lasts no longer than the program has it.

An interrupt (Ctrl-C, a time limit) may come at any instruction: also after ``acquire()`` has returned and before the
``with`` has begun, where nothing but the reference itself is left to tell that the lease was lost. A lease that nothing
refers to is given back by the keeper in place of its next renewal.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from lessor.core.ops import Release

if TYPE_CHECKING:
    from lessor.core.ops import Acquire
    from lessor.runtime.tenure import Tenure


class Holding(weakref.ref["Tenure"]):
    """A weak reference to a lease, with what it takes to give the lease back without it."""

    __slots__ = ("entered", "op", "token", "ttl_ns", "unanswered")

    op: Acquire
    unanswered: Release | None
    """How to give it back, if not plainly."""
    token: int
    ttl_ns: int
    entered: bool
    """Whether its ``with`` was entered: then an interrupt has cut that off, and the program isn't to blame."""

    @classmethod
    def of(cls, tenure: Tenure) -> Holding:
        """Return the reference to this lease."""
        holding = cls(tenure)
        holding.op = tenure._op
        holding.unanswered = tenure._unanswered
        holding.token = tenure.token
        holding.ttl_ns = tenure._timing.ttl_ns
        holding.entered = False
        return holding

    @property
    def release(self) -> Release:
        """What gives the lease back."""
        return self.unanswered or Release(self.op.resource, self.op.lease_id)
