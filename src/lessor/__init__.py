"""Leases: exclusive ownership of a named resource, for a limited time, with a fencing token.

A lease can't stop work that ignores it: call ``lease.check()`` where it matters, and guard writes with ``lease.token``.

    from lessor import Client

    with Client() as leases, leases.acquire("reports/nightly", ttl=30) as lease:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.client.lease import Lease, current_lease
from lessor.client.sync import Client, Grant, Place
from lessor.core.holder import State
from lessor.core.ops import EventKind, Loss
from lessor.core.timing import Renewal, Timing
from lessor.errors import (
    Cancelled,
    Closed,
    ConfigError,
    Draining,
    Fenced,
    InvalidResource,
    LeaseHeld,
    LeaseLost,
    LessorError,
    QueueFull,
    StillWorking,
    StoreUnavailable,
    WouldDeadlock,
)
from lessor.patterns.options import Options, SessionOptions
from lessor.patterns.semaphore import AsyncSemaphore, Semaphore
from lessor.patterns.session import AsyncSession, Session
from lessor.patterns.several import AsyncBundle, Bundle
from lessor.runtime.cancellation import Cancellation

if TYPE_CHECKING:
    from lessor.client.aio import AsyncClient, AsyncGrant, AsyncPlace
    from lessor.client.lease_async import AsyncLease
    from lessor.core.view import Contender, Event, Parent, Record
    from lessor.patterns.campaign import Campaign, Term
    from lessor.patterns.campaign_async import AsyncCampaign, AsyncTerm
    from lessor.patterns.election import Leader
    from lessor.patterns.sigterm import drain_on_sigterm
    from lessor.patterns.singleton import SKIPPED, Skipped

__version__ = "0.1.0.dev0"

__all__ = [
    "SKIPPED",
    "AsyncBundle",
    "AsyncCampaign",
    "AsyncClient",
    "AsyncGrant",
    "AsyncLease",
    "AsyncPlace",
    "AsyncSemaphore",
    "AsyncSession",
    "AsyncTerm",
    "Bundle",
    "Campaign",
    "Cancellation",
    "Cancelled",
    "Client",
    "Closed",
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
    "LessorError",
    "Loss",
    "Options",
    "Parent",
    "Place",
    "QueueFull",
    "Record",
    "Renewal",
    "Semaphore",
    "Session",
    "SessionOptions",
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
    "AsyncCampaign": "lessor.patterns.campaign_async",
    "AsyncClient": "lessor.client.aio",
    "AsyncGrant": "lessor.client.aio",
    "AsyncLease": "lessor.client.lease_async",
    "AsyncPlace": "lessor.client.aio",
    "AsyncTerm": "lessor.patterns.campaign_async",
    "Campaign": "lessor.patterns.campaign",
    "Contender": "lessor.core.view",
    "Event": "lessor.core.view",
    "Leader": "lessor.patterns.election",
    "Parent": "lessor.core.view",
    "Record": "lessor.core.view",
    "SKIPPED": "lessor.patterns.singleton",
    "Skipped": "lessor.patterns.singleton",
    "Term": "lessor.patterns.campaign",
    "drain_on_sigterm": "lessor.patterns.sigterm",
}


if not TYPE_CHECKING:  # else a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name in _LATER:
            from importlib import import_module  # noqa: PLC0415

            return getattr(import_module(_LATER[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
