"""Shows the leases as people and programs may see them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lessor.core import rules
from lessor.core.ops import Revoke
from lessor.stores.etcd.layout import past, transaction
from lessor.stores.etcd.messages import RANGE, TRANSACTION, decode, inside, number
from lessor.stores.etcd.table import Missing, Snapshot, Table
from lessor.stores.etcd.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.clock import Clock
    from lessor.core.lease import Contender, Record
    from lessor.stores.etcd.layout import Layout
    from lessor.stores.etcd.leases import Leases
    from lessor.stores.etcd.members import Members
    from lessor.stores.etcd.memory import Grip, Key

KEYS_ONLY: Final = 1
AT_ONCE: Final = 50
"""Names that one transaction looks at: two reads each, and etcd takes 128 operations by default."""


class Reading:
    """Reads through the members' agreement, so that nothing that was answered before is missed."""

    def __init__(self, members: Members, leases: Leases, layout: Layout, clock: Clock) -> None:
        self._members = members
        self._leases = leases
        self._layout = layout
        self._clock = clock

    def names(self, prefix: str, give_up: int) -> list[str]:
        """Return the resources under the prefix about which there is something, by name."""
        layout = self._layout
        ranges = [layout.lease(prefix).encode(), f"{layout.waits}{prefix}".encode()]
        requests = [inside(1, start) + inside(2, past(start)) + number(8, KEYS_ONLY) for start in ranges]
        answers = self._members.ask_again([("KV/Range", [request]) for request in requests], give_up)
        keys = [kv["key"].decode() for (answer,) in answers for kv in decode(RANGE, answer).get("kvs", ())]
        leases = {key.removeprefix(layout.leases) for key in keys if key.startswith(layout.leases)}
        closed = {key.removeprefix(layout.waits).partition("//")[0] for key in keys if "//closed/" in key}
        return sorted(leases | closed)

    def records(self, names: Sequence[str], grips: dict[Key, Grip], give_up: int) -> dict[str, Record]:
        """Return the leases that live; some dozens at a time are of one moment."""
        loaded: dict[str, Snapshot] = {}
        wanted = list(dict.fromkeys(names))
        while wanted:
            for at in range(0, len(wanted), AT_ONCE):
                loaded |= self._look(wanted[at : at + AT_ONCE], give_up)
            parents = {s.kv.value["parent"][0] for s in loaded.values() if s.kv and s.kv.value.get("parent")}
            wanted = sorted(parents - loaded.keys())
        ids = sorted({lease for snapshot in loaded.values() for lease in snapshot.etcd_leases()})
        left = self._leases.time_left(ids, give_up) if ids else {}
        records = {}
        for name in names:
            record = self._record(name, loaded, left)
            if record is not None:
                kv = loaded[name].held() if record.closed is None else None
                grip = grips.get((name, kv.value["id"])) if kv is not None else None
                if grip is not None and grip.renewals:  # only the client that renews knows
                    record = record._replace(renewals=grip.renewals, renewed_us=grip.renewed_us)
                records[name] = record
        return records

    def waiters(self, resource: str, give_up: int) -> list[Contender]:
        """Return who waits for the resource, in the order of their turns."""
        table = Table(Revoke(resource), self._layout, self._look([resource], give_up), {}, self._clock)
        return table.load(resource).contenders(table.now)

    def _look(self, names: list[str], give_up: int) -> dict[str, Snapshot]:
        task = Task(Revoke(names[0]), 0, names)
        request = transaction([], task.look(self._layout), [])
        ((answer,),) = self._members.ask_again([("KV/Txn", [request])], give_up)
        task.take_in(self._layout, decode(TRANSACTION, answer)["responses"])
        assert task.loaded is not None
        return task.loaded

    def _record(self, name: str, loaded: dict[str, Snapshot], left: dict[int, tuple[int, int]]) -> Record | None:
        snapshot = loaded[name]
        held = snapshot.held()
        if held is not None and held.lease not in left:  # it has run out, and its key is yet to be cleared away
            snapshot = replace(snapshot, kv=None)
            loaded = {**loaded, name: snapshot}
        if not left.keys() & snapshot.etcd_leases():
            return None
        table = Table(Revoke(name), self._layout, loaded, left, self._clock)
        try:
            return rules.record(table, table.load(name), table.now)
        except Missing:
            return None  # its parent ended while we looked
