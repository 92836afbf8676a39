"""The connections of a store, the last one used first. Who finds all in use waits for one; renewals don't."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Final

import psycopg

from leasehold.core.clock import SECOND
from leasehold.errors import ConfigError, LeaseholdError, StoreUnavailable
from leasehold.stores.postgresql.migration import VERSION, migrate, ours, too_new, too_old
from leasehold.stores.postgresql.trouble import (
    AGAIN,
    ELSEWHERE,
    MISSING,
    STORE,
    UNPREPARED,
    Refused,
    explain,
    explain_connecting,
)
from leasehold.stores.postgresql.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.core.clock import Clock
    from leasehold.stores.postgresql.address import PostgresAddress
    from leasehold.stores.postgresql.statements import Statement

CONNECTIONS: Final = 16
"""How many a store opens."""
OLDEST: Final = 130000
TRUSTED_NS: Final = SECOND // 10
"""A connection that was idle for longer is looked at before it is used: the server may have closed it."""
ATTEMPTS: Final = 5
"""How often a statement is sent that the server undid, and wants to be sent again."""


class Pool:
    """Connections to one database."""

    def __init__(self, address: PostgresAddress, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._closed = False
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Have no connections: at the start, and in a forked child, where those that there are belong to the parent."""
        self._idle: list[Wire] = []
        self._free = threading.Condition()
        self._open = self._waiting = 0

    @property
    def exhausted(self) -> bool:
        """Whether all are in use, or somebody waits for one: then there is something to share."""
        return self._open >= CONNECTIONS and (self._waiting > 0 or not self._idle)

    def ask(
        self, statement: Statement, values: Sequence[bytes | None], timeout: float, *, urgent: bool = False
    ) -> bytes:
        """Ask over some connection, and return the answer. Raises `Refused`, or an error of ours.

        It is sent again only where the server said that nothing was done.
        """
        give_up = self._clock.now() + int(timeout * SECOND)
        for attempt in range(1, ATTEMPTS + 1):
            left = timeout if attempt == 1 else (give_up - self._clock.now()) / SECOND
            try:
                answer = self._ask(statement, values, max(left, 0.001), urgent=urgent)
            except Refused as refused:
                if refused.code not in (*AGAIN, *UNPREPARED, *MISSING) or attempt == ATTEMPTS or left <= 0:
                    raise
            else:
                assert answer is not None
                return answer
        raise AssertionError

    def close(self) -> None:
        """Close all; one that is in use is closed by whoever uses it."""
        self._closed = True
        self._renew()
        with self._free:
            self._free.notify_all()

    # --- one request ----------------------------------------------------------------------------------------------

    def _ask(
        self, statement: Statement, values: Sequence[bytes | None], timeout: float, *, urgent: bool
    ) -> bytes | None:
        try:
            wire = self._idle.pop()
        except IndexError:
            wire = None
        now = self._clock.now()
        if wire is None or (now - wire.used_ns > TRUSTED_NS and wire.pending(0)):
            wire = self._another(wire, timeout, urgent=urgent)
        wire.used_ns = now
        try:
            answer = wire.ask(statement, values, timeout)
        except Refused as refused:
            self._after(refused, wire)
            raise
        except TimeoutError:
            self._drop(wire)
            raise StoreUnavailable(STORE, f"{self._address} didn't answer within {timeout:g} s") from None
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
            self._renew()
            return
        if refused.code in UNPREPARED:
            wire.pooled = True
        self._put_back(wire)

    def _put_back(self, wire: Wire) -> None:
        if self._closed:
            self._drop(wire)
            return
        self._idle.append(wire)
        if self._waiting:
            with self._free:
                self._free.notify()

    def _renew(self) -> None:
        """Close what is idle, since another server may answer now."""
        while self._idle:
            self._drop(self._idle.pop())

    def _drop(self, wire: Wire) -> None:
        wire.close()
        self._lessen()

    def _lessen(self) -> None:
        with self._free:
            self._open -= 1
            self._free.notify()

    # --- another connection ---------------------------------------------------------------------------------------

    def _another(self, spoilt: Wire | None, timeout: float, *, urgent: bool) -> Wire:
        """Return a connection that works: an idle one, or a new one."""
        while spoilt is not None:
            self._drop(spoilt)
            try:
                spoilt = self._idle.pop()
            except IndexError:
                break
            if not spoilt.pending(0):
                return spoilt
        give_up = self._clock.now() + int(timeout * SECOND)
        with self._free:
            while self._open >= CONNECTIONS and not urgent and not self._closed:
                left = (give_up - self._clock.now()) / SECOND
                if left <= 0:
                    raise StoreUnavailable(STORE, f"all {CONNECTIONS} connections were in use for {timeout:g} s")
                self._waiting += 1
                try:
                    self._free.wait(left)
                finally:
                    self._waiting -= 1
                with contextlib.suppress(IndexError):
                    return self._idle.pop()
            if self._closed:
                raise StoreUnavailable(STORE, f"the store on {self._address} is closed")
            self._open += 1
        try:
            return connect(self._address, max(0.001, (give_up - self._clock.now()) / SECOND), self._clock)
        except BaseException:
            self._lessen()
            raise


