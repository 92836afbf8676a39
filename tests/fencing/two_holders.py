"""Two holders of one resource that write the same row, in whatever order a list of numbers says.

A holder doesn't know that it has been followed: it goes on with its old token until it takes the lease again. Its work
is a row of steps (begin or not, read or not, guard, write, commit or give up), and the other's steps come in between
wherever the numbers say so. A step that waits for the other holder is looked at again whenever it is its turn. Whoever
is told that the other was quicker begins anew.
"""

from __future__ import annotations

from concurrent.futures import wait
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from lessor import Fenced

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from concurrent.futures import Future

    from tests.fencing.sql_places import Place, Session

DONE = object()


class Seen(NamedTuple):
    """What came of an interleaving."""

    committed: list[int]
    """The tokens of the writes, in the order in which they were committed."""
    remembered: int | None
    fenced: int
    waited: int
    conflicts: int


class Arena:
    """A database on which interleavings are played, one after the other."""

    def __init__(self, place: Place, *, guarded: bool) -> None:
        self.guarded = guarded
        self.place = place
        self.sessions = (place.session(), place.session())

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        self.place.close()

    def play(self, numbers: list[int]) -> Seen:
        """Play one interleaving. Each number says who is next, and what it is about to do if it begins anew."""
        self.place.reset()
        game = _Game(self)
        players: list[Generator[None, None, None] | None] = [None, None]
        try:
            for number in numbers:
                who, choice = number % 2, number // 2
                player = players[who] or game.turn(who, choice)
                players[who] = player if next(player, DONE) is not DONE else None
        finally:
            # Whoever waits comes last: it waits for the other.
            for who in sorted((0, 1), key=game.is_waiting):
                left = players[who]
                if left is not None:
                    left.close()
                self.sessions[who].rollback()
        in_place, remembered = self.place.tokens()
        assert in_place == (game.committed[-1] if game.committed else 0)
        return Seen(game.committed, remembered, game.fenced, game.waited, game.conflicts)


class _Game:
    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.committed: list[int] = []
        self.fenced = 0
        self.waited = 0
        self.conflicts = 0
        self.turns = [0, 0]
        self.started: list[Future[object] | None] = [None, None]
        self.last_token = 2
        self.tokens = [1, 2]

    def turn(self, who: int, choice: int) -> Generator[None, None, None]:
        """One transaction of a holder, step by step."""
        session = self.arena.sessions[who]
        self.turns[who] += 1
        if choice & 1 and choice & 2:
            # It takes the lease again, and is the newest from here on.
            self.last_token += 1
            self.tokens[who] = self.last_token
        token = self.tokens[who]
        begins, reads, gives_up = bool(choice & 2), bool(choice & 4), bool(choice & 8)
        session.choose(choice >> 4 & 3)
        try:
            if begins:
                session.begin()
                yield
            if reads:
                session.read()
                yield
            own = session.in_transaction()
            with ExitStack() as stack:
                guard = self.guard(session, token)
                yield from self.done(who, lambda: stack.enter_context(guard))
                yield
                yield from self.done(who, lambda: session.write(token))
                yield
                if gives_up:
                    raise _GaveUpError  # noqa: TRY301
            if own or not self.arena.guarded:
                yield
                session.commit()
            self.committed.append(token)
        except Fenced as refused:
            assert token < refused.newest  # noqa: PT017 - it may be raised or not
            assert not session.in_transaction()
            self.fenced += 1
        except _GaveUpError:
            session.rollback()
        except Exception as error:
            if not self.arena.place.is_conflict(error):
                raise
            self.conflicts += 1
            session.rollback()

    def done(self, who: int, step: Callable[[], object]) -> Generator[None, None, None]:
        """Take a step that has to wait if the other holder is in the middle of its transaction."""
        other = self.arena.sessions[1 - who]
        if not other.in_transaction():
            step()
            return
        started = self.started[who] = self.arena.sessions[who].start(step)
        waited = False
        try:
            while self.is_waiting(who):
                waited = True
                theirs = self.turns[1 - who]
                while other.in_transaction() and self.turns[1 - who] == theirs:
                    yield
        except GeneratorExit:
            wait([started])  # the other has been rolled back by now
            raise
        self.waited += waited
        started.result()

    def is_waiting(self, who: int) -> bool:
        started = self.started[who]
        return started is not None and self.arena.sessions[who].waits(started)

    @contextmanager
    def guard(self, session: Session, token: int) -> Iterator[None]:
        if not self.arena.guarded and not session.in_transaction():
            session.begin()
        with session.guard(token) if self.arena.guarded else nullcontext():
            yield


class _GaveUpError(Exception):
    pass
