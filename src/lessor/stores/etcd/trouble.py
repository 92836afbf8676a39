"""What etcd says when it refuses, as the error that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from lessor.errors import LessorError
    from lessor.stores.hosts import Node

REFUSES: Final = {
    "permission denied": "doesn't permit it to this user: let its role read and write the namespace's keys",
    "too many operations in txn": "takes fewer operations in a transaction than by default: "
    "start it without --max-txn-ops, or with 128 or more",
}
"""These don't go away by themselves, and are about one request."""

NEEDS_SETTLING: Final = {
    "authentication failed": "refuses the user name or password: mend the URL",
    "user name is empty": "wants a user and a password: write them into the URL",
    "unknown service": "is no etcd, or older than 3.4",
}
"""Nor do these, whatever is asked."""

PASSES: Final = {
    "too many requests": "has too many requests to do",
    "no leader": "has no leader",
    "leader changed": "has just changed its leader",
    "possibly due to": "has just lost its leader or a connection to it",
    "request timed out": "did not get the members' agreement in time",
    "server stopped": "is stopping",
    "database space exceeded": "is full (alarm NOSPACE), and takes no writes: compact and defragment it",
    "request is too large": "refuses a request of that size (--max-request-bytes)",
    "corrupt": "has found its data corrupt",
}


class LeaseGone(StoreUnavailable):
    """An etcd lease that the request names is over. Nothing was done."""


class RefusedError(ConfigError):
    """The request is one that etcd doesn't take. Nothing was done; others may go well."""


class NotLoggedIn(StoreUnavailable):
    """The token that stands for user and password is no longer known. Nothing was done."""


class Elsewhere(StoreUnavailable):
    """This member can't serve it now; another one may."""


def explain(text: str, node: Node) -> LessorError:
    """Return the error for what a member answered."""
    if "requested lease not found" in text:
        return LeaseGone("etcd", f"{node} doesn't know a lease")
    if "invalid auth token" in text or "revision of auth store is old" in text:
        return NotLoggedIn("etcd", f"{node} doesn't know the login any more")
    for kind, meanings in ((RefusedError, REFUSES), (ConfigError, NEEDS_SETTLING)):
        for word, meaning in meanings.items():
            if word in text:
                return kind(f"etcd at {node} {meaning}")
    for word, meaning in PASSES.items():
        if word in text:
            return Elsewhere("etcd", f"{node} {meaning}")
    return Elsewhere("etcd", f"{node} answers: {text[:200]}")


def silence(error: OSError, node: Node) -> Elsewhere:
    """Return the error for a connection that gave no answer."""
    what = "gave no answer in time" if isinstance(error, TimeoutError) else f"gave no answer: {error.strerror or error}"
    return Elsewhere("etcd", f"{node} {what}")
