"""``lessor ls``, ``show`` and ``contenders``: who holds what, what is closed, and who waits, when the store answered."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from lessor.cli.codes import NOTHING
from lessor.cli.durations import shown
from lessor.cli.screen import Cell, Screen, ago, clock_time, now, plain
from lessor.client.sync import Client

if TYPE_CHECKING:
    import argparse

    from lessor.core.view import Record


def ls(args: argparse.Namespace) -> int:
    """List the leases under a prefix."""
    with Client(args.url) as client:
        records = client.list(args.prefix)
    screen = Screen()
    if args.names:
        for record in records:
            screen.line(record.resource)
    elif args.json:
        screen.line(json.dumps([record.as_dict() for record in records], indent=2, ensure_ascii=False))
    elif records or not screen.terminal:
        head = ("RESOURCE", "HOLDER", "TOKEN", "ENDS IN", "TTL", "HELD FOR", "WAITING", "NOTE")
        rows = [_row(record) for record in records]
        screen.table(
            head, rows, cut=["RESOURCE", "HOLDER", "NOTE"], drop=["TTL", "TOKEN", "HELD FOR", "WAITING", "NOTE"]
        )
    else:
        screen.line(screen.paint("nothing is held here", "dim"))
    return 0


def show(args: argparse.Namespace) -> int:
    """Show one lease, and who waits for it."""
    with Client(args.url) as client:
        record = client.get(args.resource)
    screen = Screen()
    if args.json:
        found = {"resource": args.resource} if record is None else record.as_dict()
        found["held"] = record is not None and record.closed is None
        screen.line(json.dumps(found, indent=2, ensure_ascii=False))
    elif record is None:
        screen.line(f"{plain(args.resource)} is {screen.paint('free', 'green')}")
    else:
        _print(screen, record)
    return NOTHING if record is None or record.closed else 0


def why_closed(record: Record) -> str:
    """Return why nobody can acquire a resource that nobody holds."""
    if record.closed == "hold_at_least":
        asked = f" of {shown(record.hold_at_least)}" if record.hold_at_least else ""
        return f"released within its hold_at_least{asked}"
    asked = f" of {shown(record.lock_delay)}" if record.lock_delay else ""
    return f"expired, and its lock_delay{asked} follows"


def contenders(args: argparse.Namespace) -> int:
    """Show who waits for a resource."""
    with Client(args.url) as client:
        waiters = client.contenders(args.resource)
    screen = Screen()
    if args.json:
        screen.line(json.dumps([waiter.as_dict() for waiter in waiters], indent=2, ensure_ascii=False))
    elif waiters or not screen.terminal:
        screen.table(
            ("TURN", "HOLDER", "PRIORITY", "WAITING FOR"),
            [
                [
                    Cell(turn, right=True),
                    Cell(waiter.holder, "cyan"),
                    Cell(waiter.priority, "dim", right=True),
                    Cell(ago(waiter.since), right=True),
                ]
                for turn, waiter in enumerate(waiters, 1)
            ],
        )
    else:
        screen.line(screen.paint(f"nobody waits for {plain(args.resource)}", "dim"))
    return 0


def _note(record: Record) -> str:
    if record.closed:
        return f"closed: {record.closed}"
    if record.revoked:
        return "revoked"
    return f"reserved for {record.reserved_for}" if record.reserved_for else ""


def _ttl(record: Record) -> str:
    """Return the TTL. A child without one of its own lasts as long as its parent."""
    return "parent's" if record.parent and not record.ttl else shown(record.ttl)


def _row(record: Record) -> list[Cell]:
    return [
        Cell(record.resource, "cyan"),
        Cell(record.holder),
        Cell(record.token, "dim"),
        Cell(shown(record.remaining), "yellow" if record.revoked or record.closed else "green", right=True),
        Cell(_ttl(record), right=True),
        Cell("" if record.closed else ago(record.granted), right=True),
        Cell(len(record.queue), *(["magenta"] if record.queue else ["dim"]), right=True),
        Cell(_note(record), "yellow"),
    ]


def _print(screen: Screen, record: Record) -> None:
    fields = [
        ("resource", screen.paint(plain(record.resource), "cyan", "bold")),
        ("holder", plain(record.holder)),
        ("token", str(record.token)),
        ("ends in", screen.paint(f"{shown(record.remaining)} unless renewed", "green")),
        ("ttl", _ttl(record)),
        ("granted", f"{clock_time(record.granted)} ({ago(record.granted)} ago)"),
        ("renewals", f"{record.renewals}"),
    ]
    if record.closed:
        opens = clock_time(now() + timedelta(seconds=record.remaining))
        text = f"until {opens} (in {shown(record.remaining)}): {why_closed(record)}"
        fields[1:4] = [("closed", screen.paint(text, "yellow")), ("last holder", plain(record.holder)), fields[2]]
    if record.revoked:
        fields[3] = ("ends in", screen.paint(f"{shown(record.remaining)}: revoked, not renewed any more", "yellow"))
    if record.parent:
        fields.append(("parent", f"{plain(record.parent.resource)} (token {record.parent.token})"))
    if record.reserved_for:
        fields.append(("reserved", f"for {plain(record.reserved_for)}"))
    fields += [(f"metadata {plain(key)}", plain(value)) for key, value in sorted(record.metadata.items())]
    for place, waiter in enumerate(record.queue, 1):
        fields.append((f"waiting {place}", f"{plain(waiter.holder)} (for {ago(waiter.since)})"))
    columns = max(len(name) for name, _ in fields)
    for name, value in fields:
        screen.line(f"{screen.paint(name.ljust(columns), 'dim')}  {value}" if screen.terminal else f"{name}\t{value}")
