"""A disk of a few kilobytes, in a mount namespace of its own, that a test may fill."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.needs import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator


class SmallDisk:
    """What `inside` runs finds the disk at ``path``; the test finds it at ``here``."""

    def __init__(self, path: str, pid: int) -> None:
        self.inside = ("nsenter", "--mount", f"--target={pid}", "--")
        self.here = Path(f"/proc/{pid}/root{path}")

    def fill(self) -> None:
        """Leave no room in it."""
        with (self.here / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        """Make room again."""
        (self.here / "filler").unlink()

    def remount(self, option: str) -> None:
        """Make it read-only (``ro``) or writable (``rw``), while nothing on it is open."""
        where = str(self.here).partition("root")[2]
        subprocess.run([*self.inside, "mount", "-o", f"remount,{option}", where], check=True)


@contextlib.contextmanager
def small_disk(path: str) -> Iterator[SmallDisk]:
    """Mount one; that takes root."""
    script = 'mkdir -p "$0" && mount -t tmpfs -o size=64k lessor-test "$0" && echo mounted && exec cat'
    command = ["unshare", "--mount", "sh", "-c", script, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        assert keeper.stderr is not None
        if keeper.stdout.readline() != b"mounted\n":
            not_here(f"a disk can't be mounted: {keeper.stderr.read().decode().strip()}")
        yield SmallDisk(path, keeper.pid)
        keeper.stdin.close()
