"""A fresh folder on the same file system for all, so that nobody's disk is faster."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as path:
        yield path


def url(path: str) -> str:
    return "sqlite:///" + os.path.join(path, "leases.db")
