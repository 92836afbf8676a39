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

from lessor.stores.descriptors import closed, keep_from_children
from lessor.stores.postgresql.trouble import Refused, Unreplicated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.stores.limit import Limit
    from lessor.stores.postgresql.statements import Statement

GOOD: Final = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
WARNING: Final = b"01000"
"""The code of a warning that has none of its own."""
SAID_BY_FUNCTIONS: Final = b"exec_stmt_raise"
"""The routine in the server that carries out RAISE: its warnings are from somebody's own code, not about the commit."""


class Warnings:
    """What the server warns of. It doesn't know its connection: one that nobody has any more is to be gone at once."""

    doubtful = False
    """Whether the server has warned, since the last request, that the commit may not be what it was to be."""

    def take(self, notice: pq.abc.PGresult) -> None:
        """Take note of a warning.

        A backend that is told to cancel while it waits for a synchronous standby has committed, says so with success,
        and warns that the commit may not be replicated. The text depends on the server's language, and the code is
        that of every warning without one of its own. So each of those counts, unless a function in the database raised
        it: a grant too many that is asked for again is better than one that two hold.
        """
        if notice.error_field(pq.DiagnosticField.SQLSTATE) == WARNING:
            self.doubtful |= notice.error_field(pq.DiagnosticField.SOURCE_FUNCTION) != SAID_BY_FUNCTIONS


class Wire:
    """A connection. Any error but the server's own refusal makes it useless: a late answer would go astray."""

    def __init__(self, conninfo: bytes, limit: Limit) -> None:
        self.used_ns = 0
        self.slot: object = None
        self.pooled = False
        """A pooler stands between: nothing of this connection lasts from one statement to the next."""
        self._prepared: set[bytes] = set()
        self._warnings = Warnings()
        self._connection = pq.PGconn.connect_start(conninfo)
        try:
            self._await_connection(limit)
        except BaseException:
            self.close()
            raise
        self._connection.nonblocking = 1
        self._connection.notice_handler = self._warnings.take
        self.socket = self._connection.socket
        keep_from_children(self, self.socket)
        self._readable = select.poll()
        self._readable.register(self.socket, select.POLLIN)
        self.pid = self._connection.backend_pid
        self.version = self._connection.server_version

    def ask(self, statement: Statement, values: Sequence[bytes | None], limit: Limit) -> bytes | None:
        """Return the one value that the statement returns.

        Raises `Refused`, `Unreplicated`, `TimeoutError` or `psycopg.Error`.
        """
        self._warnings.doubtful = False
        if self.pooled:
            self._connection.send_query_params(statement.sql, values)
        else:
            if statement.name not in self._prepared:
                self._connection.send_prepare(statement.name, statement.sql)
                self._answer(limit)
                self._prepared.add(statement.name)
            self._connection.send_query_prepared(statement.name, values)
        result = self._answer(limit)
        if self._warnings.doubtful:
            raise Unreplicated
        return result.get_value(0, 0) if result.ntuples else None

    def tell(self, sql: bytes, limit: Limit) -> pq.abc.PGresult:
        """Carry out a statement without values, and return what it returns."""
        self._connection.send_query_params(sql, [])
        return self._answer(limit)

    def run(self, script: bytes, limit: Limit) -> None:
        """Carry out several statements, up to the first that fails."""
        self._connection.send_query(script)
        self._answer(limit)

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
        closed(self)
        self._connection.finish()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _answer(self, limit: Limit) -> pq.abc.PGresult:
        connection = self._connection
        while connection.flush():
            self._wait(select.POLLIN | select.POLLOUT, limit)
            connection.consume_input()
        found: pq.abc.PGresult | None = None
        while True:
            while connection.is_busy():
                if not self._readable.poll(limit.left() * 1000):
                    raise TimeoutError
                connection.consume_input()
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

    def _wait(self, events: int, limit: Limit) -> None:
        poll = select.poll()
        poll.register(self._connection.socket, events)
        if not poll.poll(limit.left() * 1000):
            raise TimeoutError

    def _await_connection(self, limit: Limit) -> None:
        while True:
            status = self._connection.connect_poll()
            if status == pq.PollingStatus.OK:
                return
            if status == pq.PollingStatus.FAILED:
                raise psycopg.OperationalError(self._connection.error_message.decode(errors="replace"))
            self._wait(select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT, limit)
