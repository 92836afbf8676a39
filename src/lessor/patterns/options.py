"""What may be said about a lease besides its name, its TTL and how long to wait. The clients check it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lessor.core.timing import Duration, Renewal
    from lessor.runtime.cancellation import Cancellation
    from lessor.runtime.tenure import Tenure


class SessionOptions(TypedDict, total=False):
    """Keyword arguments of a session's ``acquire``, ``try_acquire``, ``try_each`` and ``acquire_all``."""

    metadata: Mapping[str, str] | None
    """Shown to whoever asks about the lease."""
    soft: Duration | None
    """After this long, an acquirer with ``recover=True`` may revoke it."""
    lock_delay: Duration | None
    """After an expiry, not after a release, nobody gets the resource for so long: for what can't check tokens. Under a
    parent 60 s at most."""
    hold_at_least: Duration | None
    """A release frees the resource only so long after it was granted: for jobs that must not run twice in a row."""
    priority: int
    """Waiters of a higher one come first; 0 if nothing is said."""
    queue_limit: int | None
    """With so many waiters there already, raise `QueueFull` rather than wait."""
    recover: bool
    """If the resource is held beyond its holder's ``soft``, revoke that lease: it ends at the expiry already promised."""
    cancel: Cancellation | None
    """Ends the wait: once ``cancel.cancel()`` is called, in any thread, the call that waits raises `Cancelled`."""


class Options(SessionOptions, total=False):
    """Keyword arguments of ``acquire``, ``try_acquire``, ``enqueue``, ``acquire_in`` and all that acquire for you."""

    renewal: Renewal | str | None
    """When to renew: a strategy's name."""
    max_hold: Duration | None
    """It is not renewed beyond so long a time after it was asked for."""
    stall_after: Duration | None
    """It is renewed only while ``lease.progress()`` is called at least this often."""
    grace: Duration | None
    """Grace period: an expired lease may still be renewed for this long if nobody took it."""
    parent: Tenure | None
    """A lease that this one is a child of: it ends with it. With ``ttl=None`` it lasts exactly as long, and the parent's
    renewals are its own."""
