"""The calls that a store makes, as statements: one call of one function each, so one transaction and one round trip."""

from __future__ import annotations

from typing import NamedTuple


class Statement(NamedTuple):
    """Something to ask, under the name by which a connection knows it once it was asked there."""

    name: bytes
    sql: bytes


class Statements:
    """The functions of one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema.replace('"', '""')
        self.apply = self._call("apply", 3)
        self.apply_within = self._call("apply_within", 3)
        self.acquire = self._call("acquire", 10)
        self.release = self._call("release", 4)
        self.read = self._call("read", 2)
        self.contenders = self._call("contenders", 2)
        self.scan = self._call("scan", 4)
        self.collect = self._call("collect", 3)
        self.rehearse = self._call("rehearse", 1)

    def _call(self, function: str, values: int) -> Statement:
        places = ", ".join(f"${n}" for n in range(1, values + 1))
        return Statement(f"lessor_{function}".encode(), f'SELECT "{self._schema}".{function}({places})'.encode())
