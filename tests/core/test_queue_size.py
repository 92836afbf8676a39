"""Thousands that wait for one resource: none of them costs as much as all the others together."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from lessor.core.entry import MOST_TOMBSTONES, Waiter, Waiting
from lessor.core.ops import Acquire, Granted, Held, Release
from lessor.core.paxos.messages import Accept, Drop, HeldBy
from tests.core.paxos.cluster import TTL, acceptor, ask, asking
from tests.core.virtual_table import SharingTable, World

WAITERS = 10_000
SECONDS = 15
"""Of this process's own time. It takes a half; with one look at all for each of them it would take a minute."""


class Budget:
    """Fails where more of the processor was used."""

    def __enter__(self) -> None:
        self._begin = time.process_time()

    def __exit__(self, *_: object) -> None:
        assert time.process_time() - self._begin < SECONDS


def test_ten_thousand_wait_in_a_store() -> None:
    table = World(SharingTable())
    assert isinstance(table.apply(Acquire("job", "first", "h", TTL)), Granted)
    ids = [f"id{number}" for number in range(WAITERS)]
    asking = [Acquire("job", lease_id, "w", TTL, queue=True) for lease_id in ids]
    with Budget():
        for _ in range(2):  # once to queue up, and once to show up
            assert [table.apply(op).position for op in asking] == list(range(WAITERS))  # type: ignore[union-attr]
        holder = "first"
        for lease_id, op in zip(ids[:1000], asking, strict=False):
            table.apply(Release("job", holder))
            assert isinstance(table.apply(op), Granted)
            holder = lease_id
        for lease_id in reversed(ids[1000:]):
            table.apply(Release("job", lease_id, abandon=True))
    assert isinstance(table.apply(Acquire("job", "last", "h", TTL)), Held)


def test_ten_thousand_wait_at_an_acceptor() -> None:
    node = acceptor()
    ask(node, Accept(asking("first"), 1), 0)
    with Budget():
        for _ in range(2):
            for number in range(WAITERS):
                held = ask(node, Accept(asking(f"id{number}", queue=True), number + 2), 1)
                assert isinstance(held, HeldBy)
                assert (held.position, held.ticket) == (number, number + 1)
        for number in range(WAITERS):
            ask(node, Drop(Release("job", f"id{number}", abandon=True)), 2)


def test_tombstones_are_bounded() -> None:
    waiting = Waiting()
    for number in range(MOST_TOMBSTONES + 5):
        waiting.bury(f"id{number}", 100)
    assert len(waiting.tombstones) == MOST_TOMBSTONES
    assert "id4" not in waiting.tombstones
    assert "id5" in waiting.tombstones
    waiting.tidy(100)
    assert waiting.tombstones == {}


def test_there_is_always_room_between_two() -> None:
    waiting = Waiting([Waiter("first", "", "", 0, 10), Waiter("last", "", "", 0, 10)])
    for number in range(500):
        waiting.insert(1, Waiter(f"{number}", "", "", 0, 10))
    assert [waiting.position(waiter) for waiter in waiting.queue] == list(range(502))
    assert [waiter.lease_id for waiter in waiting.queue[:2]] == ["first", "499"]


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("insert"), st.integers(0, 20), st.integers(1, 30)),
            st.tuples(st.just("remove"), st.integers(0, 20), st.just(0)),
            st.tuples(st.just("bury"), st.integers(0, 5), st.integers(1, 30)),
            st.tuples(st.just("tidy"), st.integers(0, 30), st.just(0)),
        ),
        max_size=60,
    )
)
def test_a_queue_is_what_a_plain_list_would_be(steps: list[tuple[str, int, int]]) -> None:
    waiting, plain, buried, now = Waiting(), list[Waiter](), dict[str, int](), 0
    for serial, (what, number, span) in enumerate(steps):
        if what == "insert":
            waiter, at = Waiter(f"{serial}", "", "", 0, now + span), min(number, len(plain))
            plain.insert(at, waiter)
            waiting.insert(at, waiter)
        elif what == "remove" and plain:
            waiting.remove(plain.pop(number % len(plain)))
        elif what == "bury":
            buried[str(number)] = now + span
            waiting.bury(str(number), now + span)
        elif what == "tidy":
            now += number
            waiting.tidy(now)
            plain = [waiter for waiter in plain if waiter.expiry_ns > now]
            buried = {lease_id: until for lease_id, until in buried.items() if until > now}
    assert waiting.queue == plain
    assert waiting.tombstones == buried
    assert [waiting.position(waiter) for waiter in plain] == list(range(len(plain)))
    assert all(waiting.find(waiter.lease_id) is waiter for waiter in plain)
    assert waiting.find("nobody") is None
