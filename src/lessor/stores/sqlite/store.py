"""``sqlite:///relative.db`` or ``sqlite:////absolute.db``: leases for all processes of one host.

It does not reach beyond the host, and deleting the file or its log while it is in use lets two holders overlap until the
older one's deadline at most. Every operation is one write transaction, so whatever order SQLite gives the transactions is the order
of the leases.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lessor.core import rules
from lessor.core.clock import SECOND
from lessor.core.lease import TOKEN_LIMIT
from lessor.core.ops import Acquire, Granted, Release, Released, Summons, Unknown
from lessor.core.timing import UNSLEWED_DRIFT
from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.base import Capability, Guarantees
from lessor.stores.scarcity import shortage
from lessor.stores.sqlite import companions, file, forks
from lessor.stores.sqlite.companions import LogReplaced
from lessor.stores.sqlite.subscription import SqliteSubscription
from lessor.stores.sqlite.table import SqliteTable, apply_all, highest_token
from lessor.stores.sqlite.turn import Turn
from lessor.stores.sqlite.wake import Post

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lessor.core.clock import Clock
    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Notice, Op, Outcome
    from lessor.stores.base import StoreURL
    from lessor.stores.sqlite.companions import Identity

T = TypeVar("T")

TOKEN_BLOCK = 60_000_000
"""How many tokens are reserved ahead: as they follow the wall clock in microseconds, a minute's."""
OPEN_TIMEOUT = 5.0
CLOSE_TIMEOUT = 1.0
FORK_TIMEOUT = 10.0
"""Seconds that a fork waits for a call that is under way."""
COLLECT_EVERY = 256
COLLECT_ROWS = 512
QUICK_ACQUIRE = file.sql("acquire.sql")
QUICK_RELEASE = file.sql("release.sql")
PLAIN_FROM = Acquire._fields.index("parent")
PLAIN = Acquire("", "", "", 0)[PLAIN_FROM:]
"""What an acquire has there that has no parent, no grace and the like."""
CHECK_EVERY_NS = SECOND // 1000
"""How often a loop of quick operations looks whether the file is still the same; all others look each time."""
FIRST_PAUSE = 50e-6
LONGEST_PAUSE = 2e-3


REPLACED = "its write-ahead log was deleted or replaced while in use"


class OtherBoot(Exception):  # noqa: N818 - no error: it leads to what has to be done first
    """The times in the file are of another boot."""


