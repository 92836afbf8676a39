"""etcd's own leases, which the keys of ours hang on: granted when needed, used again, and revoked in the end.

One that was given back is kept for the next acquire, which then needs no round trip to get one. It isn't kept alive
meanwhile, so what nobody uses ends by itself; and who only tries, and fails, never causes one to be granted.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from lessor.core.clock import SECOND
from lessor.errors import LessorError
from lessor.stores.etcd.messages import LEASE, decode, number
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.clock import Clock
    from lessor.stores.etcd.members import Call, Members
    from lessor.stores.etcd.task import Task

NOTES_LIFE: Final = 90
"""Seconds that a note (how a lease ended, an id that was given up) is kept at most; 60 at least."""
NOTES_FOR_NS: Final = 30 * SECOND
MOST_SPARE: Final = 256
RATE: Final = 1.1
"""How much faster than ours the server's clock may run."""


class EtcdLease(NamedTuple):
    """A lease of etcd's."""

    id: int
    asked: int
    """Seconds, as asked for."""
    seconds: int
    """As granted: the server may have raised it."""
    since_ns: int
    """Our time of the last sign of life: taken before it was sent, so it lasts for ``seconds`` from then at least."""

    def left_ns(self, now: int) -> int:
        """Return for how long it will certainly last."""
        return self.seconds * SECOND - int((now - self.since_ns) * RATE)


class Leases:
    """Those of one store. Safe for threads."""

    def __init__(self, members: Members, clock: Clock) -> None:
        self._members = members
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Have none: at the start, and in a forked child, where they are the parent's."""
        self._lock = new_lock()
        self._spare: dict[int, list[EtcdLease]] = {}
        self._notes: EtcdLease | None = None

    def take(self, seconds: int) -> EtcdLease | None:
        """Return a spare one with that TTL that has some life left."""
        with self._lock:
            spare = self._spare.get(seconds)
            while spare:
                lease = spare.pop()
                if lease.left_ns(self._clock.now()) > lease.seconds * SECOND // 4:
                    return lease
        return None

    def give(self, lease: EtcdLease) -> None:
        """Keep one, on which no key hangs any more, for later."""
        with self._lock:
            spare = self._spare.setdefault(lease.asked, [])
            if len(spare) < MOST_SPARE:
                spare.append(lease)

    def give_back(self, task: Task) -> None:
        """Keep those that an operation didn't use; of what was left without an answer, nobody knows."""
        if not task.in_doubt:
            for lease in task.leases.values():
                self.give(lease)
        task.leases = {}

    def grant(self, seconds: Sequence[int], give_up: int) -> list[EtcdLease]:
        """Have new ones granted; with them, in the same round trip, the one for notes, if that is due."""
        since = self._clock.now()
        notes_due = self._notes is None or since - self._notes.since_ns > NOTES_FOR_NS
        asked = [*seconds, NOTES_LIFE] if notes_due else seconds
        answers = self._members.ask([("Lease/LeaseGrant", [number(1, s)]) for s in asked], give_up)
        heard = [decode(LEASE, answer) for (answer,) in answers]
        granted = [EtcdLease(g["id"], s, g["ttl"], since) for s, g in zip(asked, heard, strict=True)]
        if notes_due:
            self._notes = granted.pop()
        return granted

    def notes(self, give_up: int) -> int:
        """Return the one for what is to be remembered for a minute."""
        notes = self._notes
        while notes is None or self._clock.now() - notes.since_ns > NOTES_FOR_NS:
            self.grant([], give_up)
            notes = self._notes
        return notes.id

    def forget_notes(self) -> None:
        """Get another one for notes: this one may be gone."""
        self._notes = None

    def time_left(self, ids: Sequence[int], give_up: int) -> dict[int, tuple[int, int]]:
        """Return how long each lasts at least and at most; etcd counts whole seconds. One that is gone isn't there."""
        answers = self._members.ask_again([("Lease/LeaseTimeToLive", [number(1, i)]) for i in ids], give_up)
        left = {}
        for lease_id, (message,) in zip(ids, answers, strict=True):
            answer = decode(LEASE, message)
            seconds = answer.get("ttl", 0)
            if seconds >= 0:
                most = min(seconds + 1, answer.get("granted", seconds + 1))
                left[lease_id] = seconds * SECOND, most * SECOND
        return left

    def revoke(self, ids: Sequence[int], give_up: int) -> None:
        """End them, as far as they aren't over already."""
        if ids:
            with contextlib.suppress(LessorError):  # the others are ended all the same
                self._members.ask(
                    [("Lease/LeaseRevoke", [number(1, lease_id)]) for lease_id in ids[:MOST_SPARE]], give_up
                )

    def close(self, give_up: int) -> None:
        """End those that are kept."""
        with self._lock:
            now = self._clock.now()
            ids = [lease.id for spare in self._spare.values() for lease in spare if lease.left_ns(now) > 0]
            self._spare.clear()
        self.revoke(ids, give_up)


def signs_of_life(ids: Sequence[int]) -> Call:
    """Return the call that keeps them all alive: one stream, with an answer for each."""
    return "Lease/LeaseKeepAlive", [number(1, lease_id) for lease_id in ids]


def kept_alive(messages: list[bytes], term: int) -> dict[int, int]:
    """Return for how many seconds each was kept alive.

    Only a leader that still is one counts. A member that was cut off, or stood still, may answer as the leader of a
    term that is over. So something must have been read or written after this, through the members' agreement; and if
    that was in the same term, this was said by the real one.
    """
    answers = [decode(LEASE, message) for message in messages]
    return {a["id"]: a["ttl"] for a in answers if a["header"].get("raft_term") == term and a.get("ttl", 0) > 0}
