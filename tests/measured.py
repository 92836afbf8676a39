"""What the long runs have measured: noted by the tests, kept as JSON, and shown as tables in the docs.

``make chaos`` runs the tests with ``LESSOR_MEASURED`` naming the file, and then ``python -m tests.measured``, which
prints the tables and writes the page. A row that a run didn't measure stays as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs/benchmarks/patterns.json"
PAGE = ROOT / "docs/explanation/patterns-measured.md"
MADE = "<!-- made by: python -m tests.measured -->"
TITLES = {
    "sqlite": "SQLite",
    "redis": "Redis",
    "postgresql": "PostgreSQL",
    "etcd": "etcd",
    "zookeeper": "ZooKeeper",
    "paxos": "our own nodes (3)",
    "node": "one node",
}


class Table(NamedTuple):
    """What is told about one thing: a column for each store, a row for each number."""

    title: str
    about: str
    rows: dict[str, str]


TABLES = {
    "election": Table(
        "Elections",
        "Five processes, some with threads and some with asyncio, TTL 1 s. In each round the leader is killed with "
        "`kill -9`, stopped with SIGSTOP for longer than its TTL, or made to resign, at random. *Leaders at one instant* "
        "are counted by each leader's own belief and the host's clock. A *stale write* is one of a leader that comes "
        "back after another was elected; each goes through a [guard](../how-to/fence-your-writes.md). *Hold-ups* are "
        "times for which a thread that only sleeps got no processor either. The bounds of `make chaos`: no overlap, no "
        "stale write taken; without a leader for at most 1.2 s after a kill, on etcd and ZooKeeper, which look for what "
        "has expired now and then, 2.7 s; and after a resignation, half of the times, for less than 10 ms, there 50 ms, "
        "since a change of the leader takes several writes. The times are those without hold-ups.",
        {
            "rounds": "rounds",
            "kills": "kills",
            "pauses": "pauses beyond the TTL",
            "resignations": "resignations",
            "overlaps": "two leaders at one instant",
            "writes": "writes taken",
            "refused": "stale writes refused",
            "stale": "stale writes taken",
            "kill_longest_ms": "no leader after a kill: longest, ms",
            "kill_own_ms": "the same without hold-ups, ms",
            "stop_longest_ms": "after a pause: longest, ms",
            "resign_p50_ms": "after a resignation: half within, ms",
            "resign_p99_ms": "99 of 100 within, ms",
            "minutes": "the run took, minutes",
        },
    ),
    "rolling": Table(
        "Rolling restarts",
        "Three workers, of which one has the lease and does units of work that become due every 10 ms, in three threads. "
        "One after the other is restarted. With drain and handover, SIGTERM makes it finish what is in flight and hand "
        "the lease and its place in the work to who waits. Without, it ends at once, and its successor goes on from the "
        "last checkpoint when the TTL of 2 s is over. *Gaps* are times without a holder.",
        {
            "restarts": "restarts",
            "done": "units done",
            "lost": "units lost",
            "twice": "units done twice",
            "gap_p50_ms": "gap: half within, ms",
            "gap_p99_ms": "99 of 100 within, ms",
            "gap_longest_ms": "longest, ms",
            "own_p99_ms": "99 of 100 within, without hold-ups, ms",
        },
    ),
    "session": Table(
        "A session with 10,000 leases",
        "One process holds them, TTL 6 s, and is killed. Another one tries all of them before the session's expiry, and "
        "again from 0.2 s after it on; in between, at 0.2 s, it asks the store which of them are held. Then the same with "
        "a session that is released: from the call until it returns, with others' requests going on meanwhile.",
        {
            "children": "leases",
            "taken_s": "taken in, s",
            "renewals": "renewals",
            "periods": "in so many periods",
            "calls": "calls of the store in that time",
            "early": "got before the expiry",
            "waiter_ms": "a waiter has its lease after the expiry, ms",
            "held_at_200": "held 0.2 s after the expiry",
            "got": "got by the first try from then on",
            "release_ms": "a release of all, ms",
            "stall_ms": "the longest wait of another client meanwhile, ms",
            "release_waiter_ms": "a waiter has its lease after the release, ms",
            "free": "held right after it",
        },
    ),
    "queue": Table(
        "A fair queue",
        "50 waiters in 5 processes queue up for one resource, and two more that are killed before it is free. Each gives "
        "it back as soon as it has it. A *request* is a call of the store; the server's own count of them is that of the "
        "scripts called on Redis (`INFO commandstats`, from the first release on) and of the functions called on "
        "PostgreSQL (`pg_stat_user_functions`, from the beginning). SQLite is no server: there the calls are counted.",
        {
            "waiters": "waiters",
            "in_order": "served in the order of their arrival",
            "gap_p50_ms": "from one turn to the next: half within, ms",
            "gap_longest_ms": "longest, dead waiters included, ms",
            "woken": "turns, but for those next to a dead waiter",
            "turns": "requests to acquire in these, from the predecessor's release on",
            "sent": "requests sent in all",
            "counted": "the same by the server's count",
        },
    ),
    "node": Table(
        "A node with very many leases",
        "One of our own nodes, as a process, which is asked over its own protocol, a thousand leases in a request, without "
        "metadata. *Bytes* are by how much the process has grown. Then others, which all last until the same instant, "
        "and are asked for by another owner from then on: until all of them are that one's. "
        "The bounds of `make chaos`: 1,500 bytes a lease, and 2 s for those that expire at once; that time means nothing on a busy machine, where the "
        "node's own processor time is told alone.",
        {
            "leases": "leases",
            "bytes": "bytes a lease",
            "taken_s": "taken in, s",
            "expired": "leases that expire at once",
            "all_taken_s": "all of them are another owner's after, s",
            "busy_s": "the node's processor time for that, s",
        },
    ),
}


def note(table: str, store: str, **numbers: Any) -> None:
    """Keep what was measured, if this run is for keeping; say it in any case."""
    sys.stdout.write(f"\n{table} on {store}: " + ", ".join(f"{name} {shown(v)}" for name, v in numbers.items()) + "\n")
    unknown = numbers.keys() - TABLES[table].rows.keys()
    assert not unknown, f"the table has no rows for {unknown}"
    where = os.environ.get("LESSOR_MEASURED")
    if where:
        path = Path(where)
        kept = json.loads(path.read_text()) if path.exists() else {}
        load = round(os.getloadavg()[0], 1)
        about = {"load": load, "day": time.strftime("%Y-%m-%d"), **_versions(store)}
        kept.setdefault(table, {}).setdefault(store, {}).update(numbers | {"about": about})
        path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def kind_of(url: str) -> str:
    """Return what a store's column is called."""
    return url.partition(":")[0]


