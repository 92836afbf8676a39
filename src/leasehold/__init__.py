"""Leases: exclusive ownership of a named resource, for a limited time, with a fencing token.

A lease can't stop work that ignores it: call ``lease.check()`` where it matters, and guard writes with ``lease.token``.

    from leasehold import Client

    with Client() as leases, leases.acquire("reports/nightly", ttl=30) as lease:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.client.lease import Lease
from leasehold.client.options import Options
from leasehold.client.sync import Client, Grant, Place
from leasehold.core.holder import State
from leasehold.core.lease import Contender, Record
from leasehold.core.ops import Event, EventKind, Loss
from leasehold.core.timing import Renewal, Timing
from leasehold.errors import (
    ConfigError,
    Draining,
    Fenced,
    InvalidResource,
    LeaseHeld,
    LeaseholdError,
    LeaseLost,
    QueueFull,
    StillWorking,
    StoreUnavailable,
    WouldDeadlock,
)
from leasehold.patterns.semaphore import AsyncSemaphore, Semaphore
from leasehold.patterns.session import AsyncSession, Session
from leasehold.patterns.several import AsyncBundle, Bundle

if TYPE_CHECKING:
    from leasehold.client.aio import AsyncClient, AsyncGrant, AsyncPlace
    from leasehold.client.lease_async import AsyncLease
    from leasehold.patterns.campaign import Term
    from leasehold.patterns.campaign_async import AsyncTerm
    from leasehold.patterns.election import Leader
    from leasehold.patterns.sigterm import drain_on_sigterm
    from leasehold.patterns.singleton import SKIPPED, Skipped, current_lease

__version__ = "0.1.0.dev0"

__all__ = [
    "SKIPPED",
    "AsyncBundle",
    "AsyncClient",
    "AsyncGrant",
    "AsyncLease",
    "AsyncPlace",
    "AsyncSemaphore",
    "AsyncSession",
    "AsyncTerm",
    "Bundle",
    "Client",
    "ConfigError",
    "Contender",
    "Draining",
    "Event",
    "EventKind",
    "Fenced",
    "Grant",
    "InvalidResource",
    "Leader",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "LeaseholdError",
    "Loss",
    "Options",
    "Place",
    "QueueFull",
    "Record",
    "Renewal",
    "Semaphore",
    "Session",
    "Skipped",
    "State",
    "StillWorking",
    "StoreUnavailable",
    "Term",
    "Timing",
    "WouldDeadlock",
    "current_lease",
    "drain_on_sigterm",
]


# asyncio takes as long to import as all the rest together, so the async face comes when it is asked for; and so do the
# patterns, since most programs use one of them at most.
_LATER = {
    "AsyncClient": "leasehold.client.aio",
    "AsyncGrant": "leasehold.client.aio",
    "AsyncLease": "leasehold.client.lease_async",
    "AsyncPlace": "leasehold.client.aio",
    "AsyncTerm": "leasehold.patterns.campaign_async",
    "Leader": "leasehold.patterns.election",
    "SKIPPED": "leasehold.patterns.singleton",
    "Skipped": "leasehold.patterns.singleton",
    "Term": "leasehold.patterns.campaign",
    "current_lease": "leasehold.patterns.singleton",
    "drain_on_sigterm": "leasehold.patterns.sigterm",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
