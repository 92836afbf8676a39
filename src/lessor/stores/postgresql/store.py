"""``postgresql://``: leases for all hosts that reach one PostgreSQL database.

It can't know when the server's clock is set forward, nor promise that a grant survives a failover to a standby that had
not received it. Tokens go on rising, so guard the writes with them.

Decisions are made in the server, by the functions in the folder beside this module, and one call carries a whole batch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import threading
from typing import TYPE_CHECKING, Any, Final

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.ops import Acquire, Held, Release, Renew, Unknown
from lessor.core.timing import SLEWED_DRIFT
from lessor.errors import LessorError
from lessor.stores.answers import contenders, record
from lessor.stores.base import Capability, Guarantees
from lessor.stores.gathering import Gathering
from lessor.stores.limit import Limit
from lessor.stores.postgresql import codec
from lessor.stores.postgresql.statements import Statements
from lessor.stores.postgresql.trouble import LOCKED, Refused, explain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.core.clock import Clock
    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Op, Outcome
    from lessor.stores.base import StoreURL
    from lessor.stores.postgresql.statements import Statement
    from lessor.stores.postgresql.subscription import PostgresSubscription
    from lessor.stores.postgresql.transaction import Call

PAGE: Final = 500
"""Entries that one call of a scan looks at."""
SHORT_WAIT: Final = 0.25
"""Seconds that a batch waits for a row that somebody's transaction has locked: the others in it wait, too."""
PAUSES: Final = (0.005, 0.01, 0.02, 0.04)
"""Before a renewal that found its row locked is sent again: mostly by somebody who is about to commit."""
COLLECT_EVERY: Final = 256
"""Acquires between two looks for dead entries, on average, and..."""
COLLECT_MOST: Final = 500
"""...how many are looked at."""
KEEP: Final = 60
"""Seconds for which the entry of a free resource is kept."""
COLLECT_WITHIN: Final = 0.5
REHEARSED_WITHIN: Final = 0.5
"""Seconds; what takes longer isn't worth the wait."""
IN_TRANSACTION: Final = 5.0
"""Seconds that an operation in the caller's transaction waits for a row which another one has locked."""
CALLED: Final = Capability.PUSH | Capability.WATCH


