"""``lessor revoke``: ends another holder's lease, or opens what is closed. By force it can't stop work that hasn't heard of it: tokens do."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from lessor.cli.codes import NOTHING
from lessor.cli.durations import shown
from lessor.cli.screen import Screen, plain
from lessor.client.sync import Client
from lessor.errors import LeaseHeld

if TYPE_CHECKING:
    import argparse


def revoke(args: argparse.Namespace) -> int:
    """Revoke one lease, or open a closed resource, and say when the resource is free."""
    with Client(args.url) as client:
        before = client.get(args.resource)
        try:
            free_in = client.revoke(args.resource, force=args.force)
        except LeaseHeld as error:
            return _refused(args, error)
    screen = Screen()
    name = plain(args.resource)
    closed = before.closed if before is not None else None
    if closed == "lock_delay" and free_in is not None:
        assert before is not None
        print(
            f"lessor: warning: {shown(before.remaining)} of the lock_delay of {plain(before.holder)}'s lease (token "
            f"{before.token}) were left: what it wrote may yet arrive, and only fencing tokens keep that out",
            file=sys.stderr,
        )
    if args.json:
        answer = {"resource": args.resource, "revoked": free_in is not None, "force": args.force, "free_in": free_in}
        screen.line(json.dumps(answer, ensure_ascii=False))
    elif free_in is None:
        print(f"lessor: nobody holds {name}: there is nothing to revoke", file=sys.stderr)
    elif closed:
        screen.line(f"{name} is free now: it was closed")
    elif args.force:
        screen.line(
            f"{name} is free now; until its holder has heard of it, only the fencing token keeps its writes out"
        )
    else:
        screen.line(f"{name} is free in {shown(free_in)}: its holder was told, and can't renew any more")
    return NOTHING if free_in is None else 0


def _refused(args: argparse.Namespace, error: LeaseHeld) -> int:
    """Say that a resource stays closed."""
    if args.json:
        answer = {"resource": args.resource, "revoked": False, "force": args.force, "free_in": error.remaining}
        Screen().line(json.dumps({**answer, "closed": error.closed}, ensure_ascii=False))
    else:
        hint = "--force opens it: use that only if what the last holder wrote can't arrive any more"
        print(f"lessor: {plain(str(error))} ({hint})", file=sys.stderr)
    return NOTHING
