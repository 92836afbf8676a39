"""All that runs for one client: its store, keeper, watchdog, waiters and batcher; what it holds; forks and the exit."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import queue
import weakref
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

from lessor.core.clock import SECOND
from lessor.core.holder import Over
from lessor.core.ops import Loss
from lessor.errors import Closed, LeaseLost
from lessor.runtime.batcher import Batcher
from lessor.runtime.holding import Holding
from lessor.runtime.host import HERE
from lessor.runtime.ids import Ids
from lessor.runtime.keeper import Keeper
from lessor.runtime.log import log
from lessor.runtime.waiters import Waiters
from lessor.stores.locks import new_lock
from lessor.stores.registry import open_store
from lessor.stores.scarcity import scarce

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from lessor.core.timing import Timing
    from lessor.runtime.host import Host
    from lessor.runtime.tenure import Tenure
    from lessor.runtime.watch import Watch
    from lessor.stores.base import Store

EXIT_BOUND = 1.0
"""Seconds that giving leases back may take when the client or the interpreter ends."""


CALLS: Final = 12
FIRST_PAUSE: Final = 1e-3
"""How often a forked child wakes a loop that goes on in it, and the first pause in seconds; each next one is twice as long."""


class Queued(Protocol):
    """A place in a queue, as far as the engine is concerned."""

    def leave(self) -> None:
        """Give it up."""
        ...


class Engine:
    """Makes leases live. Both faces stand on it."""

    def __init__(self, url: str | Store, *, holder: str | None, timeout: float, host: Host = HERE) -> None:
        self.url = url
        self.timeout = timeout
        self.patience_ns = int(timeout * SECOND)
        self.host = host
        self.clock = host.clock
        self.now = host.clock.now
        self._holder = holder
        self.generation = 0
        """How often the process has forked since: what belongs to another generation is not ours."""
        self._reopening = new_lock()
        self._open()
        _engines.add(self)

    def _open(self) -> None:
        if isinstance(self.url, str):
            with scarce(self.url.partition(":")[0]):
                self.store: Store = open_store(self.url, self.clock)
        else:
            self.store = self.url
        self.keeper = Keeper(self.store, self.host, self._orphaned)
        self.watchdog = self.keeper.watchdog
        self.waiters = Waiters(self.store, self.host, self._revoked)
        self.batcher = Batcher(self.store, self.host, self.timeout)
        self.callbacks = Callbacks()
        self.ids = Ids(self.host)
        self.held: dict[str, Holding] = {}
        """What is held, by lease id. Weakly: a lease lasts no longer than the program has it."""
        self.listened: set[Tenure] = set()
        """Leases with callbacks, which are kept for these: also where the program keeps no other reference."""
        self.waiting: set[object] = set()
        """Tasks that wait for the loss of a lease."""
        self.watches: set[Watch] = set()
        self.places: weakref.WeakValueDictionary[int, Queued] = weakref.WeakValueDictionary()
        """The places in queues that somebody has; one that nobody has any more runs out by itself."""
        self.seen_token = 0
        self.closed = self.forked = False
        self.holder = self._holder or f"{os.uname().nodename}:{os.getpid()}"

    # --- leases ---------------------------------------------------------------------------------------------------

    def prepare(self, timing: Timing) -> None:
        """Have all that runs which a lease on these terms needs, before it is asked for: it must not be missing later."""
        if not self.keeper.is_ready_for(timing):
            with scarce(self.store.guarantees.store):
                self.keeper.prepare(timing)

    def need(self, module: str) -> None:
        """Import what most programs don't use, while that is no more than an error."""
        with scarce(self.store.guarantees.store):
            import_module(module)

    def listen(self) -> None:
        """Have the store reach this client, which may take as long as to connect does."""
        with scarce(self.store.guarantees.store):
            self.waiters.start()

    def hold(self, tenure: Tenure) -> None:
        """Take the lease on: from here on it is renewed and watched."""
        if tenure.token > self.seen_token:  # noqa: PLR1730 - a third of the cost of max(), at each acquisition
            self.seen_token = tenure.token
        self.held[tenure._op.lease_id] = tenure._holding = Holding.of(tenure)
        if tenure._generation != self.generation:  # after it can be found there, should the process fork from here on
            raise _disown(tenure)
        if not tenure._carried:
            self.keeper.add(tenure)
        if tenure._parent is not None:
            tenure._parent._adopt(tenure)
        if self.closed:
            self.abandon(tenure, Loss.CLOSED)

    def forget(self, tenure: Tenure) -> None:
        """Let go of a lease that is over."""
        self.held.pop(tenure._op.lease_id, None)
        self.listened.discard(tenure)
        self.keeper.drop(tenure)

    def leases(self) -> list[Tenure]:
        """Return what is held, as far as the program has it."""
        return [tenure for holding in list(self.held.values()) if (tenure := holding()) is not None]

    def abandon(self, tenure: Tenure, reason: Loss) -> None:
        """Stop believing in the lease now, and give it back in the background."""
        tenure._advance(Over(reason), self.clock.now())
        self.forget(tenure)
        self.keeper.dispose(tenure._release, tenure.timing.ttl_ns)

    def held_by(self, owner: object, resource: str, token: int) -> Tenure | None:
        """Return the lease on this resource with this token if this thread or task itself holds it, and for ever if left alone."""
        for tenure in self.leases():
            if tenure.token == token and tenure.resource == resource and tenure._owner == owner and tenure._unending:
                return tenure
        return None

    def require_open(self) -> None:
        """Refuse to work once closed; in a forked child, open the store anew first."""
        if self.closed:
            raise Closed("this client is closed")
        if self.forked:
            with self._reopening:
                if self.forked:
                    self._open()

    def _revoked(self, lease_id: str) -> None:
        tenure = self.lease(lease_id)
        if tenure is not None:
            self.keeper.renew_soon(tenure)

    def lease(self, lease_id: str) -> Tenure | None:
        """Return the lease of this id, if it is held and the program has it."""
        holding = self.held.get(lease_id)
        return None if holding is None else holding()

    def _orphaned(self, holding: Holding) -> None:
        """Give a lease back that nothing in the program refers to: nothing could release it any more."""
        if self.held.pop(holding.op.lease_id, None) is None:
            return
        if not holding.entered:
            log().warning(
                "the lease on %r (token %d) is given back: the program keeps no reference to it. Use it in a 'with', "
                "or keep the object that acquire() returned for as long as the lease is to be held",
                holding.op.resource,
                holding.token,
            )
        self.keeper.dispose(holding.release, holding.ttl_ns)
        for below in list(self.held.values()):  # what was carried along by it ends with it
            if below() is None and below.op.ttl_ns == 0:
                self.held.pop(below.op.lease_id, None)

    # --- ends -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back all that is held, within a short bound, and end the threads."""
        if self.closed:
            return
        self.closed = True
        if self.forked:
            return  # nothing of it was ever opened here
        interrupted: BaseException | None = None
        for end in (
            self._give_back_all,
            self._close_watches,
            self.keeper.close,
            self.batcher.close,
            self.watchdog.close,
            self.waiters.close,
            self.callbacks.close,
            self.store.close,
        ):
            try:
                end()
            except Exception:  # noqa: BLE001 - the rest has to end all the same
                log().exception("while the client was closed")
            except BaseException as error:  # noqa: BLE001 - as above; an interrupt, for whoever closes
                interrupted = error
        _engines.discard(self)
        if interrupted is not None:
            raise interrupted

    def _give_back_all(self) -> None:
        give_up = self.clock.now() + int(EXIT_BOUND * SECOND)
        try:
            self.waiters.dismiss()
            for reference in self.places.valuerefs():
                if (place := reference()) is not None:
                    place.leave()
            self.waiters.see_off(EXIT_BOUND / 2)
        finally:
            self._release_all(give_up)

    def _release_all(self, give_up: int) -> None:
        tenures = self.leases()
        orphans = [holding for holding in list(self.held.values()) if holding() is None]
        # Those that stand under others end with them; under counted work that is in flight, with their TTL.
        releases = [
            t._release for t in tenures if (t._parent is None or t._parent.id not in self.held) and not t._is_at_work()
        ] + [holding.release for holding in orphans]
        for holding in orphans:
            self.held.pop(holding.op.lease_id, None)
        for tenure in reversed(tenures):
            tenure._advance(Over(Loss.CLOSED), self.clock.now())
        most = self.store.guarantees.max_batch
        for start in range(0, len(releases), most):
            left = (give_up - self.clock.now()) / SECOND
            if left <= 0:
                break
            self.store.apply(releases[start : start + most], timeout=left)
        unanswered = self.keeper.drain(max(0.0, (give_up - self.clock.now()) / SECOND))
        if unanswered:
            # No warning: the calls themselves have raised, and where the store was never reached nothing can follow.
            log().info(
                "the client was closed while %s had not answered %d requests; a late grant for them lasts one TTL",
                self.store.guarantees.store,
                unanswered,
            )

    def _close_watches(self) -> None:
        for watch in list(self.watches):
            watch.close()

    def after_fork(self) -> None:
        """In the child: own nothing, and start afresh at the first use. The parent's leases go on."""
        tenures, watches = self.leases(), list(self.watches)
        self.generation += 1
        self.held = {}
        self.listened = set()
        self.waiting = set()
        self.watches = set()
        self.forked = not self.closed
        if not isinstance(self.url, str):
            self.closed = True  # somebody else's connections: there is no telling how to make them anew
        for tenure in tenures:
            tenure._fork()
        for watch in watches:
            watch.abandon()
        _insist(self.waiters.abandon() + self.batcher.abandon())
        # The parent's sockets and locks are not to be touched here, not even by being tidied up.
        _inherited.append((self.store, self.keeper, self.watchdog, self.waiters, self.batcher, self.callbacks, watches))


