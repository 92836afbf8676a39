"""Writes a fenced file and is killed on the way, once for each step: ``python -m tests.fencing.crash FOLDER ORDER``.

Every step of a write that the system can see is a call into it. Each round writes with token 1, then forks a child that
writes with ``token`` and is killed (SIGKILL, by itself) right before its n-th call; then it looks at what is left.
Prints one JSON line a round. ORDER "swapped" remembers the token after the data, which is wrong on purpose.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from lessor import Fenced
from lessor.fencing import FencedFile

OLD, NEW = b"old " * 1000, b"new " * 1000
CALLS = [(os, name) for name in ("open", "close", "write", "fsync", "replace", "unlink", "stat", "fstat")]


class Swapped(FencedFile):
    """Puts the data in place before it remembers the token."""

    def write(self, bearer: Any, data: bytes | str) -> None:
        assert isinstance(data, bytes)
        with self._locked():
            self._refuse(bearer, self._seen())
            self._prepare(data)
            os.replace(self._new_path, self.path)
            self._sync_folder()
            self._remember(bearer)
            self._sync_folder()


def die_before(call: int) -> None:
    """Have this process killed right before it makes its call of that number."""
    made = 0

    def wrap(real: Any) -> Any:
        def counting(*arguments: Any, **more: Any) -> Any:
            nonlocal made
            made += 1
            if made == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return counting

    for module, name in [*CALLS, (fcntl, "flock")]:
        setattr(module, name, wrap(getattr(module, name)))


def attempt(file: FencedFile, token: int, data: bytes) -> bool:
    from lessor.fencing import Stamp

    try:
        file.write(Stamp("job", token), data)
    except Fenced:
        return False
    return True


def one_round(folder: Path, kind: type[FencedFile], token: int, call: int) -> dict[str, Any]:
    path = folder / f"{kind.__name__}-{token}-{call}"
    file = kind(path, timeout=5)
    attempt(file, 1, OLD)
    child = os.fork()
    if child == 0:
        die_before(call)
        attempt(file, token, NEW)
        os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    found = {"token": token, "call": call, "killed": killed, "before": _named(file.read()), "seen": file.token}
    found["older let in"] = attempt(file, 1, b"stale")
    found["after older"] = _named(file.read())
    found["holder let in"] = attempt(file, token, NEW)
    found["next let in"] = attempt(file, token + 1, b"next")
    found["after all"] = _named(file.read())
    found["left over"] = sorted(other.name for other in folder.glob(path.name + "*.new"))
    return found


def _named(content: bytes) -> str:
    return {OLD: "old", NEW: "new", b"stale": "stale", b"next": "next"}.get(content, "torn")


def main() -> None:
    folder = Path(sys.argv[1])
    kind = Swapped if sys.argv[2] == "swapped" else FencedFile
    for token in (1, 2):
        call, killed = 0, True
        while killed:  # until there is no such call any more
            call += 1
            found = one_round(folder, kind, token, call)
            killed = found["killed"]
            sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
