"""What several acceptors show or push, as one. A single acceptor's word may be about an attempt that came to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lessor.core.lease import Contender
from lessor.core.paxos.ballots import majority

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from lessor.core.lease import Record
    from lessor.core.ops import Event, Notice
    from lessor.core.paxos.messages import HeldBy, Place, Push

Answer = TypeVar("Answer", "Record", "HeldBy")

REMEMBERED = 10_000
"""How many pieces of news are kept until a majority has told them. A lost one is made good by the next look."""


class Pushes:
    """Tells each event and each call once, when a majority of the acceptors has."""

    def __init__(self, acceptors: int) -> None:
        self.majority = majority(acceptors)
        self._told_by: dict[tuple[object, ...], set[str]] = {}

    def take(self, push: Push) -> list[Event | Notice]:
        """Take in what one acceptor pushed; return what is news now."""
        # A lease that is revoked, and then revoked by force, ends twice. A waiter may be called again by all of them,
        # so that call is forgotten once it was told.
        who = push.acceptor
        events = [e for e in push.events if self._is_news((e.kind, e.resource, e.token, e.ttl_ns > 0), who)]
        return [*events, *(notice for notice in push.notices if self._is_news(notice, who, again=True))]

    def _is_news(self, key: tuple[object, ...], who: str, *, again: bool = False) -> bool:
        told_by = self._told_by.setdefault(key, set())
        told_by.add(who)
        enough = len(told_by) == self.majority
        if again and len(told_by) >= self.majority:
            del self._told_by[key]
        while len(self._told_by) > REMEMBERED:
            del self._told_by[next(iter(self._told_by))]
        return enough


def agreed(views: Sequence[Sequence[Record]], acceptors: int) -> list[Record]:
    """Return the leases that a majority shows, by name, given what each acceptor that answered shows."""
    found: dict[tuple[str, str, int], list[Record]] = {}
    for view in views:
        for record in view:
            found.setdefault(_key(record), []).append(record)
    needed = majority(acceptors)
    return [_merged(same) for _, same in sorted(found.items()) if len(same) >= needed]


def in_line(queues: Sequence[Sequence[Place]], acceptors: int) -> list[Contender]:
    """Return those who wait by the word of a majority, in the order of their turns, as far as there is one."""
    found: dict[int, list[Place]] = {}
    for queue in queues:
        for place in queue:
            found.setdefault(place.mark, []).append(place)
    known = [same for same in found.values() if len(same) >= majority(acceptors)]
    return [contender for *_, contender in sorted([_turn(same) for same in known])]


def in_doubt(views: Sequence[Sequence[Record]], acceptors: int, queues: Sequence[Sequence[Place]] = ()) -> bool:
    """Whether an acceptor that has not answered yet could complete a majority."""
    shown: dict[Hashable, int] = {}
    told: list[Hashable] = [_key(record) for view in views for record in view]
    told += [place.mark for queue in queues for place in queue]
    for key in told:
        shown[key] = shown.get(key, 0) + 1
    needed, silent = majority(acceptors), acceptors - len(views)
    return any(count < needed <= count + silent for count in shown.values())


def longest(same: Sequence[Answer]) -> Answer:
    """Return which of several acceptors' answers about one lease lasts longest, of those that most agree with.

    Where a lease is over on some acceptors and held on others, it is held as long as most of them say so.
    """
    held = [answer for answer in same if answer.closed is None]
    closed = [answer for answer in same if answer.closed is not None]
    return max(held if len(held) > len(closed) else closed, key=lambda answer: answer.remaining_ns)


def _key(record: Record) -> tuple[str, str, int]:
    return record.resource, record.holder, record.token


def _turn(same: Sequence[Place]) -> tuple[int, int, int, int, Contender]:
    first = same[0]
    since = min(place.since_us for place in same)
    ticket = max(place.ticket for place in same)
    return -first.priority, ticket, since, first.mark, Contender(first.holder, since, first.priority)


def _merged(same: Iterable[Record]) -> Record:
    """Return what lasts longest: the holder may rely on any of them. The queue is the longest that one saw."""
    records = list(same)
    last = longest(records)
    return last._replace(
        granted_us=min(record.granted_us for record in records),
        renewed_us=max(record.renewed_us for record in records),
        renewals=max(record.renewals for record in records),
        revoked=sum(record.revoked for record in records) > len(records) // 2,
        queue=max((record.queue for record in records), key=len),
    )
