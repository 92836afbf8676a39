"""``lessor revoke``: ends somebody else's lease. By force it can't stop work that hasn't heard of it: tokens do."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from lessor.cli.codes import NOTHING
from lessor.cli.durations import shown
from lessor.cli.screen import Screen, plain
from lessor.client.sync import Client

if TYPE_CHECKING:
    import argparse


def revoke(args: argparse.Namespace) -> int:
    """Revoke one lease, and say when the resource is free."""
    with Client(args.url) as client:
        free_in = client.revoke(args.resource, force=args.force)
    screen = Screen()
    name = plain(args.resource)
    if args.json:
        answer = {"resource": args.resource, "revoked": free_in is not None, "force": args.force, "free_in": free_in}
        screen.line(json.dumps(answer, ensure_ascii=False))
    elif free_in is None:
        print(f"lessor: nobody holds {name}: there is nothing to revoke", file=sys.stderr)
    elif args.force:
        screen.line(
            f"{name} is free now; until its holder has heard of it, only the fencing token keeps its writes out"
        )
    else:
        screen.line(f"{name} is free in {shown(free_in)}: its holder was told, and can't renew any more")
    return NOTHING if free_in is None else 0
