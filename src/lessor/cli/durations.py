"""Durations and other words as people type them, turned into values or refused."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(ms|s|m|h|)", re.ASCII)


def duration(text: str) -> float:
    """Turn ``30``, ``1.5``, ``500ms``, ``2m`` or ``1h`` into seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ArgumentTypeError(f"{text!r} is no duration: write 30, 1.5, 500ms, 2m or 1h")
    seconds = float(match[1]) * UNITS[match[2]]
    if not seconds < 1e9:
        raise ArgumentTypeError(f"{text!r} is too long")
    return seconds


def words(text: str) -> str:
    """Return the text if the store could keep it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentTypeError(f"{text!r} is not UTF-8") from None
    return text


def some_words(text: str) -> str:
    """Return the text unless it is empty: a variable that was not set should not pass for a default."""
    if not text:
        raise ArgumentTypeError("it is empty: leave the option out for the default")
    return words(text)


def shown(seconds: float) -> str:
    """Return a duration for people: ``0.42s``, ``12.3s``, ``4m05s``, ``2h07m``."""
    if seconds < 1:
        return f"{seconds:.2f}s"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02}m"
    return f"{hours // 24}d{hours % 24:02}h"
