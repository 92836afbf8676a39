"""The definition of a store: every case here passes on every store, through both faces.

One module a promise. A defect found anywhere becomes a case here.
"""

from leasehold.testing.conformance.batches import Batches
from leasehold.testing.conformance.cancellation import Cancellation
from leasehold.testing.conformance.draining import Draining
from leasehold.testing.conformance.electing import Electing
from leasehold.testing.conformance.ending import Ending
from leasehold.testing.conformance.exclusion import Exclusion
from leasehold.testing.conformance.family import Family
from leasehold.testing.conformance.grace import Grace
from leasehold.testing.conformance.handover import Handover
from leasehold.testing.conformance.holding import Holding
from leasehold.testing.conformance.limits import Limits
from leasehold.testing.conformance.naming import Naming
from leasehold.testing.conformance.ordering import Ordering
from leasehold.testing.conformance.processes import Processes
from leasehold.testing.conformance.queueing import Queueing
from leasehold.testing.conformance.reentry import Reentry
from leasehold.testing.conformance.renewing import Renewing
from leasehold.testing.conformance.semaphores import Semaphores
from leasehold.testing.conformance.sessions import Sessions
from leasehold.testing.conformance.several import Several
from leasehold.testing.conformance.singletons import Singletons
from leasehold.testing.conformance.tokens import Tokens
from leasehold.testing.conformance.waiting import Waiting
from leasehold.testing.conformance.watching import Watching


class StoreConformance(
    Exclusion,
    Tokens,
    Renewing,
    Grace,
    Holding,
    Ending,
    Waiting,
    Queueing,
    Ordering,
    Handover,
    Limits,
    Family,
    Sessions,
    Several,
    Semaphores,
    Reentry,
    Electing,
    Draining,
    Singletons,
    Watching,
    Cancellation,
    Batches,
    Naming,
    Processes,
):
    """All cases. Set ``harness`` in a subclass whose name starts with ``Test``."""


__all__ = ["StoreConformance"]
