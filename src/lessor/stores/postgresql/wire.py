"""One connection: one request, one answer, and none of it is used again of which that isn't certain.

psycopg's libpq underneath, without its cursors, which take as long as the round trip; and with a bound on every wait,
the server's name not counted, which the system looks up.
"""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import pq

from lessor.core.clock import SECOND
from lessor.stores.postgresql.trouble import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.core.clock import Clock
    from lessor.stores.postgresql.statements import Statement

GOOD: Final = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class Wire:
    """A connection. Any error but the server's own refusal makes it useless: a late answer would go astray."""

    def __init__(self, conninfo: bytes, timeout: float, clock: Clock) -> None:
        self._clock = clock
        self.used_ns = 0
        self.slot: object = None
        self.pooled = False
        """A pooler stands between: nothing of this connection lasts from one statement to the next."""
        self._prepared: set[bytes] = set()
        self._connection = pq.PGconn.connect_start(conninfo)
        try:
            self._await_connection(timeout)
        except BaseException:
            self.close()
            raise
        self._connection.nonblocking = 1
        self.socket = self._connection.socket
        self._readable = select.poll()
        self._readable.register(self.socket, select.POLLIN)
        self.pid = self._connection.backend_pid
        self.version = self._connection.server_version

    def ask(self, statement: Statement, values: Sequence[bytes | None], timeout: float) -> bytes | None:
        """Return the one value that the statement returns. Raises `Refused`, `TimeoutError` or `psycopg.Error`."""
        if self.pooled:
            self._connection.send_query_params(statement.sql, values)
        else:
            if statement.name not in self._prepared:
                self._connection.send_prepare(statement.name, statement.sql)
                self._answer(timeout)
                self._prepared.add(statement.name)
            self._connection.send_query_prepared(statement.name, values)
        result = self._answer(timeout)
        return result.get_value(0, 0) if result.ntuples else None

    def tell(self, sql: bytes, timeout: float) -> pq.abc.PGresult:
        """Carry out a statement without values, and return what it returns."""
        self._connection.send_query_params(sql, [])
        return self._answer(timeout)

    def pending(self, seconds: float) -> bool:
        """Whether there is something to receive, an end included, within that time. Between requests, that is bad news."""
        return bool(self._readable.poll(seconds * 1000))

    def heard(self) -> Iterator[tuple[str, str]]:
        """Return the notifications that have come: channel and payload."""
        self._connection.consume_input()
        while (notify := self._connection.notifies()) is not None:
            yield notify.relname.decode(), notify.extra.decode()

    def fileno(self) -> int:
        """Return its descriptor, which is libpq's, and stays so."""
        return self.socket

    def shut_down(self) -> None:
        """Let whoever listens find it closed."""
        with socket.socket(fileno=os.dup(self.socket)) as same:
            same.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._connection.finish()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _answer(self, timeout: float) -> pq.abc.PGresult:
        connection = self._connection
        give_up = self._clock.now() + int(timeout * SECOND)
        while connection.flush():
            self._wait(select.POLLIN | select.POLLOUT, give_up)
            connection.consume_input()
        found: pq.abc.PGresult | None = None
        left = timeout
        while True:
            while connection.is_busy():
                if left <= 0 or not self._readable.poll(left * 1000):
                    raise TimeoutError
                connection.consume_input()
                left = (give_up - self._clock.now()) / SECOND
            result = connection.get_result()
            if result is None:
                break
            found = result
        if found is None:
            raise psycopg.OperationalError("no answer")
        if found.status not in GOOD:
            code = (found.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            text = (found.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or found.error_message).decode(
                errors="replace"
            )
            raise Refused(code, text) if code else psycopg.OperationalError(text)
        return found

    def _wait(self, events: int, give_up: int) -> None:
        left = (give_up - self._clock.now()) / SECOND
        poll = select.poll()
        poll.register(self._connection.socket, events)
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError

    def _await_connection(self, timeout: float) -> None:
        give_up = self._clock.now() + int(timeout * SECOND)
        while True:
            status = self._connection.connect_poll()
            if status == pq.PollingStatus.OK:
                return
            if status == pq.PollingStatus.FAILED:
                raise psycopg.OperationalError(self._connection.error_message.decode(errors="replace"))
            self._wait(select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT, give_up)
