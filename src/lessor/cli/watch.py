"""``lessor watch``: what happens to leases, as it happens. It tells that a lease ended, not what its holder does."""

from __future__ import annotations

import json
import select
import sys
from typing import TYPE_CHECKING, Final

from lessor.cli.durations import shown
from lessor.cli.screen import Screen, clock_time, pad, plain
from lessor.client.sync import Client
from lessor.core.ops import EventKind
from lessor.core.view import iso

if TYPE_CHECKING:
    import argparse

    from lessor.core.view import Event

LOOK: Final = 0.5
"""Seconds between two looks at whether anybody still reads what we print."""
STYLE: Final = {
    EventKind.GRANTED: "green",
    EventKind.RELEASED: "blue",
    EventKind.REVOKED: "yellow",
    EventKind.EXPIRED: "red",
}


def watch(args: argparse.Namespace) -> int:
    """Print events until interrupted, or until nobody reads them any more."""
    screen = Screen()
    with Client(args.url) as client, client.watch(args.prefix) as events:
        if screen.terminal and not args.json:
            print(screen.paint("watching; Ctrl-C ends it", "dim"), file=sys.stderr)
        while not events.ended:
            events.poll(LOOK)
            while (event := events.take()) is not None:
                screen.line(json.dumps(event.as_dict(), ensure_ascii=False) if args.json else _line(screen, event))
            _require_reader()
    return 0


def _line(screen: Screen, event: Event) -> str:
    kind, resource, holder = str(event.kind), plain(event.resource), plain(event.holder)
    if not screen.terminal:
        return "\t".join((iso(event.at), kind, resource, str(event.token), holder))
    time = screen.paint(clock_time(event.at)[11:], "dim")
    word = screen.paint(kind.ljust(8), STYLE[event.kind])
    closed = screen.paint(f"  closed for {shown(event.closed_for)}", "yellow") if event.closed_for else ""
    token = screen.paint(str(event.token), "dim")
    return f"{time}  {word}  {screen.paint(pad(resource, 24), 'cyan')}  {token}  {holder}{closed}"


def _require_reader() -> None:
    """Notice a closed pipe also when there is nothing to print: else ``watch | head -1`` would wait for a second event."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(happened & (select.POLLERR | select.POLLNVAL) for _, happened in poll.poll(0)):
        raise BrokenPipeError
