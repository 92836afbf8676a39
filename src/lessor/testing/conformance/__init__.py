"""The definition of a store: every case here passes on every store, through the sync and the async client.

There are two halves. `StoreCases` are about what a store itself decides: who holds what, with which token, until when,
in which order, and what is pushed. `PatternCases` are about what the clients make of a store's operations: sessions,
several resources at once, semaphores, re-entry, elections, draining, singletons, and what users are shown. A store that passes the first half
rarely fails the second, so that a project with many stores may run the second half on some of them at each change, and
on all of them before a release. `StoreConformance` is both.

One module per promise. A defect found anywhere becomes a case here.
"""

from lessor.testing.conformance.batches import Batches
from lessor.testing.conformance.cancellation import Cancellation
from lessor.testing.conformance.closing import Closing
from lessor.testing.conformance.draining import Draining
from lessor.testing.conformance.electing import Electing
from lessor.testing.conformance.ending import Ending
from lessor.testing.conformance.exclusion import Exclusion
from lessor.testing.conformance.family import Family
from lessor.testing.conformance.grace import Grace
from lessor.testing.conformance.handover import Handover
from lessor.testing.conformance.holding import Holding
from lessor.testing.conformance.interruptions import Interruptions
from lessor.testing.conformance.limits import Limits
from lessor.testing.conformance.naming import Naming
from lessor.testing.conformance.ordering import Ordering
from lessor.testing.conformance.processes import Processes
from lessor.testing.conformance.queueing import Queueing
from lessor.testing.conformance.reentry import Reentry
from lessor.testing.conformance.renewing import Pacing, Renewing
from lessor.testing.conformance.semaphores import Semaphores
from lessor.testing.conformance.sessions import Sessions
from lessor.testing.conformance.several import Several
from lessor.testing.conformance.showing import Showing
from lessor.testing.conformance.silence import Silence
from lessor.testing.conformance.singletons import Singletons
from lessor.testing.conformance.stopping import Stopping
from lessor.testing.conformance.tokens import Tokens
from lessor.testing.conformance.waiting import Waiting
from lessor.testing.conformance.watching import Watching


class StoreCases(
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
    Closing,
    Family,
    Watching,
    Cancellation,
    Silence,
    Batches,
    Naming,
    Processes,
    Interruptions,
):
    """What a store decides. Set ``harness`` in a subclass whose name starts with ``Test``."""


class PatternCases(Sessions, Several, Semaphores, Reentry, Electing, Draining, Singletons, Stopping, Pacing, Showing):
    """What the clients make of a store's operations."""


class StoreConformance(StoreCases, PatternCases):
    """All cases. Set ``harness`` in a subclass whose name starts with ``Test``."""


__all__ = ["PatternCases", "StoreCases", "StoreConformance"]
