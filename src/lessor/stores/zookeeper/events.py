"""What happened, written down for those who watch; and only while somebody does.

Whoever watches says so in the root, whose version every transaction checks, so from then on nothing goes untold. An
event is made in the transaction that it is about: it has the same zxid, which is a grant's token.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from lessor.core.clock import SECOND
from lessor.core.ops import Event, EventKind
from lessor.stores.zookeeper.layout import sequence
from lessor.stores.zookeeper.wire import (
    ANY_VERSION,
    EPHEMERAL,
    NODE_ERRORS,
    SEQUENCE,
    Create,
    Delete,
    GetChildren,
    SetData,
)

if TYPE_CHECKING:
    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.session import Session

KEPT: Final = 1000
"""How many events are kept for those who were away."""
TIMEOUT: Final = 1.0
"""Seconds that the servers have to answer."""


def creation(desk: Desk, event: Event, offset: int) -> Any:
    """Return the operation that writes an event down."""
    said = [str(event.kind), event.resource, event.token, event.holder, event.at_us, event.ttl_ns, offset]
    return Create(f"{desk.layout.events}/e-", json.dumps(said).encode(), desk.acl, SEQUENCE)


def loads(data: bytes, stat: Any) -> Event:
    """Read what `creation` wrote."""
    kind, resource, token, holder, at_us, ttl_ns, offset = json.loads(data)
    if kind == EventKind.GRANTED:
        token = stat.czxid + offset
    return Event(EventKind(kind), resource, token, holder, at_us, ttl_ns)


def watch(desk: Desk, main: Session, address: str) -> None:
    """Have events written down, by everybody."""
    with contextlib.suppress(*NODE_ERRORS):
        main.call(Create(f"{desk.layout.watchers}/{address}", b"", desk.acl, EPHEMERAL)).get(timeout=TIMEOUT)
    while True:
        desk.read_root(main, desk.clock.now() + int(TIMEOUT * SECOND))
        # Also where it says so already: whoever is about to end that, for nobody was there, finds it changed.
        if _say(desk, main, watched=True):
            return


def unwatch(desk: Desk, main: Session, address: str) -> None:
    """Watch no more."""
    with contextlib.suppress(*NODE_ERRORS):
        main.call(Delete(f"{desk.layout.watchers}/{address}", ANY_VERSION)).get(timeout=TIMEOUT)
    tidy(desk, main)


def tidy(desk: Desk, main: Session) -> None:
    """Delete what is too old; and where nobody watches any more, have nothing written down, and delete all."""
    layout = desk.layout
    desk.read_root(main, desk.clock.now() + int(TIMEOUT * SECOND))
    watched = bool(main.call(GetChildren(layout.watchers, None)).get(timeout=TIMEOUT))
    names = sorted(main.call(GetChildren(layout.events, None)).get(timeout=TIMEOUT), key=sequence)
    old = names[:-KEPT] if watched or not _say(desk, main, watched=False) else names
    for name in old:
        main.call(Delete(f"{layout.events}/{name}", ANY_VERSION))


def _say(desk: Desk, main: Session, *, watched: bool) -> bool:
    """Have it written in the root whether somebody watches, if that is as it was last read. Returns whether it was."""
    assert desk.root is not None
    wanted = desk.root._replace(watched=watched)
    try:
        stat = main.call(SetData(desk.layout.root, wanted.dumps(), wanted.version)).get(timeout=TIMEOUT)
    except NODE_ERRORS:
        return False
    desk.root = wanted._replace(version=stat.version)
    return True
