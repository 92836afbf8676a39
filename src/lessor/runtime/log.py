"""The library's log. It is hardly ever written to, so ``logging`` is imported when it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def log() -> logging.Logger:
    """Return the logger named "lessor"."""
    import logging  # noqa: PLC0415 - 5 ms that an import needn't cost

    return logging.getLogger("lessor")
