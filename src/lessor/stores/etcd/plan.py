"""What the rules have decided, as writes: conditional on nothing having changed since it was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lessor.core.clock import SECOND
from lessor.core.ops import WAITER_LIFE_NS, Acquire, Loss, Notice, Release, Revoke, Summons
from lessor.stores.etcd.layout import HELD, delete, exists, none_since, none_under, put, unchanged
from lessor.stores.etcd.table import id_of

if TYPE_CHECKING:
    from lessor.core.entry import Entry
    from lessor.core.ops import Op, Renew
    from lessor.stores.etcd.layout import KV, Layout
    from lessor.stores.etcd.table import Snapshot, Table

OWN: Final = "own"
DELAY: Final = "delay"
HOLD: Final = "hold"
GRACE: Final = "grace"
PLACE: Final = "place"
KEPT: Final = "kept"
NOTES: Final = "notes"


@dataclass(slots=True)
class Plan:
    """A transaction in the making. The etcd leases that its keys hang on are filled in when they are known."""

    compare: list[bytes] = field(default_factory=list)
    puts: list[tuple[str, dict[str, Any], str | int]] = field(default_factory=list)
    """Key, value, and the etcd lease: by its number, or by the name of one in ``needs`` or `NOTES`."""
    deletes: list[str] = field(default_factory=list)
    needs: dict[str, int] = field(default_factory=dict)
    """Which new etcd leases it takes, and their seconds."""
    granted: dict[str, Any] | None = None
    """The value of the key, where the one who asks gets the lease."""
    over: list[int] = field(default_factory=list)
    """The etcd leases of parents that end: what found no room in the transaction may hang on them yet."""
    revokes: bool = False
    """Whether the lease is renewed no more, and has yet to move to an etcd lease that nobody keeps alive."""

    @property
    def grants(self) -> bool:
        """Whether the one who asks gets the lease."""
        return self.granted is not None

    @property
    def longest(self) -> int:
        """How long the longest of its lists is, which is what etcd counts."""
        return max(len(self.compare), len(self.puts) + len(self.deletes))

    @property
    def needs_notes(self) -> bool:
        """Whether something is to be remembered for a minute."""
        return any(lease == NOTES for _, _, lease in self.puts)

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.puts or self.deletes)

    def success(self, leases: dict[str | int, int], plus: int) -> list[bytes]:
        """Return the operations; ``plus`` is what is added to the revision to make a token."""
        if self.granted is not None and plus:
            self.granted["plus"] = plus
            for _, value, lease in self.puts:
                if lease in (DELAY, HOLD):
                    value["plus"] = plus
        puts = [put(key, value, lease if isinstance(lease, int) else leases[lease]) for key, value, lease in self.puts]
        return puts + [delete(key) for key in self.deletes]


def whole_seconds(ns: int) -> int:
    """Return a TTL as etcd takes it: never shorter than asked for."""
    return max(1, -(-ns // SECOND))


def held_value(op: Acquire, wall_us: int) -> dict[str, Any]:
    """Return what stands in the key of a lease that was just granted."""
    value: dict[str, Any] = {
        "state": HELD,
        "holder": op.holder,
        "id": op.lease_id,
        "ttl_ns": op.ttl_ns,
        "granted_us": wall_us,
    }
    for name in ("metadata", "notify", "parent", "soft_ns", "grace_ns", "lock_delay_ns", "hold_at_least_ns"):
        if getattr(op, name):
            value[name] = getattr(op, name)
    return value


def closed_value(op: Acquire, wall_us: int) -> dict[str, Any]:
    """Return what stands in the key that keeps others out after the lease, for those who ask why they are."""
    value = {"holder": op.holder, "id": op.lease_id, "ttl_ns": op.ttl_ns, "granted_us": wall_us}
    return value | {"lock_delay_ns": op.lock_delay_ns, "hold_at_least_ns": op.hold_at_least_ns}


def is_simple(op: Acquire) -> bool:
    """Whether such a lease has one key, on an etcd lease of its own."""
    return op.parent is None and not (op.lock_delay_ns or op.hold_at_least_ns or op.grace_ns)


def undoing(layout: Layout, op: Acquire, modified: int) -> Plan:
    """Return what takes a grant back as if it had never been."""
    key = layout.lease(op.resource)
    undo = Plan([unchanged(key, modified)], deletes=[key])
    if op.parent is not None:
        undo.deletes.append(layout.under(op.parent[0]) + op.resource)
    for why, ns in ((DELAY, op.lock_delay_ns), (HOLD, op.hold_at_least_ns)):
        if ns:
            undo.deletes.append(layout.closed(op.resource, why))
    if op.grace_ns or op.ttl_ns == 0:
        undo.deletes.append(layout.grace(op.resource, op.lease_id))
    return undo


def markers(before: Snapshot) -> list[tuple[KV, str]]:
    """Return the keys that stay for a while when a lease runs out, and so are kept alive together with it."""
    delays = [(kv, DELAY) for kv in before.waits if kv.key.endswith(f"//closed/{DELAY}")]
    late = before.grace()
    return [*delays, (late, GRACE)] if late is not None else delays


def rebound(layout: Layout, op: Renew, loaded: dict[str, Snapshot]) -> Plan:
    """Return the plan that puts a lease on new etcd leases: for a longer TTL, or since the old one has run out."""
    before = loaded[op.resource]
    kv = before.last()
    assert kv is not None
    key = layout.lease(op.resource)
    if kv.value["ttl_ns"] == 0:
        name = kv.value["parent"][0]
        parent = loaded[name].held()
        assert parent is not None
        puts: list[tuple[str, dict[str, Any], str | int]] = [
            (key, rewritten(kv), parent.lease),
            (layout.under(name) + op.resource, {}, parent.lease),
        ]
        compare = [unchanged(key, before.modified), exists(kv.key), unchanged(parent.key, parent.modified)]
        return Plan(compare, puts)
    value = {**rewritten(kv), "ttl_ns": max(op.ttl_ns, kv.value["ttl_ns"])}
    if before.held() is None:
        value["has_children"] = True  # it may have: what it comes back from is as old as the grant
    made = Plan([unchanged(key, before.modified)], [(key, value, OWN)], [], {OWN: whole_seconds(value["ttl_ns"])})
    for marker, name in markers(before):
        more = kv.value["lock_delay_ns" if name == DELAY else "grace_ns"]
        made.puts.append((marker.key, value if name == GRACE else marker.value, name))
        made.needs[name] = whole_seconds(value["ttl_ns"] + more)
        made.compare.append(unchanged(marker.key, marker.modified))
    if before.held() is None:
        made.compare.append(none_under(layout.waiter(op.resource, "")))
    return made


def rewritten(kv: KV) -> dict[str, Any]:
    """Return the value of a lease that goes on, for another write: with its token, which isn't that write's."""
    value = {**kv.value, "token": kv.token}
    value.pop("news", None)
    return value


def ended_value(kv: KV, how: str, wall_us: int) -> dict[str, Any]:
    """Return what stands there afterwards, for a minute."""
    return {"state": how, "holder": kv.value["holder"], "id": kv.value["id"], "token": kv.token, "at_us": wall_us}


def turn_of(resource: str, first: KV) -> Notice:
    """Return what tells a waiter that its turn has come."""
    return Notice(first.value["notify"], Summons.RESERVED, resource, id_of(first))


def notice_put(layout: Layout, notice: Notice, freed: int = 0) -> tuple[str, dict[str, Any], str | int]:
    """Return the word to one client. The resource came free in that revision; 0: in that of this very write."""
    value = {"summons": str(notice.summons), "resource": notice.resource, "id": notice.lease_id, "freed": freed}
    return layout.notice(notice.address) + notice.lease_id, value, NOTES


def plan(layout: Layout, table: Table, op: Op) -> Plan:
    """Return what is to be written for what the rules have saved."""
    making = _Making(layout, table)
    made = making.made
    for resource, entry in table.saved.items():
        making.lease(op, entry, table.loaded[resource])
        making.waits(op, entry, table.loaded[resource])
        making.turn(op, entry, table.loaded[resource])
    written = {key for key, _, _ in made.puts}
    for notice in table.notices:
        freed = 0 if layout.lease(notice.resource) in written else table.loaded[notice.resource].modified
        made.puts.append(notice_put(layout, notice, freed))
    if not made:
        return made
    made.compare += [unchanged(layout.lease(s.resource), s.modified) for s in table.loaded.values()]
    # Whoever is called must still be there, or the next one would wait for nothing.
    called = {n.lease_id for n in table.notices}
    waiters = {w.key for s in table.loaded.values() for w in s.waiters() if id_of(w) in called}
    made.compare += [exists(key) for key in sorted(waiters)]
    return made


class _Making:
    def __init__(self, layout: Layout, table: Table) -> None:
        self.made = Plan()
        self._layout = layout
        self._table = table

    def lease(self, op: Op, entry: Entry, before: Snapshot) -> None:
        """Write what became of the lease: another one, none, or the same with something to note."""
        held, late, last, closed = before.held(), before.grace(), before.last(), before.closed()
        if last is None and closed is not None and not closed.value.get("released"):
            last = closed
        was = last.value["id"] if last is not None else None
        if entry.lease_id is not None and entry.lease_id != was:
            assert isinstance(op, Acquire)
            self._grant(op, entry)
        elif held is not None and entry.lease_id is None:
            self._end(entry, held, before)
        elif held is not None:
            self._note(entry, held)
            if entry.resource == op.resource:
                self.made.revokes = bool(entry.revoked) and not held.value.get("moved")
        elif closed is not None and isinstance(op, Revoke):
            self._open(entry, closed, before)
        rides = held is not None and entry.parent is not None
        if late is not None and (entry.lease_id != was or entry.revoked or not (entry.grace_ns or rides)):
            self.made.deletes.append(late.key)  # it doesn't come back any more

    def waits(self, op: Op, entry: Entry, before: Snapshot) -> None:
        """Write who has come, who has gone, and who must never be granted anything."""
        made, layout, resource = self.made, self._layout, entry.resource
        waiting = entry.waiting
        queue = {w.lease_id: w for w in waiting.queue} if waiting else {}
        known = {kv.key for kv in before.waits}
        places = before.waiters()
        for lease_id in queue.keys() - {id_of(place) for place in places}:
            waiter = queue[lease_id]
            value = {"holder": waiter.holder, "notify": waiter.notify, "since_us": waiter.since_us}
            if waiter.priority:
                value["priority"] = waiter.priority
            made.needs[PLACE] = whole_seconds(WAITER_LIFE_NS)
            made.puts.append((layout.waiter(resource, lease_id, waiter.priority), value, PLACE))
            made.compare.append(unchanged(layout.never(resource, lease_id), 0))
            if isinstance(op, Acquire) and op.queue_limit:
                newest = max((place.created for place in places), default=0)
                made.compare += [none_since(layout.waiter(resource, "", p), newest) for p in (0, 1)]
        made.deletes += [place.key for place in places if id_of(place) not in queue]
        for lease_id in waiting.tombstones if waiting else ():
            key = layout.never(resource, lease_id)
            if key not in known:
                made.puts.append((key, {}, NOTES))

    def turn(self, op: Op, entry: Entry, before: Snapshot) -> None:
        """Write for whom the free resource is kept, where that isn't plain from the queue."""
        made, layout, resource = self.made, self._layout, entry.resource
        reservation = entry.waiting.reservation if entry.waiting else None
        kept = before.kept()
        to = op if isinstance(op, Release) and op.resource == resource else None
        if to is not None and to.successor and before.held() is not None and reservation is not None:
            value = {"id": reservation.lease_id, "successor": reservation.successor, "state": reservation.state}
            made.needs[KEPT] = whole_seconds(reservation.until_ns - self._table.now)
            made.puts.append((layout.kept(resource), {**value, "reserve_ns": to.reserve_ns}, KEPT))
            return
        moved_on = to is not None and (reservation is None or reservation.lease_id != (kept and kept.value["id"]))
        if kept is not None and (made.grants or moved_on):
            made.deletes.append(kept.key)
            if entry.state:
                made.compare.append(exists(kept.key))  # what was left goes with the reservation
        note = before.kv
        next_one = reservation.lease_id if reservation else ""
        if to is not None and note is not None and not note.held and next_one not in ("", before.first()):
            # Whose turn it was has left.
            made.puts.append((note.key, {**note.value, "reserved": next_one, "again": True}, NOTES))

    def _grant(self, op: Acquire, entry: Entry) -> None:
        made, layout, table = self.made, self._layout, self._table
        made.granted = held_value(op, table.wall_us)
        if entry.state:
            made.granted["inherited"] = entry.state
        lease: str | int = OWN
        if op.parent is not None:
            if op.ttl_ns == 0:
                above = table.loaded[op.parent[0]]
                parent, late = above.kv, above.grace()
                assert parent is not None
                lease = parent.lease
                if late is not None:  # what comes back within its grace brings along what rides on it
                    made.puts.append((layout.grace(op.resource, op.lease_id), made.granted, late.lease))
            made.puts.append((layout.under(op.parent[0]) + op.resource, {}, lease))
        if lease == OWN:
            made.needs[OWN] = whole_seconds(op.ttl_ns)
        made.puts.append((layout.lease(op.resource), made.granted, lease))
        for why, ns in ((DELAY, op.lock_delay_ns and op.ttl_ns + op.lock_delay_ns), (HOLD, op.hold_at_least_ns)):
            if ns:
                made.needs[why] = whole_seconds(ns)
                made.puts.append((layout.closed(op.resource, why), closed_value(op, table.wall_us), why))
        if op.grace_ns and op.parent is None:
            made.needs[GRACE] = whole_seconds(op.ttl_ns + op.grace_ns)
            made.puts.append((layout.grace(op.resource, op.lease_id), made.granted, GRACE))
        made.compare.append(unchanged(layout.never(op.resource, op.lease_id), 0))

    def _end(self, entry: Entry, kv: KV, before: Snapshot) -> None:
        made, layout = self.made, self._layout
        note = ended_value(kv, entry.ended or "", self._table.wall_us)
        closed_ns, hold = entry.expiry_ns - self._table.now, before.hold()
        made.deletes += [marker.key for marker in (before.delay(), hold) if marker is not None]
        if closed_ns > 0 and hold is not None:
            made.deletes.remove(hold.key)
            made.puts.append((hold.key, {**hold.value, "released": True, "token": kv.token}, hold.lease))
            note["closed_ns"] = closed_ns
        made.puts.append((layout.lease(entry.resource), note, NOTES))
        if kv.value.get("parent"):
            made.deletes.append(layout.under(kv.value["parent"][0]) + entry.resource)
        if kv.value.get("has_children") and kv.value["ttl_ns"]:
            made.over.append(kv.lease)

    def _open(self, entry: Entry, closed: KV, before: Snapshot) -> None:
        """Write that a resource which nobody holds isn't closed any more."""
        note = ended_value(closed, entry.ended or "", self._table.wall_us) | {"token": entry.token}
        self.made.puts.append((self._layout.lease(entry.resource), note, NOTES))
        self.made.deletes += [marker.key for marker in (before.delay(), before.hold()) if marker is not None]

    def _note(self, entry: Entry, kv: KV) -> None:
        changed = [n for n in ("revoked", "has_children") if getattr(entry, n) and not kv.value.get(n)]
        value = rewritten(kv) | dict.fromkeys(changed, True)
        if entry.children_ended != kv.value.get("children_ended", 0):
            changed.append("children_ended")
            value["children_ended"] = entry.children_ended
        if "revoked" in changed:
            value["revoked_us"] = self._table.wall_us
            value["news"] = str(Loss.REVOKED)
        if changed:
            self.made.puts.append((self._layout.lease(entry.resource), value, kv.lease))