def forked_error(resource: str, token: int = 0) -> LeaseLost:
    """Return the error for what another process has begun: this one is a fork of it, and its leases aren't ours."""
    return LeaseLost(resource, token=token, reason=str(Loss.FORKED))


def _disown(tenure: Tenure) -> LeaseLost:
    """End our belief in a lease of the process that this one was forked from."""
    tenure._fork()
    return forked_error(tenure.resource, tenure.token)


class Callbacks:
    """Runs users' callbacks, in order, on a thread that nothing else waits for."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = new_lock()
        self._thread: threading.Thread | None = None

    def run(self, callback: Callable[[], object]) -> None:
        """Run it soon."""
        self._queue.put(callback)
        self.start()

    def start(self) -> None:
        """Have the thread run, so that nothing can fail later for want of it."""
        with self._lock:
            if self._thread is None:
                self._thread = HERE.start(self._run, "lessor-callbacks")

    def close(self) -> None:
        """End the thread once all has run."""
        self._queue.put(None)

    def _run(self) -> None:
        while (callback := self._queue.get()) is not None:
            try:
                callback()
            except BaseException:  # noqa: BLE001 - users' code, which may even try to exit
                log().exception("a callback raised")


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


_inherited: list[object] = []


def _insist(calls: list[Callable[[], object]]) -> None:
    """In a forked child: wake event loops that go on in it, again and again for some seconds.

    Parent and child share what wakes a loop, so that the parent's may take the call away.
    """
    for call in calls:
        call()
    if calls:
        with contextlib.suppress(RuntimeError):  # there is no thread to be had
            _thread.start_new_thread(_call_again, (calls,))


def _call_again(calls: list[Callable[[], object]]) -> None:
    for n in range(CALLS):
        HERE.sleep(FIRST_PAUSE * 2**n)
        for call in calls:
            call()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.after_fork()


def _at_exit() -> None:
    for engine in list(_engines):
        with contextlib.suppress(Exception):
            engine.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