def shown(value: Any) -> str:
    """Return a number as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def markdown(kept: dict[str, Any]) -> str:
    """Return all tables."""
    parts = [MADE]
    for name, table in TABLES.items():
        columns = kept.get(name, {})
        if not columns:
            continue
        stores = sorted(columns, key=lambda store: [*TITLES].index(store.split()[0]))
        titles = [TITLES[store.split()[0]] + store.removeprefix(store.split()[0]) for store in stores]
        lines = [f"| | {' | '.join(titles)} |", "|---|" + "---|" * len(stores)]
        for row, title in table.rows.items():
            cells = [shown(columns[store][row]) if row in columns[store] else "" for store in stores]
            if any(cells):
                lines.append(f"| {title} | {' | '.join(cells)} |")
        loads = [f"{columns[store]['about']['load']:g}" for store in stores]
        lines.append(f"| load average at the end | {' | '.join(loads)} |")
        parts += [f"## {table.title}", table.about, "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _versions(store: str) -> dict[str, Any]:
    about: dict[str, Any] = {"python": ".".join(map(str, sys.version_info[:3])), "cores": os.cpu_count()}
    with contextlib.suppress(metadata.PackageNotFoundError, KeyError):
        client = {"redis": "redis", "postgresql": "psycopg", "zookeeper": "kazoo"}[store.split(maxsplit=1)[0]]
        about[client] = metadata.version(client)
    return about


def main() -> None:
    text = markdown(json.loads(KEPT.read_text()))
    sys.stdout.write(text)
    PAGE.write_text(PAGE.read_text().partition(MADE)[0] + text)


if __name__ == "__main__":
    main()
