"""What was aimed at, as quotients of two numbers of one run or as plain ones, and what was reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench.results import quotient

if TYPE_CHECKING:
    from bench.results import Run


class Goal(NamedTuple):
    """Ours, or ours divided by a peer's, is at least or at most so much."""

    what: str
    work: str
    ours: str
    measure: str
    bound: float
    at_least: bool = False
    peer: str = ""
    peer_work: str = ""
    """Where the peer's number comes from, if not from the same work."""

    @property
    def wanted(self) -> str:
        return f"at {'least' if self.at_least else 'most'} {self.bound:g}"


class Reached(NamedTuple):
    goal: Goal
    value: float

    @property
    def met(self) -> bool:
        return self.value >= self.goal.bound if self.goal.at_least else self.value <= self.goal.bound

    @property
    def said(self) -> str:
        return f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"


GOALS = (
    Goal("Redis, one caller: speed / redis-py Lock", "redis.sequential", "lessor", "pairs", 1.8,
         at_least=True, peer="redis-py Lock"),
    Goal("Redis, 64 tasks: speed / redis-py async Lock", "redis.callers64", "lessor async", "pairs", 6,
         at_least=True, peer="redis-py async Lock"),
    Goal("Redis, handover p50 / python-redis-lock's", "redis.handover", "lessor", "p50", 0.5,
         peer="python-redis-lock"),
    Goal("Redis, 8 processes: smallest / largest share", "redis.contention", "lessor", "share", 0.95,
         at_least=True),
    Goal("Redis, 10,000 held: client CPU, s a minute", "redis.holding10000", "lessor", "client", 1.5),
    Goal("Redis, 10,000 held: requests a second", "redis.holding10000", "lessor", "requests", 50),
    Goal("Redis, 10,000 held: lost", "redis.holding10000", "lessor", "lost", 0),
    Goal("Redis, takeover beyond the TTL: longest, ms", "redis.takeover", "lessor", "latest", 50),
    Goal("PostgreSQL, one caller: speed / raw psycopg", "postgresql.sequential", "lessor", "pairs", 0.75,
         at_least=True, peer="raw psycopg"),
    Goal("PostgreSQL, 64 tasks: speed / one raw psycopg", "postgresql.callers64", "lessor async", "pairs", 8,
         at_least=True, peer="raw psycopg", peer_work="postgresql.sequential"),
    Goal("PostgreSQL, handover p50 / raw with NOTIFY", "postgresql.handover", "lessor", "p50", 1.3,
         peer="raw psycopg + NOTIFY"),
    Goal("PostgreSQL, 10,000 held: lost", "postgresql.holding10000", "lessor", "lost", 0),
    Goal("SQLite, one caller: speed / raw SQLite", "sqlite.sequential", "lessor", "pairs", 0.4,
         at_least=True, peer="raw SQLite"),
    Goal("SQLite, one caller: speed / filelock", "sqlite.sequential", "lessor", "pairs", 1,
         at_least=True, peer="filelock"),
    Goal("SQLite, handover p50 / filelock's", "sqlite.handover", "lessor", "p50", 0.1, peer="filelock"),
    Goal("SQLite, 10,000 held: client CPU, s a minute", "sqlite.holding10000", "lessor", "client", 15),
    Goal("SQLite, 10,000 held: lost", "sqlite.holding10000", "lessor", "lost", 0),
    Goal("etcd, one caller: speed / aetcd", "etcd.sequential", "lessor", "pairs", 1,
         at_least=True, peer="aetcd Lock"),
    Goal("etcd, 64 tasks: speed / aetcd", "etcd.callers64", "lessor async", "pairs", 3,
         at_least=True, peer="aetcd Lock"),
    Goal("etcd, 64 threads: speed / aetcd's tasks", "etcd.callers64", "lessor", "pairs", 3,
         at_least=True, peer="aetcd Lock"),
    Goal("etcd, handover p50 / aetcd's", "etcd.handover", "lessor", "p50", 1, peer="aetcd Lock"),
    Goal("etcd, 1,000 held: requests / aetcd's", "etcd.holding1000", "lessor", "requests", 1, peer="aetcd Lock"),
    Goal("etcd, 1,000 failed tries: leases left", "etcd.tries", "lessor", "leases", 0),
    Goal("etcd, 1,000 failed tries: keys left", "etcd.tries", "lessor", "keys", 0),
    Goal("etcd, 1,000 failed tries: watches left", "etcd.tries", "lessor", "watches", 0),
    Goal("ZooKeeper, one caller: speed / kazoo", "zookeeper.sequential", "lessor", "pairs", 1,
         at_least=True, peer="kazoo Lock"),
    Goal("ZooKeeper, 64 tasks: speed / kazoo's threads", "zookeeper.callers64", "lessor async", "pairs", 3,
         at_least=True, peer="kazoo Lock"),
    Goal("ZooKeeper, 64 threads: speed / kazoo", "zookeeper.callers64", "lessor", "pairs", 3,
         at_least=True, peer="kazoo Lock"),
    Goal("ZooKeeper, handover p50 / kazoo's", "zookeeper.handover", "lessor", "p50", 1, peer="kazoo Lock"),
    Goal("ZooKeeper, 1,000 failed tries: nodes left", "zookeeper.tries", "lessor", "keys", 0),
    Goal("ZooKeeper, 1,000 failed tries: watches left", "zookeeper.tries", "lessor", "watches", 0),
    Goal("cluster, 64 tasks: speed / etcd by our client", "cluster.callers64", "lessor async", "pairs", 5,
         at_least=True, peer="etcd, by lessor async"),
    Goal("cluster, 64 tasks: speed / etcd by aetcd", "cluster.callers64", "lessor async", "pairs", 5,
         at_least=True, peer="etcd, by aetcd Lock"),
    Goal("cluster, one caller: p50 / etcd by our client", "cluster.sequential", "lessor", "p50", 0.5,
         peer="etcd, by lessor"),
    Goal("cluster, 64 tasks: p50 / etcd by our client", "cluster.callers64", "lessor async", "p50", 0.5,
         peer="etcd, by lessor async"),
    Goal("import lessor, ms", "imports", "import lessor", "ms", 40),
    Goal("lease.check(), ns", "check", "lease.check()", "ns", 400),
)  # fmt: skip


def reached(run: Run) -> list[Reached]:
    """Return the goals that this run has numbers for."""
    found = ((goal, _value(run, goal)) for goal in GOALS)
    return [Reached(goal, value) for goal, value in found if value is not None]


def _value(run: Run, goal: Goal) -> float | None:
    found = run.work(goal.work)
    ours = found.entry(goal.ours) if found else None
    if found is None or ours is None:
        return None
    measure = found.measure(goal.measure)
    if not goal.peer:
        return measure.of(ours)
    theirs = run.work(goal.peer_work or goal.work)
    peer = theirs.entry(goal.peer) if theirs else None
    ratio = quotient(measure, ours, peer) if peer else None
    return ratio.value if ratio else None
