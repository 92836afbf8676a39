"""What one client hears from the nodes: calls to itself and, where it watches, all that happens under a prefix.

Each node tells what it sees, and what a majority tells is told once. Nodes keep nothing for those who aren't connected,
and have nothing to tell while they are silent: when fewer than a majority told, something may have been missed, and that
is said.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from lessor.core.clock import SECOND
from lessor.core.paxos.ballots import majority
from lessor.core.paxos.merging import Pushes
from lessor.core.paxos.messages import Push
from lessor.stores.doorbell import Doorbell
from lessor.stores.locks import new_lock
from lessor.stores.paxos import frames
from lessor.stores.paxos.link import answers, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.clock import Clock
    from lessor.core.ops import Event, Notice
    from lessor.stores.paxos.address import PaxosAddress, Place
    from lessor.stores.paxos.link import Link

CONNECT_SECONDS: Final = 2.0
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 1.0
QUIET_NS: Final = 2 * SECOND
"""After so long without a word a sign of life is asked for; after twice as long the connection is made anew."""


class Source:
    """One node that is listened to."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.link: Link | None = None
        self.heard_ns = 0
        self.asked = False
        self.tells_ns: int | None = None
        """Since when it tells all that happens; None: it isn't connected, or is silent."""


class PaxosSubscription:
    """A connection to each node."""

    def __init__(
        self, address: PaxosAddress, clock: Clock, space: str, prefix: str | None, heard: Callable[[str, int], None]
    ) -> None:
        self._server = address
        self._clock = clock
        self._space = space
        self._prefix = None if prefix is None else space + prefix
        self._heard = heard
        self._name = os.urandom(8).hex()
        self._sources = [Source(place) for place in address.nodes]
        self._pushes = Pushes(len(self._sources))
        self._majority = majority(len(self._sources))
        self._lock = new_lock()
        self._closed = threading.Event()
        self._doorbell = Doorbell(self._let_go)
        self._tried = threading.Semaphore(0)
        self._missed = self._called_away = False
        self._news: list[Event | Notice] = []
        for source in self._sources:
            self._try(source)
        give_up = clock.now() + int(CONNECT_SECONDS * SECOND)
        for _ in self._sources:  # those who aren't there yet are found by and by; waiters come at the known times
            if self._telling() < self._majority:
                self._tried.acquire(timeout=max(0.0, (give_up - clock.now()) / SECOND))
        self._missed = self._telling() < self._majority

    @property
    def address(self) -> str:
        """How operations name this client."""
        return self._name

    def get(self, timeout: float) -> list[Event | Notice] | None:
        """Return what came; None when too few nodes could tell, so that something may have been missed."""
        give_up = self._clock.now() + int(max(timeout, 0) * SECOND)
        while not self._closed.is_set():
            left = max(0.0, (give_up - self._clock.now()) / SECOND)
            self._doorbell.wait(min(left, QUIET_NS / SECOND))
            with self._lock:
                for source in self._sources:
                    self._hear(source)
                if self._missed and self._telling() >= self._majority:
                    self._missed = False
                    self._news.clear()
                    return None
                news, self._news = self._news, []
                called_away, self._called_away = self._called_away, False
            if news or called_away or self._clock.now() >= give_up:
                return news
        return []

    def interrupt(self) -> None:
        """Let the ``get`` that is under way, or else the next one, return now."""
        self._called_away = True
        self._doorbell.ring()

    def close(self) -> None:
        """End it."""
        self._closed.set()
        self._doorbell.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _telling(self, since_ns: int | None = None) -> int:
        """Count the nodes that tell, and have done so since then."""
        begun = [source.tells_ns for source in self._sources if source.tells_ns is not None]
        return sum(since_ns is None or at_ns <= since_ns for at_ns in begun)

    def _hear(self, source: Source) -> None:
        """Take in what one node has told."""
        link = source.link
        if link is None:
            return
        now = self._clock.now()
        try:
            for message in link.receive():
                source.heard_ns, source.asked = now, False
                if isinstance(message, frames.News):
                    self._take(link, message)
                elif isinstance(message, frames.Refusal):
                    raise ConnectionAbortedError(message.why)
                if isinstance(message, frames.News | frames.Pong) and source.tells_ns is None:
                    source.tells_ns = now  # who is silent says neither
            quiet = now - source.heard_ns
            if quiet > 2 * QUIET_NS:
                raise ConnectionAbortedError("no sign of life")
            if quiet > QUIET_NS and not source.asked:
                source.asked = True
                link.send(frames.encode(frames.Ping(0)))
        except OSError:
            self._lose(source, link)

    def _take(self, link: Link, news: frames.News) -> None:
        self._heard(link.acceptor, news.floor)
        push = Push(link.acceptor, link.incarnation, news.floor, tuple(news.events), tuple(news.notices))
        space = len(self._space)
        for item in self._pushes.take(push):
            if item.resource.startswith(self._space):
                self._news.append(item._replace(resource=item.resource[space:]))

    def _lose(self, source: Source, link: Link) -> None:
        self._doorbell.forget(link.descriptor)
        link.close()
        source.link, told, source.tells_ns = None, source.tells_ns is not None, None
        # Since it was last heard it may have told what never came, and not all of the others need have told all along.
        if told and self._telling(source.heard_ns) < self._majority:
            self._missed = True
        self._try(source)

    def _try(self, source: Source) -> None:
        name = f"lessor-paxos-listening-{source.place}"
        threading.Thread(target=self._reach, args=(source,), name=name, daemon=True).start()

    def _reach(self, source: Source) -> None:
        """Connect to a node, for as long as it takes, and listen there."""
        server, pause = self._server, FIRST_PAUSE
        while not self._closed.is_set():
            link = None
            try:
                link = connect(source.place, server.secret, server.context, CONNECT_SECONDS)
                early, tells = self._begin(link)
            except Exception:  # noqa: BLE001 - whatever it is, this thread is the only one that goes on trying
                if link is not None:
                    link.close()
                self._tried.release()
                self._closed.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            with self._lock:
                if self._closed.is_set():
                    link.close()
                    return
                source.link, source.heard_ns, source.asked = link, self._clock.now(), False
                source.tells_ns = source.heard_ns if tells else None
                self._doorbell.watch(link.descriptor)
                for news in early:
                    self._take(link, news)
            self._tried.release()
            self._doorbell.ring()
            return

    def _begin(self, link: Link) -> tuple[list[frames.News], bool]:
        """Ask a node to tell, and wait until it does, or is silent; return what it has told by then, and whether it does."""
        link.send(frames.encode(frames.Listen(self._name, self._prefix)) + frames.encode(frames.Ping(1)))
        early: list[frames.News] = []
        for message in answers(link, CONNECT_SECONDS):
            if isinstance(message, frames.Pong | frames.Silent):
                return early, isinstance(message, frames.Pong)
            if isinstance(message, frames.News):
                early.append(message)
        raise TimeoutError("no answer")

    def _let_go(self) -> None:
        """Close the connections, when nobody waits any more."""
        with self._lock:
            for source in self._sources:
                if source.link is not None:
                    source.link.close()
                    source.link = source.tells_ns = None
