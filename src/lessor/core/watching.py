"""What a watcher knows, and what it tells: pushed events in order, and the expiries that nobody pushes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lessor.core.ops import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lessor.core.lease import Record


class Known(NamedTuple):
    """A lease that the watcher believes to be alive, or to keep its resource closed, and when to look again."""

    token: int
    holder: str
    look_at_ns: int
    closed: bool = False
    """Its end was told, and the resource is not open yet."""


class Watching:
    """The leases under a prefix as last heard of."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def next_look(self) -> int | None:
        """Return when some lease would have expired."""
        return min((known.look_at_ns for known in self._known.values()), default=None)

    def due(self, now: int) -> list[str]:
        """Return the resources whose leases may have expired: ask the store about them."""
        return [name for name, known in self._known.items() if known.look_at_ns <= now]

    def heard(self, event: Event, now: int) -> list[Event]:
        """Take an event in; return what to tell, an expiry that it implies included."""
        known = self._known.get(event.resource)
        told = []
        if known is not None and event.token < known.token:
            return []  # older than the state that we started from
        if event.kind is EventKind.GRANTED:
            if known is not None and event.token == known.token:
                return []
            if known is not None and not known.closed:
                told.append(_expired(event.resource, known, event.at_us))
            self._known[event.resource] = Known(event.token, event.holder, now + event.ttl_ns)
        elif known is None:
            return []
        elif event.kind is EventKind.REVOKED and event.ttl_ns > 0:
            pass  # it lasts until the expiry already promised, and then we say so
        elif event.kind is EventKind.RELEASED and event.ttl_ns > 0:
            # Should somebody open the resource before its time, that is told, too.
            self._known[event.resource] = known._replace(look_at_ns=now + event.ttl_ns, closed=True)
        else:
            del self._known[event.resource]
        return [*told, event]

    def looked(self, resource: str, record: Record | None, now: int, wall_us: int) -> list[Event]:
        """Take in what the store says about one resource; return what to tell."""
        known = self._known.get(resource)
        if known is not None and record is not None and record.token < known.token:
            return []
        before = known if known is not None and not known.closed else None
        after = record if record is not None and record.closed is None else None
        told = []
        if before is not None and (after is None or after.token != before.token):
            told.append(_expired(resource, before, wall_us))
        if after is not None and (before is None or after.token != before.token):
            told.append(
                Event(EventKind.GRANTED, resource, after.token, after.holder, after.granted_us, after.remaining_ns)
            )
        if record is None:
            self._known.pop(resource, None)
        else:
            look_at = now + record.remaining_ns
            self._known[resource] = Known(record.token, record.holder, look_at, closed=after is None)
        return told

    def resync(self, records: Iterable[Record], now: int, wall_us: int) -> list[Event]:
        """Take in the whole state, after events may have been missed; return what must have happened."""
        current = {record.resource: record for record in records}
        told = []
        for name in [*self._known, *(n for n in current if n not in self._known)]:
            told += self.looked(name, current.get(name), now, wall_us)
        return told


def _expired(resource: str, known: Known, at_us: int) -> Event:
    return Event(EventKind.EXPIRED, resource, known.token, known.holder, at_us)
