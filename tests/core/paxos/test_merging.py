from __future__ import annotations

from lessor.core.lease import Closed, Contender, Record
from lessor.core.ops import Event, EventKind, Notice, Summons
from lessor.core.paxos import merging
from lessor.core.paxos.merging import Pushes, agreed, in_doubt
from lessor.core.paxos.messages import Push


def record(token: int, remaining_ns: int = 10, **more: object) -> Record:
    return Record("job", "p", token, 10, remaining_ns, 1, 1, 0, **more)  # type: ignore[arg-type]


def push(who: str, *news: Event | Notice) -> Push:
    events = tuple(n for n in news if isinstance(n, Event))
    return Push(who, 1, 0, events, tuple(n for n in news if isinstance(n, Notice)))


GRANTED = Event(EventKind.GRANTED, "job", 5, "p", 1, 10)
CALL = Notice("me", Summons.RESERVED, "job", "p")


def test_an_event_is_told_once_by_a_majority() -> None:
    pushes = Pushes(3)
    assert pushes.take(push("a", GRANTED)) == []
    assert pushes.take(push("a", GRANTED)) == []
    assert pushes.take(push("b", GRANTED._replace(at_us=2))) == [GRANTED._replace(at_us=2)]
    assert pushes.take(push("c", GRANTED)) == []


def test_a_waiter_can_be_called_again() -> None:
    pushes = Pushes(3)
    for _ in range(2):
        assert pushes.take(push("a", CALL)) == []
        assert pushes.take(push("b", CALL)) == [CALL]


def test_what_only_one_told_is_forgotten_in_the_end() -> None:
    pushes = Pushes(3)
    for token in range(merging.REMEMBERED + 10):
        pushes.take(push("a", GRANTED._replace(token=token)))
    assert len(pushes._told_by) == merging.REMEMBERED


def test_a_lease_is_what_a_majority_shows() -> None:
    split = [[record(5)], [record(6)], []]
    assert agreed(split, 3) == []
    assert not in_doubt(split, 3)
    assert in_doubt(split[:2], 3)
    queue = (Contender("q", 1),)
    merged = agreed([[record(5, 7, queue=queue)], [record(5, 9)]], 3)
    assert merged == [record(5, 9, queue=queue)]
    assert not in_doubt([[record(5)], [record(5)]], 3)


def test_a_lease_is_held_as_long_as_most_of_a_majority_say_so() -> None:
    held, delayed = record(5, 2), record(5, 60, closed=Closed.LOCK_DELAY)
    assert agreed([[held], [held], [delayed]], 3) == [held]
    assert agreed([[held], [delayed], [delayed]], 3) == [delayed]
    assert agreed([[held], [delayed]], 3) == [delayed]
    assert agreed([[delayed], [], []], 3) == []
