"""What all operations of one store share: sessions, the ledger, the namespace's root, and who is to be called.

The root node says what all clients of a namespace must agree on: by how much tokens are above the zxid, and whether
somebody watches. Every transaction that grants or ends a lease checks its version, so none is made on old terms.
"""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kazoo.exceptions import (
    AuthFailedError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.ops import WAITER_LIFE_NS, Acquire, Event, Loss, Notice, Release, Summons, Unknown
from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.limit import Limit
from lessor.stores.locks import new_lock
from lessor.stores.zookeeper import bounds as limits
from lessor.stores.zookeeper import events, family
from lessor.stores.zookeeper.bells import Bells
from lessor.stores.zookeeper.layout import FOLDERS, Layout
from lessor.stores.zookeeper.ledger import Ledger
from lessor.stores.zookeeper.reaper import Reaper
from lessor.stores.zookeeper.session import Session
from lessor.stores.zookeeper.timetable import Timetable
from lessor.stores.zookeeper.trouble import explain
from lessor.stores.zookeeper.wire import ANY_VERSION, EPHEMERAL, CheckVersion, Create, GetData, Multi, SetData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from lessor.core.clock import Clock
    from lessor.core.ops import Op, Outcome
    from lessor.stores.zookeeper.address import ZooKeeperAddress
    from lessor.stores.zookeeper.bounds import Bounds
    from lessor.stores.zookeeper.wire import Failure

MAIN_TIMEOUT_MS: Final = WAITER_LIFE_NS // MILLISECOND
"""Of the session that has the waiters, and reads: they drop out so long after their client died."""
MAIN: Final = 0
"""The key of that session; the others go by their timeouts."""
SETTLE_TIMEOUT: Final = 1.0
PREPARE_NS: Final = 2 * SECOND
TIDY_NS: Final = 30 * SECOND
"""How often whoever writes events down looks whether somebody still watches."""
FAMILIES_NS: Final = 600 * SECOND
"""How often whoever has leases under others looks for what is left of families whose clients were killed."""
MOST_WANTED: Final = 1000
"""How many resources are remembered for not having been free."""
IDLE_NS: Final = 60 * SECOND
"""How long a session without leases is kept."""


class Root(NamedTuple):
    """What the root node says."""

    version: int
    offset: int = 0
    """Tokens are so much above the zxid. Only a namespace whose ensemble was set up anew has one."""
    watched: bool = False

    def dumps(self) -> bytes:
        """Return it as the node's data."""
        return json.dumps({"v": 1, "offset": self.offset, "watched": self.watched}).encode()

    @classmethod
    def loads(cls, data: bytes, version: int) -> Root:
        """Read what `dumps` wrote."""
        said = json.loads(data or b"{}")
        return cls(version, int(said.get("offset", 0)), bool(said.get("watched", False)))


class Desk:
    """One store's inside."""

    def __init__(self, address: ZooKeeperAddress, clock: Clock) -> None:
        self.address = address
        self.clock = clock
        self.layout = Layout(address.chroot, address.namespace)
        self.acl = address.acl
        self.ledger = Ledger()
        self.timetable = Timetable(clock)
        self.reaper = Reaper(self)
        self.bells = Bells(self)
        self.callers: dict[str, Callable[[object], None]] = {}
        """Subscriptions by their addresses: what to hand them."""
        self.patience: dict[str, tuple[str, int]] = {}
        """For free resources that have a queue: who is first there, and since when we know that."""
        self.wanted: dict[str, None] = {}
        """Resources that were not to be had at once, the last time."""
        self.doubts: dict[str, Acquire] = {}
        """Requests that may have got a lease which nobody has heard of."""
        self.root: Root | None = None
        self.bounds: Bounds | None = None
        with contextlib.suppress(StoreUnavailable):  # perhaps it can be reached later
            self.bounds = limits.probe(address, Limit(clock, limits.OPENING))
        self.closed = False
        self._sessions: dict[int, Session] = {}
        self._used_ns: dict[int, int] = {}
        """By their keys, until when somebody may be about to get a lease in them."""
        self._tidy_ns = self._families_ns = 0
        self._lock = new_lock()

    # --- sessions -------------------------------------------------------------------------------------------------

    def limits(self, give_up: int) -> Bounds:
        """Return what the servers allow."""
        if self.bounds is None:
            self.bounds = limits.probe(self.address, Limit(self.clock, self.left(give_up)))
        return self.bounds

    def main(self, give_up: int) -> Session:
        """Return the session for all but leases; wait for the connection until then."""
        return self._session(MAIN_TIMEOUT_MS, give_up, beats=False)

    def main_within(self, seconds: float) -> Session:
        """Return that session; wait for the connection for so long."""
        return self.main(self.clock.now() + int(seconds * SECOND))

    def session_for(self, ttl_ns: int, give_up: int) -> Session:
        """Return the session for leases that the servers are to keep for so long."""
        allowed = self.limits(give_up)
        timeout_ms = self._timeout_ms(ttl_ns, allowed)
        if timeout_ms > allowed.longest:
            raise ConfigError(
                f"the TTL is {ttl_ns / SECOND:g} s; ZooKeeper at {self.address} keeps sessions for up to "
                f"{allowed.longest / 1000:g} s (maxSessionTimeout), a tick of {allowed.tick / 1000:g} s included"
            )
        return self._session(timeout_ms, give_up, beats=True)

    @staticmethod
    def _timeout_ms(ttl_ns: int, allowed: Bounds) -> int:
        return -(-ttl_ns // MILLISECOND) + allowed.tick

    def beat(self, session: Session) -> Any:
        """Return the write that keeps a session; its answer has the transaction's zxid."""
        return SetData(self.layout.session(session.ready_id), b"", ANY_VERSION)

    def want(self, resource: str) -> None:
        """Remember that others want the resource, too."""
        if len(self.wanted) >= MOST_WANTED:
            self.wanted.clear()
        self.wanted[resource] = None

    def trusted_ns(self, session: Session) -> int:
        """Return for how long a write keeps a session, whatever becomes of the server that passed it on."""
        assert self.bounds is not None, "there is no session without them"
        return (session.negotiated_ms - self.bounds.tick) * MILLISECOND

    def _session(self, timeout_ms: int, give_up: int, *, beats: bool) -> Session:
        key = timeout_ms if beats else MAIN
        with self._lock:  # else it might be retired between being found and being used
            session = self._sessions.get(key)
            now = self.clock.now()
            if session is None:
                if self.closed:
                    raise StoreUnavailable("zookeeper", "the store is closed")
                session = self._sessions[key] = Session(self.address, self.clock, timeout_ms, self._changed)
                if beats:
                    self.timetable.at(now + IDLE_NS, lambda: self._retire(key))
            self._used_ns[key] = max(self._used_ns.get(key, 0), now, give_up)
        session.connect(give_up)
        if session.ready_id != session.id:
            self._prepare(session, give_up, beats=beats)
        return session

    def _prepare(self, session: Session, give_up: int, *, beats: bool) -> None:
        """See to it that the namespace is there, and the node by which this session is renewed."""
        deleted = False  # by somebody: the folder, or all of the namespace
        while session.ready_id != session.id:
            session_id = session.id
            start = self.clock.now()
            until = min(give_up, start + PREPARE_NS)
            try:
                if deleted:
                    self._make_all(session, until)
                self.read_root(session, until)  # whoever has put the servers' data back has changed it, too
                if beats:
                    path = self.layout.session(session_id)
                    with contextlib.suppress(NodeExistsError):
                        session.call(Create(path, b"", self.acl, EPHEMERAL)).get(timeout=self.left(until))
                session.ready_id = session_id
            except (KazooException, KazooTimeoutError) as error:
                now = self.clock.now()
                if isinstance(error, KazooTimeoutError):
                    session.unanswered(start, now)
                if isinstance(error, AuthFailedError | NoAuthError) or now >= give_up:
                    raise explain(error, self.address) from None
                deleted = isinstance(error, NoNodeError)
                session.connect(give_up)

    def _retire(self, key: int) -> None:
        """End a session that nobody uses."""
        with self._lock:
            session = self._sessions.get(key)
            if session is None or self.closed:
                return
            now = self.clock.now()
            if now - self._used_ns[key] < IDLE_NS or self.ledger.of_session(session.id):
                self.timetable.at(now + IDLE_NS, lambda: self._retire(key))
                return
            del self._sessions[key], self._used_ns[key]
        threading.Thread(target=self._close, args=(session,), daemon=True).start()

    def _close(self, session: Session) -> None:
        """End a session; one that has leases is left to the servers, which keep it for its time."""
        session.close(keep=lambda: bool(self.ledger.of_session(session.id)))

    def _changed(self, session: Session, state: str, session_id: int) -> None:
        """On kazoo's thread: a session was cut off, is back, or is over."""
        if state == KazooState.LOST:
            for holding in self.ledger.of_session(session_id):
                if holding.ended is None:
                    self.ledger.end(holding, Loss.EXPIRED)
                    self.call_holder(holding.notify, holding.resource, holding.lease_id)
                self.ledger.forget(holding)
        elif state == KazooState.SUSPENDED:
            for holding in self.ledger.of_session(session_id):
                if not holding.follows_parent:  # else its parent finds out
                    self.call_holder(holding.notify, holding.resource, holding.lease_id)
        if session is self._sessions.get(MAIN):
            self.bells.all_may_ring(lost=state == KazooState.LOST)
            for hand in list(self.callers.values()):
                hand(state)

    # --- the root -------------------------------------------------------------------------------------------------

    def read_root(self, session: Session, give_up: int) -> None:
        """Read what the root says; make it, and all folders, where it isn't there."""
        question = GetData(self.layout.root, None)
        try:
            answer = session.call(question).get(timeout=self.left(give_up))
        except NoNodeError:
            self._make_all(session, give_up)
            answer = session.call(question).get(timeout=self.left(give_up))
        self.learn_root(answer)

    def left(self, give_up: int) -> float:
        """Return the seconds that are left until then."""
        return max(0, give_up - self.clock.now()) / SECOND

    def _make_all(self, session: Session, give_up: int) -> None:
        """Make the root and all folders, as far as they are not there."""
        for made in self._make(session):
            with contextlib.suppress(NodeExistsError):
                made.get(timeout=self.left(give_up))

    def _make(self, session: Session) -> list[Any]:
        """Ask for that; returns the calls."""
        layout = self.layout
        above = layout.chroot.split("/")[1:]
        plan = [
            *(("/" + "/".join(above[: at + 1]), b"") for at in range(len(above))),
            (layout.root, Root(0, self.root.offset if self.root else 0).dumps()),  # tokens go on, where it was deleted
            *((f"{layout.root}/{folder}", b"") for folder in FOLDERS),
        ]
        return [session.call(Create(path, data, self.acl, 0)) for path, data in plan]

    def learn_root(self, answer: Any) -> None:
        """Take in what the root says, if it is there."""
        if isinstance(answer, Exception):
            raise answer
        data, stat = answer
        self.root = Root.loads(data, stat.version)

    def commit(
        self, session: Session, first: tuple[Any, ...], *changes: Any, root: Root | None = None
    ) -> Generator[list[Any], list[Any], tuple[list[Any], Failure | None]]:
        """Make all these changes or none, on today's terms; return the results and what stood in the way.

        An event among them is told to those who watch, if anybody does. The results begin with those of the first
        ones: at most one, that keeps the session. Where the terms were old, they are known now: try again.
        """
        # Looked at once: another thread may learn of new terms while what depends on them is put together.
        terms = root or self.root
        assert terms is not None
        operations: list[Any] = [CheckVersion(self.layout.root, terms.version)]
        for change in changes:
            operations += self._told(change, terms) if isinstance(change, Event) else (change,)
        transaction = Multi((*first, *operations))
        [results] = yield [session.call(transaction)]
        failure = transaction.failure(results)
        if failure is not None and first and failure.path == first[0].path:
            session.ready_id = 0  # if it goes on, somebody has deleted its node
            raise SessionExpiredError
        if failure is not None and failure.path == self.layout.root:
            [answer] = yield [session.call(GetData(failure.path, None))]
            if isinstance(answer, Exception):  # somebody has deleted the namespace
                *_, answer = yield [*self._make(session), session.call(GetData(failure.path, None))]
            self.learn_root(answer)
        return results, failure

    # --- telling --------------------------------------------------------------------------------------------------

    def _told(self, event: Event, root: Root) -> tuple[Any, ...]:
        """Return the operation that tells those who watch, if anybody does."""
        if not root.watched:
            return ()
        now = self.clock.now()
        if now >= self._tidy_ns:
            self._tidy_ns = now + TIDY_NS
            self.timetable.at(self._tidy_ns, lambda: self._tidy(events.tidy))
        return (events.creation(self, event, root.offset),)

    def tidy_families(self) -> None:
        """Look for what is left of families, unless that was done not long ago."""
        now = self.clock.now()
        if now >= self._families_ns:
            self._families_ns = now + FAMILIES_NS
            self._tidy(family.tidy)

    def _tidy(self, tidy: Callable[[Desk, Session], None]) -> None:
        """Delete what dead clients have left, such as events for those who watched, on a thread of its own."""

        def work() -> None:
            with contextlib.suppress(LessorError, KazooException, KazooTimeoutError):
                tidy(self, self.main_within(events.TIMEOUT))

        threading.Thread(target=work, daemon=True).start()

    def call_holder(self, address: str, resource: str, lease_id: str) -> None:
        """Tell one of ours that there is news about its lease."""
        hand = self.callers.get(address)
        if hand is not None:
            hand(Notice(address, Summons.REVOKED, resource, lease_id))

    def call_waiter(self, address: str, resource: str, lease_id: str) -> None:
        """Tell one of ours that it may be its turn."""
        hand = self.callers.get(address)
        if hand is not None:
            hand(Notice(address, Summons.RESERVED, resource, lease_id))

    # --- doubts ---------------------------------------------------------------------------------------------------

    def concerned(self, op: Op) -> list[Session]:
        """Return the sessions that an operation goes through."""
        holding = self.ledger.by_id.get(getattr(op, "lease_id", ""))
        if holding is not None:
            return [holding.session]
        keys = [MAIN]
        if isinstance(op, Acquire) and self.bounds is not None:
            keys.append(self._timeout_ms(op.ttl_ns + op.lock_delay_ns, self.bounds))
        return [self._sessions[key] for key in keys if key in self._sessions]

    @contextlib.contextmanager
    def in_doubt(self, ops: Sequence[Acquire]) -> Iterator[None]:
        """While they are asked for, and afterwards, until they are answered; but not if they are plainly refused."""
        fresh = [op.lease_id for op in ops if op.lease_id not in self.doubts]
        self.doubts.update((op.lease_id, op) for op in ops)
        try:
            yield
        except KazooException:
            for lease_id in fresh:
                self.doubts.pop(lease_id, None)
            raise

    def settle_later(self, op: Acquire, apply: Callable[..., list[Outcome]]) -> None:
        """Give back what a request may have got, once it would have run out: nobody else has heard of it."""

        def settle() -> None:
            undo = Release(op.resource, op.lease_id, abandon=True)
            if isinstance(apply([undo], timeout=SETTLE_TIMEOUT)[0], Unknown):
                self.settle_later(op, apply)

        def start() -> None:
            if op.lease_id in self.doubts and not self.closed:
                threading.Thread(target=settle, daemon=True).start()

        self.timetable.at(self.clock.now() + op.ttl_ns, start)

    # --- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of all sessions. What is still held is left to the servers, which keep it for its time."""
        with self._lock:
            self.closed = True
            sessions = list(self._sessions.values())
        self.timetable.close()
        for session in sessions:
            self._close(session)
        self._sessions.clear()

    def abandon(self) -> None:
        """In a forked child: let go of what is the parent's."""
        self.closed = True
        for session in self._sessions.values():
            session.abandon()
