"""What a node refuses although its types are right. Nobody's mistake may harm what it keeps for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lessor.core.lease import MAX_RESOURCE_BYTES, TOKEN_LIMIT
from lessor.core.ops import LONGEST_RESERVATION_NS
from lessor.core.paxos.messages import Accept, Drop, End, Extend, Scan
from lessor.core.timing import MAX_TTL_NS

if TYPE_CHECKING:
    from lessor.core.ops import Acquire, Release
    from lessor.core.paxos.messages import Item

LONGEST_NAME: Final = MAX_RESOURCE_BYTES + 65
"""Characters of a resource with its namespace."""
LONGEST_METADATA: Final = 64 * 1024
LONGEST_ID: Final = 256
"""Characters of a lease id, or of the address of somebody who listens."""
LONGEST_HOLDER: Final = 4096
LARGEST_PAGE: Final = 1000
_metadata = msgspec.json.Decoder(dict[str, str])


def problem(item: Item) -> str:
    """Say what is wrong with an item; empty: nothing."""
    if isinstance(item, Accept):
        op = item.op
        if not 0 <= item.token <= item.n or not 0 <= item.ticket < TOKEN_LIMIT or not 0 <= item.since_us < TOKEN_LIMIT:
            return "a number is out of bounds"
        return _bad_name(op.resource, op.lease_id) or _too_long(op.holder, op.notify) or _details(op)
    if isinstance(item, Scan):
        return "" if 0 < item.limit <= LARGEST_PAGE else f"a page has 1 to {LARGEST_PAGE} records"
    if isinstance(item, Extend):
        return _bad_name(item.op.resource, item.op.lease_id) or _negative(item.op.ttl_ns)
    if isinstance(item, Drop):
        release = item.op
        return (
            _bad_name(release.resource, release.lease_id)
            or _too_long(release.successor or "", "")
            or _bad_handover(release)
        )
    if isinstance(item, End):
        return _bad_name(item.op.resource, "")
    return _bad_name(item.resource, getattr(item, "lease_id", ""))


def _bad_name(resource: str, lease_id: str) -> str:
    if not 0 < len(resource) <= LONGEST_NAME:
        return f"a resource's name has 1 to {LONGEST_NAME} characters here"
    return "" if len(lease_id) <= LONGEST_ID else "the lease id is too long"


def _too_long(holder: str, notify: str) -> str:
    return "a name is too long" if len(holder) > LONGEST_HOLDER or len(notify) > LONGEST_ID else ""


def _bad_handover(op: Release) -> str:
    if len(op.state) > LONGEST_METADATA:
        return "the state is too large"
    return "" if 0 <= op.reserve_ns <= LONGEST_RESERVATION_NS else "a reservation is too long, or negative"


def _negative(*times: int) -> str:
    return "a time is negative" if min(times) < 0 else ""


def _details(op: Acquire) -> str:
    if not any(op[7:]):
        return _negative(op.ttl_ns)  # most are like that
    if op.metadata:
        if len(op.metadata) > LONGEST_METADATA:
            return "the metadata is too long"
        try:
            _metadata.decode(op.metadata)
        except msgspec.DecodeError:
            return "the metadata is no mapping of text to text"
    if op.parent is not None and (why := _bad_name(op.parent[0], "")):
        return why
    times = (op.ttl_ns, op.soft_ns, op.grace_ns, op.lock_delay_ns, op.hold_at_least_ns)
    return _negative(*times) or ("a time is longer than a day" if max(times) > MAX_TTL_NS else "")
