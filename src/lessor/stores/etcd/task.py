"""One operation on its way through as many transactions as it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lessor.core.ops import Acquire, Revoke
from lessor.stores.etcd.layout import found, get, get_all
from lessor.stores.etcd.table import Snapshot

if TYPE_CHECKING:
    from lessor.core.ops import Op, Outcome
    from lessor.stores.etcd.layout import Layout
    from lessor.stores.etcd.leases import EtcdLease
    from lessor.stores.etcd.memory import Grip
    from lessor.stores.etcd.plan import Plan
    from lessor.stores.etcd.table import Missing


@dataclass(slots=True)
class Task:
    """An operation, and what is known about it so far."""

    op: Op
    index: int
    names: list[str]
    """The resources that the answer depends on, as far as is known."""
    families: set[str] = field(default_factory=set)
    """Those of them whose children matter, too."""
    loaded: dict[str, Snapshot] | None = None
    left: dict[int, tuple[int, int]] = field(default_factory=dict)
    """How long etcd leases last, at least and at most."""
    keep: list[int] = field(default_factory=list)
    """The etcd leases to keep alive with the next transaction."""
    asked: list[int] = field(default_factory=list)
    """Those that were to be kept alive with the last one."""
    kept: dict[int, EtcdLease] = field(default_factory=dict)
    """Those that were."""
    plan: Plan | None = None
    planned: Outcome | None = None
    """The answer once the plan has been carried out."""
    leases: dict[str, EtcdLease] = field(default_factory=dict)
    """The new etcd leases that the plan, or the shortcut, makes use of."""
    quick: bool = False
    """Whether the transaction under way is a shortcut, on what this client remembers."""
    grip: Grip | None = None
    """What is to be released by a shortcut."""
    tries: int = 0
    """How often somebody else was faster."""
    looks: int = 0
    """How often it was kept alive, and that could not be made certain."""
    alone: bool = False
    """Whether it shares no transaction with others, since etcd has refused one that it was in."""
    in_doubt: bool = False
    """Whether an earlier transaction was left without an answer."""
    outcome: Outcome | None = None

    @property
    def looking(self) -> bool:
        """Whether the next thing is to read what the answer depends on."""
        return not self.quick and self.plan is None

    @property
    def reaches_others(self) -> bool:
        """Whether it may end leases below, or be counted in those above."""
        op = self.op
        ends = isinstance(op, Revoke) or (isinstance(op, Acquire) and op.recover)
        return bool(self.families) or (ends and len(self.names) > 1)

    def reads(self) -> int:
        """Return how many reads that takes."""
        return 2 * len(self.names) + len(self.families)

    def look(self, layout: Layout) -> list[bytes]:
        """Return the reads that show what the answer depends on."""
        reads = []
        for name in self.names:
            reads += [get(layout.lease(name)), get_all(layout.wait(name))]
            if name in self.families:
                reads.append(get_all(layout.under(name)))
        return reads

    def start_over(self) -> None:
        """Forget what was about to be done: the first thing is to look what is true."""
        self.loaded = self.plan = self.planned = None
        self.quick = False
        self.kept.clear()

    def want(self, missing: Missing) -> None:
        """Look again, at what is missing too."""
        self.families.update(missing.families)
        self.names += [name for name in missing.names if name not in self.names]
        self.loaded = None

    def take_in(self, layout: Layout, responses: list[Any]) -> None:
        """Take in what they showed."""
        answers = iter(responses)
        self.left.clear()
        self.loaded = {}
        for name in self.names:
            kvs = found(next(answers))
            snapshot = Snapshot(name, kvs[0] if kvs else None, found(next(answers)))
            if name in self.families:
                snapshot.children = [kv.key.removeprefix(layout.under(name)) for kv in found(next(answers))]
            self.loaded[name] = snapshot
