"""Many at once, over connections that break: one holder at a time, tokens in order, and nothing left in the end."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from lessor.core.ops import Acquire, Granted, Held, Lost, Release, Renew, Renewed, Unknown
from lessor.testing.conformance.base import PATIENCE, Thread, new_id, ns, take, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.ops import Op, Outcome
    from lessor.stores.zookeeper import ZooKeeperStore
    from tests.stores.zookeeper.tree import Tree

TTL = 30


class Room:
    """Where only one may be at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tokens: list[int] = []

    def enter(self, token: int) -> None:
        assert self.lock.acquire(blocking=False), "two holders at once"
        self.tokens.append(token)

    def leave(self) -> None:
        self.lock.release()


def surely(store: ZooKeeperStore, op: Op) -> Outcome:
    """Ask until there is an answer."""
    while isinstance(outcome := store.apply([op], timeout=PATIENCE)[0], Unknown):
        continue
    return outcome


def visit(store: ZooKeeperStore, name: str, room: Room, draw: random.Random) -> None:
    """Get in, or wait, or give up; stay for a renewal or not; leave."""
    op = Acquire(name, new_id(), "visitor", ns(TTL), queue=draw.random() < 0.7)
    for _ in range(draw.randint(1, 30)):
        outcome = surely(store, op)
        if isinstance(outcome, Granted):
            room.enter(outcome.token)
            if draw.random() < 0.5:
                assert isinstance(surely(store, Renew(name, op.lease_id, outcome.token, ns(TTL))), Renewed)
            room.leave()
            surely(store, Release(name, op.lease_id))
            return
        assert isinstance(outcome, Held), outcome
    surely(store, Release(name, op.lease_id, abandon=draw.random() < 0.3))


def test_one_at_a_time_over_connections_that_break(opened: Callable[[], ZooKeeperStore], tree: Tree) -> None:
    rooms = {name: Room() for name in ("a", "b")}
    stores = [opened() for _ in range(4)]
    enough = threading.Event()

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(40):
            name = draw.choice([*rooms])
            visit(stores[number], name, rooms[name], draw)

    def disturb() -> None:
        draw = random.Random(0)
        while not enough.wait(0.1):
            for session in list(draw.choice(stores)._desk._sessions.values()):
                session.drop()

    disturbing = Thread(disturb)
    for thread in [Thread(lambda n=n: work(n)) for n in range(4)]:  # type: ignore[misc]
        thread.result(100)
    enough.set()
    disturbing.result()
    for room in rooms.values():
        assert room.tokens == sorted(set(room.tokens)), "tokens out of order"
        assert len(room.tokens) > 5
    # Tombstones stay for a minute.
    until(lambda: all(path.startswith("/ids/") for path in tree.left()), "nothing")


def test_an_abandoned_request_leaves_nothing_whatever_overtakes_what(store: ZooKeeperStore, tree: Tree) -> None:
    take(store, "warm", TTL)
    for number in range(60):
        name, lease_id = f"job/{number}", new_id()
        asking = Thread(lambda n=name, i=lease_id: take(store, n, TTL, i))  # type: ignore[misc]
        store.apply([Release(name, lease_id, abandon=True)], timeout=PATIENCE)
        assert isinstance(asking.result(), Granted | Lost)
        assert store.read([name], timeout=PATIENCE) == [None]
        assert not [path for path in tree.left() if "job" in path]
