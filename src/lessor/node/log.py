"""A node's log: one line an event, as JSON for machines or as text for people. No lease ids, no secrets."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

from lessor.runtime.clock import SYSTEM

_json = True


def choose(*, as_json: bool) -> None:
    """Choose between JSON and text."""
    global _json  # noqa: PLW0603 - a process has one log
    _json = as_json


def log(event: str, *, level: str = "info", **fields: Any) -> None:
    """Write one line to stderr. A log that can't be written to is no reason to stop."""
    at = datetime.fromtimestamp(SYSTEM.wall_us() / 1e6, UTC).isoformat(timespec="milliseconds")
    if _json:
        line = json.dumps({"at": at, "level": level, "event": event, **fields}, default=str)
    else:
        line = f"{at} {level} {event}" + "".join(f" {name}={value}" for name, value in fields.items())
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
