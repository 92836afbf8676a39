"""A Lua script that the server keeps under the hash of its text, and is asked for by that."""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING, Any

import hiredis

from leasehold.stores.redis.connection import check, pack
from leasehold.stores.redis.trouble import leads_elsewhere

if TYPE_CHECKING:
    from leasehold.stores.redis.address import RedisAddress
    from leasehold.stores.redis.connection import Connections


def source(*names: str) -> str:
    """Return the text of these files, one after the other."""
    from importlib.resources import files  # noqa: PLC0415 - only when a Redis store is opened

    folder = files("leasehold.stores.redis")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


class Script:
    """Runs it with the keys and arguments given, and loads it where the server has it no more."""

    def __init__(self, connections: Connections, address: RedisAddress, *names: str) -> None:
        self._connections = connections
        self._address = address
        self._text = source(*names)
        self.sha = sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def run(self, words: tuple[str, ...], timeout: float, *, urgent: bool = False) -> Any:
        """Return what the script returns. Raises errors of ours."""
        request = pack("EVALSHA", self.sha, *words)
        answer = self._connections.ask(request, timeout, urgent=urgent)
        if type(answer) is list:
            return answer
        if isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOSCRIPT"):
            # It wasn't there, so nothing was done: this is the one request that may be sent again.
            loaded = self._connections.ask(pack("SCRIPT", "LOAD", self._text), timeout, urgent=urgent)
            check(loaded, self._address)
            answer = self._connections.ask(request, timeout, urgent=urgent)
        if isinstance(answer, hiredis.ReplyError) and leads_elsewhere(str(answer)):
            self._connections.renew()
        return check(answer, self._address)
