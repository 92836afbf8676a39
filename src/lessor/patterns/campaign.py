"""Leader election for threads. A thread can't be stopped from outside: the work has to look at ``term.check()``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from lessor.errors import Cancelled, LeaseLost, LessorError, StoreUnavailable
from lessor.patterns.election import BaseCampaign, BaseTerm, Leader, Leaders
from lessor.runtime.blocks import Exit, Leaving, block_of
from lessor.runtime.cancellation import sleep
from lessor.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self, TypeVar

    from lessor.core.timing import Duration
    from lessor.core.view import Record
    from lessor.patterns.drain import Heir, State
    from lessor.runtime.cancellation import Cancellation
    from lessor.runtime.watch import Watch

    Result = TypeVar("Result")


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

    _new_event = threading.Event

    def resign(self) -> bool:
        """Stop leading. True if that ended the term, False if it was over already. Stop the work first."""
        return bool(self.lease.release())

    def hand_over(self, to: str, state: bytes = b"", within: Duration = 5.0) -> bool:
        """Stop leading, in favour of the candidate of that name; it finds the state as ``term.lease.inherited``.

        If it doesn't come within that time, the others' turn comes.
        """
        return bool(self.lease.hand_over(to, state, within))

    def drain(
        self, timeout: Duration | None = None, to: Heir = None, state: State = b"", within: Duration = 5.0
    ) -> bool:
        """Drain the lease of this term, as ``lease.drain()`` does. True if that ended the term. It is the campaign's last.

        The end of the term's ``with`` waits for a drain that is under way.
        """
        self._announce_drain()
        over = self._drain
        try:
            return bool(self.lease.drain(timeout, to, state, within))
        except LeaseLost:
            return False
        finally:
            over.set()

    def __enter__(self) -> Self:
        self.lease._occupy(block_of(self))
        return self

    if TYPE_CHECKING:

        def __exit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
        ) -> bool: ...
    else:
        __exit__ = Leaving(Exit)

    def _exit(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            try:
                if self._drain is not None:
                    self._drain.wait()  # it releases the lease, or hands it over: a plain release would forestall that
            finally:
                self.lease._exit(exc_type, exc, traceback)
        except LeaseLost as error:
            if not self._is_own(error):
                raise
        return self._is_own(exc)


class Campaign(BaseCampaign[Term]):
    """A stream of terms, for a ``for``: each waits until we lead. Leave the loop, or call ``stop()``, to end it."""

    def __init__(
        self,
        name: str,
        stand: Callable[[Cancellation], Any],
        draw: Callable[[], float],
        ready: Callable[[], Any] | None = None,
        cancel: Cancellation | None = None,
    ) -> None:
        super().__init__(name, draw, ready, cancel)
        self._stand = stand  # waits for the lease

    def drain(
        self, timeout: Duration | None = None, to: Heir = None, state: State = b"", within: Duration = 5.0
    ) -> bool:
        """Stop the campaign, and drain its term, if there is one, as ``lease.drain()`` does. True if that ended a term."""
        term = self._announce_drain()
        return term is not None and term.drain(timeout, to, state, within)

    def __iter__(self) -> Iterator[Term]:
        return self

    def __next__(self) -> Term:
        """End the term before, rest if it was lost, get ready, and wait until we lead."""
        well = self._end_term()
        try:
            while True:
                sleep(self._rest.after(well=well), self._cancels)
                prepared = self._ready() if self._ready else None
                try:
                    lease = self._stand(self._stop)
                except StoreUnavailable as error:
                    log().warning(
                        "the election of %r goes on without us until the store answers: %s", self._name, error
                    )
                    well = False
                    continue
                term = Term(lease, prepared)
                if self._begin(term):
                    return term
        except Cancelled:
            if not self.stopped:
                raise
        raise StopIteration

    def _end_term(self) -> bool:
        """End a term that the loop didn't; return whether it went well."""
        term = self._take_term()
        if term is None:
            return True
        well = term.went_well
        if term.is_leader:
            try:
                term.resign()
            except LessorError as error:
                log().warning("the term could not be given back, and ends by itself: %s", error)
        return well


def lead(campaign: Campaign, work: Callable[[Term], Result]) -> Result:
    """Run the work in each term, until it has returned while leading, or after it resigned; return what it returned."""
    for term in campaign:
        with term:
            result = work(term)
            if term.went_well:
                return result
        log().info("no longer the leader of %r, and the work has stopped", term.resource)
    raise Cancelled(f"the campaign for {campaign.name!r} was stopped")


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
