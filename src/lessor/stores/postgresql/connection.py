"""The connections of a store: what is asked over them, and how one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg

from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.pool import TRUSTED_NS, Pool
from lessor.stores.postgresql.migration import VERSION, migrate, ours, too_new, too_old
from lessor.stores.postgresql.trouble import (
    AGAIN,
    ELSEWHERE,
    MISSING,
    STORE,
    UNPREPARED,
    Refused,
    Unreplicated,
    explain,
    explain_connecting,
)
from lessor.stores.postgresql.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.stores.limit import Limit
    from lessor.stores.postgresql.address import PostgresAddress
    from lessor.stores.postgresql.statements import Statement

OLDEST: Final = 130000
ATTEMPTS: Final = 5
"""How often a statement is sent that the server undid, and wants to be sent again."""


class Connections(Pool[Wire]):
    """Those to one database."""

    def __init__(self, address: PostgresAddress) -> None:
        super().__init__(STORE, address)
        self._address = address

    def ask(self, statement: Statement, values: Sequence[bytes | None], limit: Limit, *, urgent: bool = False) -> bytes:
        """Ask over some connection, and return the answer. Raises `Refused`, or an error of ours.

        It is sent again only where the server said that nothing was done.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = self._ask(statement, values, limit, urgent=urgent)
            except Refused as refused:
                if refused.code not in (*AGAIN, *UNPREPARED, *MISSING) or attempt == ATTEMPTS:
                    raise
            else:
                assert answer is not None
                return answer
        raise AssertionError

    # --- one request ----------------------------------------------------------------------------------------------

    def _ask(self, statement: Statement, values: Sequence[bytes | None], limit: Limit, *, urgent: bool) -> bytes | None:
        wire = self._idle_one(urgent=urgent)
        now = limit.began_ns
        if wire is None or (now - wire.used_ns > TRUSTED_NS and wire.pending(0)):
            wire = self._another(wire, limit, urgent=urgent)
        wire.used_ns = now
        try:
            answer = wire.ask(statement, values, limit)
        except Refused as refused:
            self._after(refused, wire)
            raise
        except Unreplicated:
            self._put_back(wire)
            raise StoreUnavailable(
                STORE,
                f"{self._address} has committed, but its wait for a synchronous standby was cancelled: a failover "
                "might undo it",
            ) from None
        except TimeoutError:
            self._drop(wire)
            raise StoreUnavailable(STORE, f"{self._address} didn't answer within {limit.seconds:g} s") from None
        except psycopg.Error as error:
            self._drop(wire)
            said = " ".join(self._address.scrub(error).split())[:200]
            raise StoreUnavailable(STORE, f"the connection to {self._address} broke: {said}") from None
        except BaseException:
            self._drop(wire)
            raise
        self._put_back(wire)
        return answer

    def _after(self, refused: Refused, wire: Wire) -> None:
        """Keep the connection if it is still good for something."""
        if refused.code in (*ELSEWHERE, *MISSING):
            self._drop(wire)
            self._drop_idle()
            return
        if refused.code in UNPREPARED:
            wire.pooled = True
        self._put_back(wire)

    def _connect(self, limit: Limit) -> Wire:
        try:
            limit.left()
        except TimeoutError:
            raise StoreUnavailable(STORE, f"there was no connection to {self._address} in time") from None
        return connect(self._address, limit)


def connect(address: PostgresAddress, limit: Limit) -> Wire:
    """Connect to the first of the hosts that takes leases, its schema in order. Raises errors of ours."""
    attempts = list(address.attempts())
    last: LessorError | None = None
    for hosts_left, conninfo in zip(range(len(attempts), 0, -1), attempts, strict=True):
        try:
            wire = Wire(conninfo, limit.share(hosts_left))  # one that is silent leaves time for the others
        except TimeoutError:
            last = StoreUnavailable(STORE, f"{address} can't be reached within {limit.seconds:.3g} s")
            continue
        except psycopg.OperationalError as error:
            last = explain_connecting(str(error), address)
            continue
        try:
            _check(wire, address, limit)
        except (LessorError, TimeoutError, Refused, psycopg.Error) as error:
            wire.close()
            last = _as_ours(error, address, limit)
            if len(attempts) == 1 or not isinstance(last, StoreUnavailable):
                raise last from None
        except BaseException:
            wire.close()
            raise
        else:
            return wire
    assert last is not None
    raise last


def _as_ours(error: Exception, address: PostgresAddress, limit: Limit) -> LessorError:
    if isinstance(error, LessorError):
        return error
    if isinstance(error, Refused):
        return explain(error, address)
    if isinstance(error, TimeoutError):
        return StoreUnavailable(STORE, f"{address} didn't answer within {limit.seconds:g} s")
    return StoreUnavailable(STORE, f"the connection to {address} broke: {' '.join(address.scrub(error).split())[:200]}")


def _check(wire: Wire, address: PostgresAddress, limit: Limit) -> None:
    """Refuse a server on which leases can't be kept, and make the schema where there is none."""
    if wire.version < OLDEST:
        version = f"{wire.version // 10000}.{wire.version % 10000}"
        raise ConfigError(f"PostgreSQL at {address} has version {version}, and 13 is the oldest that works")
    result = wire.tell(f"SELECT pg_backend_pid(), pg_is_in_recovery(), {ours(address.schema)}".encode(), limit)
    pid, standby, there = (result.get_value(0, column) for column in range(3))
    if standby == b"t":
        raise StoreUnavailable(STORE, f"{address} is a standby, which can't be written to: leases need the primary")
    wire.pooled = int(pid or 0) != wire.pid
    if there != b"t":
        migrate(address, limit)
        return
    schema = address.schema.replace('"', '""')
    found = int(wire.tell(f'SELECT "{schema}".schema_version()'.encode(), limit).get_value(0, 0) or 0)
    if found > VERSION:
        raise too_new(found, address.schema)
    if found < VERSION:
        raise too_old(found, address)
