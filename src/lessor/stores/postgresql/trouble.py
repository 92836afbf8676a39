"""What PostgreSQL says when it refuses, as the error that it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.scarcity import no_descriptor

if TYPE_CHECKING:
    from lessor.stores.postgresql.address import PostgresAddress

STORE: Final = "postgresql"


class Refused(Exception):  # noqa: N818 - it never leaves the store
    """The server's own refusal of a statement, which is then undone: nothing happened."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class Unreplicated(Exception):  # noqa: N818 - it never leaves the store
    """The server has committed, and warned that a synchronous standby may not have received it."""


AGAIN: Final = ("40001", "40P01")
"""Serialization failure, deadlock: to be sent again."""
UNPREPARED: Final = ("26000", "42P05")
"""The prepared statement is unknown, or known already: there is a pooler."""
LOCKED: Final = "55P03"
MISSING: Final = ("3F000", "42883", "42P01")
"""No such schema, function or table."""
ELSEWHERE: Final = ("25006", "57P01", "57P02", "57P03")
"""It is read-only now, or goes down: another server may answer at the same address."""

NEEDS_SETTLING: Final = {
    "28P01": "refuses the user name or password: mend the URL, PGPASSWORD or ~/.pgpass",
    "28000": "doesn't let this user in: see pg_hba.conf",
    "3D000": "has no such database: create it, or name another in the URL",
}
PASSES: Final = {
    "25006": "takes no writes: it is a standby, or read-only",
    "53100": "has no disk space left",
    "53200": "is out of memory",
    "53300": "has as many connections as it takes: raise max_connections, or put a pooler before it",
    "57014": "cancelled the statement: see statement_timeout",
    "57P01": "is shutting down",
    "57P02": "crashed, and recovers",
    "57P03": "is starting up or shutting down",
}
# By patterns: libpq tells no code when a connection is refused.
CONNECTING: Final = {
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    "authentication failed": "28000",
    "no pg_hba.conf entry": "28000",
    "is not permitted to log in": "28000",
    r'FATAL: +database ".*" does not exist': "3D000",
    r'FATAL: +role ".*" does not exist': "28000",
    "no such database": "3D000",
    "too many clients": "53300",
    "too many connections": "53300",
    "connection slots are reserved": "53300",
    "no more connections allowed": "53300",
    "starting up": "57P03",
    "shutting down": "57P03",
    "not yet accepting": "57P03",
    "in recovery mode": "57P03",
}


def explain(refused: Refused, address: PostgresAddress) -> LessorError:
    """Return the error for what the server answered."""
    code = refused.code
    if code in NEEDS_SETTLING:
        return ConfigError(f"PostgreSQL at {address} {NEEDS_SETTLING[code]}")
    if code in PASSES:
        return StoreUnavailable(STORE, f"{address} {PASSES[code]}")
    text = address.scrub(refused.text)[:200]
    if code == "42501":
        return ConfigError(
            f"PostgreSQL at {address} doesn't permit it to this role ({text}): as the owner of the schema, "
            f'GRANT USAGE ON SCHEMA "{address.schema}" TO it'
        )
    return StoreUnavailable(STORE, f"{address} answers: {text} ({code})")


def explain_connecting(text: str, address: PostgresAddress) -> LessorError:
    """Return the error for what libpq says when it can't connect."""
    for words, code in CONNECTING.items():
        if re.search(words, text):
            return explain(Refused(code, text), address)
    said = " ".join(address.scrub(text.strip().rpartition("failed: ")[2] or text.strip()).split())[:200]
    if "FATAL:" not in text and re.search(r'(certificate|key) file ".*" does not exist', text):
        return ConfigError(f"PostgreSQL at {address} can't be trusted: {said}: see sslrootcert, sslcert and sslkey")
    if "server does not support SSL" in text:
        return ConfigError(f"PostgreSQL at {address} doesn't speak TLS, and sslmode in the URL requires it")
    why = said or no_descriptor() or "libpq doesn't say why; perhaps for want of a file descriptor"
    return StoreUnavailable(STORE, f"{address} can't be reached: {why}")
