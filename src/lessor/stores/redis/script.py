"""A Lua script that the server keeps under the hash of its text, and is asked for by that."""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

from lessor.stores.redis.trouble import Elsewhere, NoScript
from lessor.stores.redis.wire import pack

if TYPE_CHECKING:
    from lessor.stores.limit import Limit
    from lessor.stores.redis.connection import Connections

ATTEMPTS_LEFT: Final = (3, 2, 1, 0)


def source(*names: str) -> str:
    """Return the text of these files, one after the other."""
    from importlib.resources import files  # noqa: PLC0415 - only when a Redis store is opened

    folder = files("lessor.stores.redis")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


class Script:
    """Runs it, and loads it where the server has it no more."""

    def __init__(self, connections: Connections, *names: str) -> None:
        self._connections = connections
        self._text = source(*names)
        self.sha = sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def run(self, request: bytes, limit: Limit, *, answers: int = 1, urgent: bool = False, grants: bool = False) -> Any:
        """Return what comes of the request, whose first word calls the script by its hash. Raises errors of ours."""
        for attempts_left in ATTEMPTS_LEFT:
            try:
                return self._connections.ask(request, limit, answers=answers, urgent=urgent, grants=grants)
            except (NoScript, Elsewhere) as nothing_done:  # so it may be sent again
                if not attempts_left:
                    raise
                if isinstance(nothing_done, NoScript):
                    self._connections.ask(pack("SCRIPT", "LOAD", self._text), limit, urgent=urgent)
        raise AssertionError("it returns or raises")