def connect(address: PostgresAddress, timeout: float, clock: Clock) -> Wire:
    """Connect to the first of the hosts that takes leases, its schema in order. Raises errors of ours."""
    attempts = list(address.attempts())
    give_up = clock.now() + int(timeout * SECOND)
    last: LeaseholdError | None = None
    for at, conninfo in enumerate(attempts):
        share = max(0.001, (give_up - clock.now()) / SECOND / (len(attempts) - at))
        try:
            wire = Wire(conninfo, share, clock)
        except TimeoutError:
            last = StoreUnavailable(STORE, f"{address} can't be reached within {share:.3g} s")
            continue
        except psycopg.OperationalError as error:
            last = explain_connecting(str(error), address)
            continue
        try:
            _check(wire, address, max(0.001, (give_up - clock.now()) / SECOND))
        except (LeaseholdError, TimeoutError, Refused, psycopg.Error) as error:
            wire.close()
            last = _as_ours(error, address, timeout)
            if len(attempts) == 1 or not isinstance(last, StoreUnavailable):
                raise last from None
        except BaseException:
            wire.close()
            raise
        else:
            return wire
    assert last is not None
    raise last


def _as_ours(error: Exception, address: PostgresAddress, timeout: float) -> LeaseholdError:
    if isinstance(error, LeaseholdError):
        return error
    if isinstance(error, Refused):
        return explain(error, address)
    if isinstance(error, TimeoutError):
        return StoreUnavailable(STORE, f"{address} didn't answer within {timeout:g} s")
    return StoreUnavailable(STORE, f"the connection to {address} broke: {' '.join(address.scrub(error).split())[:200]}")


def _check(wire: Wire, address: PostgresAddress, timeout: float) -> None:
    """Refuse a server on which leases can't be kept, and make the schema where there is none."""
    if wire.version < OLDEST:
        version = f"{wire.version // 10000}.{wire.version % 10000}"
        raise ConfigError(f"PostgreSQL at {address} has version {version}, and 13 is the oldest that works")
    result = wire.tell(f"SELECT pg_backend_pid(), pg_is_in_recovery(), {ours(address.schema)}".encode(), timeout)
    pid, standby, there = (result.get_value(0, column) for column in range(3))
    if standby == b"t":
        raise StoreUnavailable(STORE, f"{address} is a standby, which can't be written to: leases need the primary")
    wire.pooled = int(pid or 0) != wire.pid
    if there != b"t":
        migrate(address, timeout)
        return
    schema = address.schema.replace('"', '""')
    found = int(wire.tell(f'SELECT "{schema}".schema_version()'.encode(), timeout).get_value(0, 0) or 0)
    if found > VERSION:
        raise too_new(found, address.schema)
    if found < VERSION:
        raise too_old(found, address)


_all: weakref.WeakSet[Pool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_all):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork)
