"""Tokens: the revision of a grant's write and, where a cluster's revisions have started over, something more.

Revisions of a restored or new cluster may be lower than tokens that were granted before. Whoever has seen a higher one
writes down what is to be added from then on; every transaction demands that it knows the latest such offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lessor.core.lease import TOKEN_LIMIT
from lessor.errors import ConfigError
from lessor.stores.etcd.layout import found, get, put, transaction, unchanged

if TYPE_CHECKING:
    from lessor.stores.etcd.layout import Layout
    from lessor.stores.etcd.members import Members

RESERVE: Final = 10_000
"""How far below the highest token the last one is that is granted."""


class Offset(NamedTuple):
    """What is added to revisions to make tokens, and the revision in which that was written."""

    plus: int
    modified: int


class Mint(NamedTuple):
    """What the tokens of a transaction's grants are made of."""

    revision: int
    offset: Offset

    @property
    def token(self) -> int:
        """The token of each grant."""
        return self.revision + self.offset.plus


class Tokens:
    """What one store knows of its namespace's offset. Safe for threads, since etcd says so where it is wrong."""

    def __init__(self, members: Members, layout: Layout) -> None:
        self._members = members
        self._key = layout.offset
        self.offset = Offset(0, 0)

    def demand(self, offset: Offset) -> bytes:
        """Demand that this is the latest one."""
        return unchanged(self._key, offset.modified)

    def look(self) -> bytes:
        """Read the latest one."""
        return get(self._key)

    def learn(self, response: dict[str, Any]) -> None:
        """Take in what that showed."""
        kvs = found(response)
        self.offset = Offset(int(kvs[0].value["is"]), kvs[0].modified) if kvs else Offset(0, 0)

    def raise_above(self, seen: int, mint: Mint, give_up: int) -> None:
        """Let the next token be above this one, which is not below what was minted.

        Only if the offset is still the one that this was minted with: whoever raised it meanwhile, another thread of
        this client included, may have seen more.
        """
        if seen + 1 >= TOKEN_LIMIT - RESERVE:
            raise ConfigError(f"the next token, {seen + 1}, is not below 2^53: some clock was centuries ahead")
        plus = seen - mint.revision
        request = transaction([self.demand(mint.offset)], [put(self._key, plus)], [self.look()])
        answer = self._members.transact(request, give_up)
        if answer.get("succeeded"):
            self.offset = Offset(plus, answer["header"]["revision"])
        else:
            self.learn(answer["responses"][0])