class SqliteStore:
    """Leases in one file."""

    guarantees = Guarantees(
        store="sqlite",
        clock="the host's CLOCK_BOOTTIME, time namespaces and reboots considered",
        drift=UNSLEWED_DRIFT,
        tokens="survive kill -9, power loss and reboots; a deleted file is covered by the wall clock",
        failover="none: one host",
        waiting_order="strict",
        platforms="Linux, local file systems",
        capabilities=Capability.CROSS_PROCESS
        | Capability.DURABLE
        | Capability.PUSH
        | Capability.WATCH
        | Capability.GRACE
        | Capability.PATTERNS
        | Capability.DELAY_SHOWN,
        not_promised="exclusion across hosts, or after the file or its log was deleted or replaced while in use",
    )

    def __init__(self, url: StoreURL, clock: Clock) -> None:
        url.only("namespace")
        if url.netloc or len(url.path) < 2:
            raise ConfigError("a SQLite URL is sqlite:///relative.db or, with four slashes, sqlite:////absolute.db")
        path = url.path[1:]
        if path.startswith("//"):
            path = "/" + path.lstrip("/")
        if "\0" in path:
            raise ConfigError("a path can't have a zero byte")
        self._named = os.path.abspath(path)
        self._path = os.path.realpath(path)  # the log and its index are beside the file itself, not beside a link to it
        file.check_folder(self._path)
        file.check_file_system(self._path)
        self.url = f"sqlite:///{url.quote(self._named)}?namespace={url.namespace}"
        self._namespace = url.namespace
        self._clock = clock
        self._boot_id = clock.host_epoch()
        clock.host_ns()  # what it needs to be read is there from now on
        self._turn = Turn(clock)
        self._idle: list[SqliteTable] = []
        self._connections: weakref.WeakSet[file.Connection] = weakref.WeakSet()
        self._post = Post(self._path + "-wake")
        self._applied = 0
        self._collected_to = ""
        self._checked_ns = 0
        self._quick: dict[type, Callable[..., Outcome | None]] = {
            Acquire: self._quick_acquire,
            Release: self._quick_release,
        }
        self._closed = False
        self._process = os.getpid()
        self._resume: Callable[[], object] | None = None
        """What ends the pause for a fork."""
        self._identity: Identity = None
        forks.add(self)
        self._turn.take(OPEN_TIMEOUT)  # a fork waits until it is open
        try:
            self._idle.append(self._retrying(self._open, self.give_up(OPEN_TIMEOUT), LogReplaced))
            self._identity = companions.identity(self._path)
        finally:
            self._turn.give()
        if self._identity is None:
            raise StoreUnavailable("sqlite", f"{self._path} was deleted while it was opened")

    # --- the contract ---------------------------------------------------------------------------------------------

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Carry out the operations in one transaction."""
        if len(ops) == 1:
            outcome = self._quickly(ops[0])
            if outcome is not None:
                return [outcome]
        give_up = self.give_up(timeout)
        try:
            outcomes, notices, watchers = self._write(partial(apply_all, ops=ops), give_up)
        except LessorError as error:
            return [Unknown(error)] * len(ops)
        if notices or watchers:
            self._deliver(notices, watchers, give_up)
        return outcomes

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Return who holds what, all at one moment."""
        return self._read(
            lambda table, now: [rules.record(table, table.load(name), now) for name in resources],
            self.give_up(timeout),
        )

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Return all live leases under the prefix, as they were at one moment."""
        found = self._read(
            lambda table, now: [rules.record(table, e, now) for e in table.scan(prefix)], self.give_up(timeout)
        )
        return iter([record for record in found if record is not None])

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:
        """Return who waits for the resource."""
        return self._read(lambda table, now: table.load(resource).contenders(now), self.give_up(timeout))

    def subscribe(self, prefix: str | None = None) -> SqliteSubscription:
        """Be told, through a mailbox beside the file."""
        try:
            mailbox = self._post.mailbox()
        except OSError as error:
            if shortage(error) is not None:
                raise  # it passes, and with the next one that asks there will be one
            raise StoreUnavailable("sqlite", f"no mailbox can be made beside {self._path}: {error.strerror}") from error
        return SqliteSubscription(self, mailbox, prefix)

    def collect(self) -> None:
        """Forget all free resources now."""
        self._write(lambda table, now: table.collect("", 2**31, now, kept_ns=0), self.give_up(OPEN_TIMEOUT))

    def close(self) -> None:
        """Close the connections; one that is in use is closed by whoever uses it."""
        in_turn = self._turn.take(CLOSE_TIMEOUT)
        self._closed = True
        self.disconnect(self._path)
        self._post.close()
        forks.discard(self)
        if in_turn:
            self._turn.give()

    def pause(self) -> bool:
        """Have no connection open until ``resume``: the process is about to fork."""
        self._resume = self._turn.halt(FORK_TIMEOUT)
        if self._resume is None:
            return False
        self._close_all()
        return True

    def step_back(self) -> None:
        """Close the connection of this very thread, in the midst of whose call a signal handler forks.

        The call goes on with a new one. Meanwhile no other thread waits for its transaction.
        """
        if self._turn.is_own:
            self._close_all()

    def _close_all(self) -> None:
        self._idle.clear()
        for db in list(self._connections):
            db.retired = True
            file.rollback(
                db
            )  # to close it is not enough while a cursor of its user has a statement: it is closed with that
            self._let_go(db)

    def disconnect(self, path: str) -> None:
        """Close the idle connections, if they are to this file."""
        with contextlib.suppress(IndexError):
            while path == self._path:
                self._let_go(self._idle.pop().db)

    def resume(self) -> None:
        """Go on, with new connections."""
        self._process = os.getpid()
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    # --- the undisputed case --------------------------------------------------------------------------------------

    def _quickly(self, op: Op) -> Outcome | None:
        """Decide a lone operation that nobody disputes in a single statement. None: not so simple, or not so lone.

        The clock is read before SQLite's lock is held, so the lease ends a little sooner than it might; the holder,
        whose own count began before that, stops sooner still.
        """
        quick = self._quick.get(type(op))
        if quick is None or self._applied >= COLLECT_EVERY or not self._turn.take_now():
            return None
        table = None
        try:
            table = self._take(0)
            now = self._clock.host_ns()
            if now - self._checked_ns > CHECK_EVERY_NS:
                self._check_same_files(table)
                self._checked_ns = now
            self._applied += 1
            return quick(table.db, op, now)
        except (sqlite3.Error, LessorError, LogReplaced):
            return None  # whatever it is, it will come up again, and be waited out or explained
        finally:
            if table is not None and not table.db.retired:
                self._idle.append(table)
            self._turn.give()

    def _quick_acquire(self, db: sqlite3.Connection, op: Acquire, now: int) -> Granted | None:
        if op[PLAIN_FROM:] != PLAIN:
            return None
        wall = self._clock.wall_us()
        token = max(wall, op.seen_token + 1)
        row = (
            self._namespace, op.resource, op.lease_id, op.holder, op.ttl_ns, now, wall, op.metadata, op.notify, token,
            self._boot_id,
        )  # fmt: skip
        done = token < TOKEN_LIMIT and db.execute(QUICK_ACQUIRE, row).rowcount == 1
        return Granted(token, op.ttl_ns) if done else None

    def _quick_release(self, db: sqlite3.Connection, op: Release, now: int) -> Released | None:
        row = (self._namespace, op.resource, op.lease_id, now, self._boot_id)
        done = op.successor is None and not op.abandon and db.execute(QUICK_RELEASE, row).rowcount == 1
        return Released() if done else None

    # --- transactions ---------------------------------------------------------------------------------------------

    def give_up(self, timeout: float) -> int:
        """Return when a call is to end that begins now: one deadline for all of its steps."""
        return self._clock.now() + int(timeout * SECOND)

    def _write(self, work: Callable[[SqliteTable, int], T], give_up: int) -> tuple[T, list[Notice], list[str]]:
        """Run the work in one write transaction; return its result, whom to call and who watches."""
        begun_in = self._process
        self._wait_for_turn(give_up)
        try:
            while True:
                table = self._take(give_up)
                try:
                    return self._transact(table, work, give_up)
                except (sqlite3.Error, LogReplaced) as error:
                    if table.db.retired:  # a signal handler has forked, and closed it before: with a new one, then
                        self._require_same(begun_in)
                    elif companions.of(self._path) != table.db.companions:
                        self._retire(table, give_up)
                    elif isinstance(error, sqlite3.Error):
                        raise file.explain(error, self._path) from error
                    if self._clock.now() >= give_up:
                        raise StoreUnavailable("sqlite", f"{self._path}: {REPLACED}") from error
                finally:
                    self._give(table)
        finally:
            self._turn.give()

    def _transact(
        self, table: SqliteTable, work: Callable[[SqliteTable, int], T], give_up: int
    ) -> tuple[T, list[Notice], list[str]]:
        while True:
            self._begin(table, give_up)
            now = self._clock.host_ns()  # with the lock held: what was decided before us is not after us
            if not table.begin(self._boot_id, now, self._clock.wall_us()):
                table.db.execute("COMMIT")
                continue
            result = work(table, now)
            highest = highest_token(result)
            if highest > table.reserved:
                file.rollback(table.db)
                self._reserve(table, highest, give_up)
                continue
            watchers = table.log_events(now) if table.events else []
            self._maybe_collect(table, now)
            table.db.execute("COMMIT")
            return result, table.notices, watchers

    def _read(self, work: Callable[[SqliteTable, int], T], give_up: int) -> T:
        """Run the work on a snapshot."""
        begun_in = self._process
        looks = 0
        while looks < 2:
            self._wait_for_turn(give_up)
            try:
                table = self._take(give_up)
                try:
                    return self._retrying(partial(self._snapshot, table, work), give_up)
                except (OtherBoot, LogReplaced):
                    pass
                except StoreUnavailable:
                    if not table.db.retired or self._clock.now() >= give_up:
                        raise
                    self._require_same(begun_in)  # as in a write
                    continue
                finally:
                    self._give(table)
            finally:
                self._turn.give()
            looks += 1
            self._write(lambda _table, _now: None, give_up)  # carries the file over into this boot, and to its new log
        raise StoreUnavailable(
            "sqlite", f"{self._path}: the boot ID or the write-ahead log changed twice during a read"
        )

    def _require_same(self, process: int) -> None:
        """Refuse to go on with a call of the process that this one was forked from."""
        if process != self._process:
            raise StoreUnavailable("sqlite", "the process was forked meanwhile")

    def _snapshot(self, table: SqliteTable, work: Callable[[SqliteTable, int], T]) -> T:
        self._check_same_files(table)
        file.rollback(table.db)
        table.db.execute("BEGIN")
        if table.db.execute("SELECT boot_id FROM meta").fetchone()[0] != self._boot_id:
            raise OtherBoot
        return work(table, self._clock.host_ns())

    def _begin(self, table: SqliteTable, give_up: int) -> None:
        """Get SQLite's write lock, waiting in short random pauses for other processes."""
        pause = FIRST_PAUSE
        while True:
            try:
                table.db.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError as error:
                if not file.is_busy(error):
                    raise
                if self._clock.now() >= give_up:
                    raise StoreUnavailable("sqlite", f"{self._path} stayed locked by other processes") from error
            time.sleep(pause * random.random())
            pause = min(2 * pause, LONGEST_PAUSE)
        self._check_same_files(table)

    def _reserve(self, table: SqliteTable, token: int, give_up: int) -> None:
        """Put on disk, before any such token is granted, that tokens up to beyond this one may have been."""
        db = table.db
        db.execute("PRAGMA synchronous = FULL")
        try:
            self._begin(table, give_up)
            db.execute("UPDATE meta SET reserved = max(reserved, ?)", (token + TOKEN_BLOCK,))
            db.execute("COMMIT")
        finally:
            file.rollback(db)
            db.execute("PRAGMA synchronous = NORMAL")

    def _maybe_collect(self, table: SqliteTable, now: int) -> None:
        self._applied += 1
        if self._applied >= COLLECT_EVERY:
            self._applied = 0
            self._collected_to = table.collect(self._collected_to, COLLECT_ROWS, now)

    def _wait_for_turn(self, give_up: int) -> None:
        """Take turns within the process: SQLite's own lock is only for the other processes."""
        left = max(0, give_up - self._clock.now()) / SECOND
        if not self._turn.take(left):
            raise StoreUnavailable("sqlite", f"{self._path} is busy for {left:.3g} s")

    # --- connections ----------------------------------------------------------------------------------------------

    def _take(self, give_up: int) -> SqliteTable:
        if self._closed:
            raise StoreUnavailable("sqlite", f"{self._path} is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self._retrying(self._open, give_up, LogReplaced)

    def _give(self, table: SqliteTable) -> None:
        """Put a connection back, with no transaction open; one that can't be brought to that is not used again."""
        if table.db.retired:
            return
        if file.rollback(table.db) and not self._closed:
            self._idle.append(table)
        else:
            self._let_go(table.db)

    def _let_go(self, db: file.Connection) -> None:
        if companions.of(self._path) == db.companions:
            db.close()
        else:
            companions.discard(db)
        self._connections.discard(db)  # not before it is closed: there may be a fork in between

    def _retire(self, table: SqliteTable, give_up: int) -> None:
        """Have no connection open in this process whose log was deleted, so that the next one opens all files anew.

        SQLite has one index open for all connections of a process: those of other stores are closed too. One that is in
        use finds out by itself.
        """
        table.db.retired = True
        companions.retire(self._path, table.db, table.db.companions, max(0, give_up - self._clock.now()) / 2 / SECOND)
        for store in forks.stores():
            store.disconnect(self._path)

    def _open(self) -> SqliteTable:
        db = file.connect(self._path, self._connections, create=self._identity is None)
        try:
            file.prepare(db, self._path, self._clock)
            db.companions = companions.opened(self._path)
            return SqliteTable(db, self._namespace)
        except BaseException as error:
            companions.discard(db)
            if db.retired and isinstance(error, sqlite3.Error):
                raise LogReplaced from error  # closed before a fork, by a signal handler: open another one
            raise

    def _retrying(self, work: Callable[[], T], give_up: int, *again: type[Exception]) -> T:
        """Do it, again while the file is locked, and explain what else goes wrong."""
        pause = FIRST_PAUSE
        while True:
            try:
                return work()
            except sqlite3.Error as error:
                passes = file.is_busy(error) or companions.is_barred(self._path) or file.is_passing(error, self._path)
                passes = passes or (file.is_unreadable(error) and companions.retire_orphan(self._path))
                if not passes or self._clock.now() >= give_up:
                    raise file.explain(error, self._path) from error
            except OSError as error:
                raise StoreUnavailable("sqlite", f"{self._path}: {shortage(error) or error}") from error
            except again as error:
                if self._clock.now() >= give_up:
                    raise StoreUnavailable("sqlite", f"{self._path}: {REPLACED}") from error
            time.sleep(pause * random.random())
            pause = min(2 * pause, LONGEST_PAUSE)

    def _check_same_files(self, table: SqliteTable) -> None:
        found = companions.identity(self._named)
        if found != self._identity:
            what = "deleted" if found is None else "replaced by another file"
            raise StoreUnavailable("sqlite", f"{self._named} was {what} while in use: reopen the store")
        if companions.of(self._path) != table.db.companions:
            raise LogReplaced

    # --- notices --------------------------------------------------------------------------------------------------

    def _deliver(self, notices: list[Notice], watchers: list[str], give_up: int) -> None:
        """Call whoever's turn it is. A waiter that isn't there any more leaves the queue, and the next one is called."""
        for address in watchers:
            self._post.send(address, b"")
        while notices:
            leaving = [
                Release(n.resource, n.lease_id) for n in self._post.call(notices) if n.summons is Summons.RESERVED
            ]
            try:
                _, notices, _ = self._write(partial(apply_all, ops=leaving), give_up) if leaving else ([], [], [])
            except LessorError:
                return  # they drop out by themselves
