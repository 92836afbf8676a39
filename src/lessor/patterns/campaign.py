"""Leader election for threads. A thread can't be stopped from outside: the work has to look at ``term.check()``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from lessor.errors import LeaseLost, LessorError, StoreUnavailable
from lessor.patterns.election import BaseTerm, Leader, Leaders, Rest
from lessor.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self, TypeVar

    from lessor.core.timing import Duration
    from lessor.core.view import Record
    from lessor.runtime.watch import Watch

    Result = TypeVar("Result")

STEP: Final = 2.0
"""Seconds between two looks at whether a candidate is still one. A waiter shows up at the store as often anyway."""


class Place(Protocol):
    """What a campaign needs of a place in the queue."""

    def wait(self, timeout: Duration | None = None) -> Any:
        """Return the lease, or None when it isn't ours within that time."""
        ...

    def leave(self) -> None:
        """Give the place up, unless the lease is ours."""
        ...


class Looker(Protocol):
    """What an observer needs of a client."""

    def get(self, resource: str) -> Record | None:
        """Return who holds it."""
        ...

    def watch(self, prefix: str) -> Watch:
        """Return the stream of events."""
        ...


class Term(BaseTerm):
    """One time of leading, in a ``with``. Being lost ends the body by `LeaseLost` from ``check()``, and no more than that."""

    def resign(self) -> bool:
        """Stop leading. True if that ended the term, False if it was over already. Stop the work first."""
        return bool(self.lease.release())

    def hand_over(self, to: str, state: bytes = b"", within: Duration = 5.0) -> bool:
        """Stop leading, in favour of the candidate of that name; it finds the state as ``term.lease.inherited``.

        If it doesn't come within that time, the others' turn comes.
        """
        return bool(self.lease.hand_over(to, state, within))

    def __enter__(self) -> Self:
        self.lease._occupy()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            self.lease.__exit__(exc_type, exc, traceback)
        except LeaseLost as error:
            if not self._is_own(error):
                raise
        return self._is_own(exc)


class Campaign:
    """An endless stream of terms, for a ``for``: each waits until we lead. Leave the loop, or call ``stop()``, to end it."""

    def __init__(
        self, name: str, enqueue: Callable[[], Place], draw: Callable[[], float], ready: Callable[[], Any] | None = None
    ) -> None:
        self._name = name
        self._enqueue = enqueue
        self._ready = ready
        self._rest = Rest(draw)
        self._stopped = threading.Event()
        self._term: Term | None = None

    @property
    def is_leader(self) -> bool:
        """Whether we lead now, for certain; any thread may ask."""
        term = self._term
        return term is not None and term.is_leader

    def stop(self) -> None:
        """Let the loop end where it waits, within two seconds. A term that goes on is for its own work to end."""
        self._stopped.set()

    def __iter__(self) -> Iterator[Term]:
        return self

    def __next__(self) -> Term:
        """End the term before, rest if it was lost, get ready, and wait until we lead."""
        well = self._end_term()
        while not self._stopped.wait(self._rest.after(well=well)):
            prepared = self._ready() if self._ready else None
            try:
                lease = self._stand()
            except StoreUnavailable as error:
                log().warning("the election of %r goes on without us until the store answers: %s", self._name, error)
                well = False
                continue
            if lease is not None:
                self._term = Term(lease, prepared)
                return self._term
        raise StopIteration

    def _end_term(self) -> bool:
        """End a term that the loop didn't; return whether it went well."""
        term, self._term = self._term, None
        if term is None:
            return True
        well = term.went_well
        if term.is_leader:
            try:
                term.resign()
            except LessorError as error:
                log().warning("the term could not be given back, and ends by itself: %s", error)
        return well

    def _stand(self) -> Any:
        """Wait in the queue; None: we were stopped."""
        place = self._enqueue()
        try:
            while (lease := place.wait(STEP)) is None and not self._stopped.is_set():
                pass
            return lease
        finally:
            place.leave()


def lead(campaign: Campaign, work: Callable[[Term], Result]) -> Result:
    """Run the work in each term, until it has returned while leading, or after it resigned; return what it returned."""
    for term in campaign:
        with term:
            result = work(term)
            if term.went_well:
                return result
        log().info("no longer the leader of %r, and the work has stopped", term.resource)
    raise AssertionError("nobody stops this one")


class Observation:
    """A stream of leaders, for a ``for``: first who leads now, then each change; None for nobody. Close it when done."""

    def __init__(self, client: Looker, name: str) -> None:
        self._client = client
        self._name = name
        self._leaders = Leaders(name)
        self._watch = client.watch(name)
        self._begun = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Leader | None:
        """Wait for the next change."""
        if not self._begun:
            self._leaders.begin(Leader.of(self._client.get(self._name)))
            self._begun = True
            return self._leaders.leader
        while not self._leaders.changes(next(self._watch)):
            pass
        return self._leaders.leader

    def close(self) -> None:
        """End the stream."""
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
