"""filelock: the operating system's lock on a file, on one host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable


class Filelock(Blocking):
    name = "filelock"
    store = "sqlite"
    packages = ("filelock",)
    ready = "import filelock"
    remark = "a lock on a file: no TTL, no token, one host; it ends with its process"
    polls = 0.05
    without: ClassVar = {"holding*": "its locks have no TTL and are not renewed; each holds a file open"}
    expires = False

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import filelock

        self._folder = os.path.dirname(urlsplit(url).path)
        self._lock = filelock.FileLock

    def acquire(self, resource: str) -> Callable[[], object]:
        lock = self._lock(os.path.join(self._folder, resource.replace("/", "-") + ".lock"))
        lock.acquire()
        release: Callable[[], object] = lock.release
        return release