class PostgresStore:
    """Leases in one database."""

    guarantees = Guarantees(
        store="postgresql",
        clock="the server's wall clock (clock_timestamp)",
        drift=SLEWED_DRIFT,
        tokens="durable: increase for as long as the database keeps its data, and beyond that by its wall clock",
        failover="a grant may be lost when a standby takes over that had not received it; none is lost with synchronous_standby_names",
        waiting_order="strict",
        platforms="PostgreSQL 13 or newer, also behind PgBouncer (without calls: waiters come at the known times)",
        capabilities=(
            Capability.CROSS_PROCESS
            | Capability.CROSS_HOST
            | Capability.DURABLE
            | Capability.PUSH
            | Capability.WATCH
            | Capability.GRACE
            | Capability.PATTERNS
            | Capability.DELAY_SHOWN
        ),
        not_promised="exclusion over a failover to an asynchronous standby, a restored backup, or a step of the server's clock forward",
        min_ttl_ns=250 * MILLISECOND,  # a connection's first call is slow: the server compiles the functions for it
    )

    def __init__(self, url: StoreURL, clock: Clock) -> None:
        # These need psycopg, and what is declared above must be readable without it.
        from lessor.stores.postgresql.address import PostgresAddress  # noqa: PLC0415
        from lessor.stores.postgresql.connection import Connections  # noqa: PLC0415

        self._address = PostgresAddress(url)
        self.url = self._address.url()
        self._clock = clock
        self._connections = Connections(self._address)
        self._statements = Statements(self._address.schema)
        self._namespace = self._address.namespace.encode()
        self._gathering = Gathering("postgresql", self._apply_together, clock)
        self._checked = False
        self._rehearsed = False
        if str(self._address.listening) in _deaf:
            self._go_without_calls()

    def __repr__(self) -> str:
        return f"<PostgresStore {self.url}>"

    # --- the contract ---------------------------------------------------------------------------------------------

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Carry out the operations in one call, and once more those renewals that found their rows locked."""
        if not ops:
            return []
        give_up = self._clock.now() + int(timeout * SECOND)
        if self._connections.exhausted and type(ops[0]) is not Renew:
            outcomes = self._gathering.apply(ops, give_up)
            self._ask_alone(ops, outcomes, give_up)
        else:
            outcomes = self._apply(ops, timeout, urgent=type(ops[0]) is Renew)
        if type(ops[0]) is Renew:
            self._insist(ops, outcomes, give_up - int(timeout / 2 * SECOND))
        elif type(ops[0]) is Acquire and random.random() * COLLECT_EVERY < len(ops):
            self.collect(kept=KEEP, timeout=min(COLLECT_WITHIN, (give_up - self._clock.now()) / SECOND))
        return outcomes

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Return who holds what, all at one moment."""
        if not resources:
            return []
        limit = Limit(self._clock, timeout)
        found = self._read(self._statements.read, [json.dumps(list(resources)).encode()], limit)
        return [None if fields is None else _record(fields) for fields in found]

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Return all live leases under the prefix; some hundred at a time are of one moment."""
        limit = Limit(self._clock, timeout)
        records: list[Record] = []
        after: str | None = ""
        while after is not None:
            values = [prefix.encode(), after.encode(), str(PAGE).encode()]
            after, found = self._read(self._statements.scan, values, limit)
            records += [_record(fields) for fields in found if fields is not None]
        return iter(records)

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:
        """Return who waits for the resource."""
        return contenders(self._read(self._statements.contenders, [resource.encode()], Limit(self._clock, timeout)))

    def subscribe(self, prefix: str | None = None) -> PostgresSubscription | None:
        """Be told, over a connection of its own. None where a pooler lets nothing through."""
        from lessor.stores.postgresql.subscription import Deaf, PostgresSubscription  # noqa: PLC0415 - as above

        if str(self._address.listening) not in _deaf:
            with contextlib.suppress(Deaf):
                return PostgresSubscription(self._address.listening, self._clock, prefix, self._go_without_calls)
        self._go_without_calls()
        return None

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    # --- beyond it ------------------------------------------------------------------------------------------------

    def apply_in(self, connection: Any, ops: Sequence[Op], *, timeout: float = IN_TRANSACTION) -> list[Outcome]:
        """Carry out the operations in the caller's transaction, which is not committed here.

        What the database refuses comes out as the driver's own error: the transaction is the caller's, and so is the
        decision to repeat it.
        """
        from lessor.stores.postgresql.transaction import run_in  # noqa: PLC0415 - as above

        if not ops:
            return []
        self._check_schema(timeout)
        return codec.outcomes(ops, run_in(connection, self._call(ops, timeout)))

    async def apply_in_async(
        self,
        connection: Any,
        ops: Sequence[Op],
        *,
        timeout: float = IN_TRANSACTION,  # noqa: ASYNC109 - the server's, too
    ) -> list[Outcome]:
        """Do the same with an async connection or session."""
        import asyncio  # noqa: PLC0415 - there already

        from lessor.stores.postgresql.transaction import run_in_async  # noqa: PLC0415 - as above

        if not ops:
            return []
        if not self._checked:
            await asyncio.to_thread(self._check_schema, timeout)
        return codec.outcomes(ops, await run_in_async(connection, self._call(ops, timeout)))

    def migrate(self, *, timeout: float) -> str:
        """Bring the schema up to date, and return what was done."""
        from lessor.stores.postgresql.migration import migrate  # noqa: PLC0415 - as above

        done = migrate(self._address, Limit(self._clock, timeout))
        what = f"the schema {done.schema!r} at {self._address}"
        if done.found == done.now:
            return f"{what} has version {done.now} already: nothing to do"
        return f"{what} has version {done.now} now; before " + (
            f"it had {done.found}" if done.found else "there was none"
        )

    def migration(self) -> str:
        """Return the SQL that makes the schema."""
        from lessor.stores.postgresql.migration import printed  # noqa: PLC0415 - as above

        return printed(self._address.schema)

    def collect(self, *, kept: int = 0, timeout: float = 5.0) -> None:
        """Forget some of the entries that have been dead for so many seconds. Where that fails, somebody else does it."""
        values = [self._namespace, str(COLLECT_MOST).encode(), str(kept).encode()]
        with contextlib.suppress(LessorError, Refused):
            self._connections.ask(self._statements.collect, values, Limit(self._clock, max(timeout, 0.001)))

    # --- inside ---------------------------------------------------------------------------------------------------

    def _apply_together(self, ops: Sequence[Op], give_up: int) -> list[Outcome]:
        """Carry out what several threads ask that found no connection, over the next one that is free."""
        return self._apply(ops, max(give_up - self._clock.now(), 1) / SECOND, urgent=False)

    def _apply(self, ops: Sequence[Op], timeout: float, *, urgent: bool) -> list[Outcome]:
        statement, values = self._request(ops, timeout)
        limit = Limit(self._clock, timeout)
        try:
            answers = self._connections.ask(statement, values, limit, urgent=urgent)
        except Refused as refused:
            if refused.code == LOCKED:
                return [codec.locked(op) for op in ops]
            return [Unknown(explain(refused, self._address))] * len(ops)
        except LessorError as error:
            return [Unknown(error)] * len(ops)
        outcomes = codec.outcomes(ops, answers)
        if not self._rehearsed and type(outcomes[0]) is Held and getattr(ops[0], "queue", False):
            self._rehearse(limit)
        return outcomes

    def _rehearse(self, limit: Limit) -> None:
        """Let the connection get to know the functions, now that there is time: somebody begins to wait."""
        self._rehearsed = True
        with contextlib.suppress(LessorError, Refused, TimeoutError):
            within = Limit(self._clock, min(limit.left(), REHEARSED_WITHIN))
            self._connections.ask(self._statements.rehearse, [self._namespace], within)

    def _request(self, ops: Sequence[Op], timeout: float) -> tuple[Statement, list[bytes]]:
        """Return the call for these: a lone plain one has a shorter way."""
        op = ops[0]
        if len(ops) > 1:
            return self._statements.apply, [
                self._namespace,
                codec.batch(ops),
                _patience(min(timeout, SHORT_WAIT)),
            ]
        patience = _patience(timeout)
        if type(op) is Acquire and codec.is_plain(op):
            ttl = codec.microseconds(op.ttl_ns)
            return self._statements.acquire, [
                self._namespace, op.resource.encode(), op.lease_id.encode(), op.holder.encode(), b"%d" % ttl,
                b"t" if op.queue else b"f", op.notify.encode(), b"%d" % op.seen_token, op.metadata.encode(), patience,
            ]  # fmt: skip
        if type(op) is Release and not op.successor and not op.abandon:
            return self._statements.release, [self._namespace, op.resource.encode(), op.lease_id.encode(), patience]
        return self._statements.apply, [self._namespace, codec.batch(ops), patience]

    def _ask_alone(self, ops: Sequence[Op], outcomes: list[Outcome], give_up: int) -> None:
        """Ask again, apart from others, for what was locked: maybe not here, and together there is less time to wait."""
        locked = [at for at, o in enumerate(outcomes) if isinstance(o, Unknown) and isinstance(o.error, codec.Locked)]
        left = (give_up - self._clock.now()) / SECOND
        if locked and left > 0:
            again = self._apply([ops[at] for at in locked], left, urgent=False)
            for at, outcome in zip(locked, again, strict=True):
                outcomes[at] = outcome

    def _insist(self, ops: Sequence[Op], outcomes: list[Outcome], give_up: int) -> None:
        """Ask again, a few times, for the renewals without an answer, while there is plenty of time."""
        for pause in PAUSES:
            late = [at for at, o in enumerate(outcomes) if isinstance(o, Unknown) and type(ops[at]) is Renew]
            left = (give_up - self._clock.now()) / SECOND - pause
            if not late or left <= 0:
                return
            threading.Event().wait(pause)
            for at, outcome in zip(late, self._apply([ops[at] for at in late], left, urgent=True), strict=True):
                outcomes[at] = outcome

    def _call(self, ops: Sequence[Op], timeout: float) -> Call:
        from lessor.stores.postgresql.transaction import Call  # noqa: PLC0415 - as above

        patience = int(_patience(timeout))
        return Call(self._address.schema, self._address.namespace, codec.batch(ops).decode(), patience)

    def _check_schema(self, timeout: float) -> None:
        """See once, over a connection of ours, that the schema is there, and the namespace in it.

        If the caller's transaction were the first to make it, all others would have to wait for its end.
        """
        if not self._checked:
            (outcome,) = self.apply([Release("schema", "nobody")], timeout=timeout)
            if isinstance(outcome, Unknown):
                raise outcome.error
            self._checked = True

    def _go_without_calls(self) -> None:
        """Promise less: who isn't called may come too late for its turn, and the next one is served before it."""
        place = str(self._address.listening)
        if place not in _deaf:
            _deaf.add(place)
            logging.getLogger("lessor").warning(
                "LISTEN doesn't work through the pooler at %s: waiters come at the known times instead of being "
                "called (name a direct connection with listen=)",
                place,
            )
        can = self.guarantees.capabilities & ~CALLED
        self.guarantees = self.guarantees._replace(capabilities=can, waiting_order="best effort")

    def _read(self, statement: Statement, values: Sequence[bytes], limit: Limit) -> Any:
        try:
            return json.loads(self._connections.ask(statement, [self._namespace, *values], limit))
        except Refused as refused:
            raise explain(refused, self._address) from None


_deaf: set[str] = set()
"""Poolers through which nothing is heard: found out once, and said once."""


def _patience(seconds: float) -> bytes:
    """Return how long the server may wait for a lock, in milliseconds: a little less than we wait for the server."""
    return b"%d" % max(1, int(seconds * 900))


def _record(fields: list[Any]) -> Record:
    *plain, queue = fields
    return record(plain, queue)
