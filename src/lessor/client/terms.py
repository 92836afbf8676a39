"""What a caller asks for, checked, and turned into an attempt to get it. The same for both faces."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from lessor.core.claim import Claim
from lessor.core.ops import Acquire, Loss, Release
from lessor.core.timing import to_ns
from lessor.errors import ConfigError, InvalidResource, LeaseLost
from lessor.runtime.engine import forked_error

if TYPE_CHECKING:
    from typing import Any

    from lessor.client.options import Terms
    from lessor.core.timing import Duration
    from lessor.runtime.engine import Engine
    from lessor.runtime.tenure import Tenure

STATE_FILE = "lessor/leases.db"
FOR_EVER_NS = 1 << 62
"""Later than any clock of ours."""
EXTRAS_FROM = Acquire._fields.index("metadata")


def default_url() -> str:
    """Return LESSOR_URL, or a SQLite file in the user's state folder, whose folder is made."""
    url = os.environ.get("LESSOR_URL")
    if url:
        return url
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = os.path.join(os.path.abspath(state), STATE_FILE)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder for the default store can't be made ({error}): set LESSOR_URL or give a URL"
        ) from error
    return "sqlite:///" + path.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


def check_prefix(prefix: Any) -> str:
    """Return the prefix if names can start with it."""
    if not isinstance(prefix, str):
        raise InvalidResource(prefix, f"a prefix is str, not {type(prefix).__name__}")
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise InvalidResource(prefix, "it has a lone surrogate, which UTF-8 can't express") from None
    return prefix


def check_force(force: Any) -> bool:
    """Return it if it is a plain yes or no: whatever is merely true would end a lease at once."""
    if not isinstance(force, bool):
        raise ConfigError(f"force is True or False, not {type(force).__name__}")
    return force


def check_wait(wait: Duration) -> int:
    """Return the nanoseconds to wait; less than none are refused."""
    ns = to_ns(wait, "the wait")
    if ns < 0:
        raise ConfigError(f"the wait can't be negative, and it is {ns / 1e9:g} s")
    return ns


def make_claim(engine: Engine, resource: str, terms: Terms, wait: Duration | None) -> Claim:
    """Return a fresh attempt, with a lease id of its own, at a resource whose name was checked."""
    timing, ttl_ns, _, _, extras, parent, cancels = terms
    if parent is not None:
        refuse_cycle(resource, parent)
    for cancel in cancels:
        cancel.check()
    wait_ns = None if wait is None else check_wait(wait)
    engine.prepare(timing)
    generation = engine.generation
    now = engine.clock.mark()
    op = Acquire(
        resource,
        engine.ids.new(now),
        engine.holder,
        ttl_ns,
        wait_ns is None or wait_ns > 0,
        engine.waiters.address,
        engine.seen_token,
    )
    if extras:
        op = Acquire._make((*op[:EXTRAS_FROM], *extras))
        check_parent(engine, terms)
    until = None if wait_ns is None else now + wait_ns
    claim = Claim(op, timing, now, until, engine.patience_ns)
    if generation:
        claim.generation = generation
    if engine.forked or generation != engine.generation:  # in here, or since the caller looked whether it is open
        raise forked_error(resource)
    return claim


def require_ours(engine: Engine, claim: Claim) -> None:
    """Refuse to go on with a claim of the process that this one was forked from, in a signal handler, meanwhile."""
    if claim.generation != engine.generation:
        raise forked_error(claim.op.resource)


def refuse_cycle(resource: str, parent: Tenure) -> None:
    """Refuse a resource that would stand under itself."""
    above: Tenure | None = parent
    while above is not None:
        if above.resource == resource:
            raise ConfigError(f"{resource!r} can't stand under {parent.resource!r}, which is or stands under it")
        above = above.parent


def go_on(engine: Engine, terms: Terms) -> None:
    """Raise if there is nothing to wait for any more: closed, cancelled, or without the parent that it needs."""
    engine.require_open()
    for cancel in terms.cancels:
        cancel.check()
    check_parent(engine, terms)


def check_parent(engine: Engine, terms: Terms) -> None:
    """Refuse a parent that is lost, or not held by this very client."""
    parent = terms.parent
    if parent is not None:
        if parent._engine is not engine:
            raise ConfigError("a parent is a lease of the same client")
        parent.check()


def start_over(engine: Engine, claim: Claim) -> None:
    """Go on with another lease id, and give the spent one back."""
    require_ours(engine, claim)
    engine.waiters.leave(claim.op.lease_id)
    release = Release(claim.op.resource, claim.op.lease_id, abandon=claim.in_doubt or claim.astray)
    engine.keeper.dispose(release, claim.timing.ttl_ns)
    claim.restart(engine.ids.new(engine.clock.now()))
    engine.waiters.expect(claim.op.lease_id)


def drop_claim(engine: Engine, claim: Claim) -> None:
    """Leave nothing of an attempt behind that failed, was cancelled, timed out or was interrupted."""
    if claim.generation != engine.generation:
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, LeaseLost):
            raise forked_error(claim.op.resource) from error  # whatever it has come upon in the parent's remains
        return  # it is the parent's, which goes on with it
    engine.waiters.leave(claim.op.lease_id)
    tenure = engine.lease(claim.op.lease_id)
    if tenure is not None:
        engine.abandon(tenure, Loss.RELEASED)
    engine.held.pop(claim.op.lease_id, None)  # a lease that was interrupted in the making, and is gone already
    unsure = claim.in_doubt or claim.astray
    if unsure or claim.queued:
        release = Release(claim.op.resource, claim.op.lease_id, abandon=unsure)
        engine.keeper.dispose(release, claim.timing.ttl_ns)
