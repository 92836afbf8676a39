"""How a batch is cut: into what may be done side by side, and into what fits into one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.core.ops import Acquire, Granted, Release
from lessor.stores.etcd.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.core.ops import Op

MOST: Final = 128
"""What etcd takes in one transaction by default; in one within another, as much as the outer one leaves."""
MOST_AT_ONCE: Final = 100
"""Operations, or reads, in one transaction."""
MOST_BYTES: Final = 1_000_000
"""About the size of a transaction; etcd takes 1.5 MiB by default."""


def tasks_of(ops: Sequence[Op]) -> list[Task]:
    """Return the operations as tasks."""
    return [Task(op, index, _names(op)) for index, op in enumerate(ops)]


def turns(tasks: list[Task]) -> list[list[Task]]:
    """Return the operations in groups, one after the other: within a group, no resource is there twice.

    Nothing comes before what it was asked after: the end of a family may be about resources that it doesn't name.
    """
    turns: list[list[Task]] = []
    named: set[str] = set()
    for task in tasks:
        if not turns or not named.isdisjoint(task.names):
            turns.append([])
            named.clear()
        turns[-1].append(task)
        named.update(task.names)
    return turns


def writes(tasks: list[Task]) -> Iterator[list[Task]]:
    """Return those that write, in portions that fit into one transaction."""
    return _portions([(task, _bytes_of(task), _longest_of(task)) for task in tasks if not task.looking], MOST_BYTES)


def reads(tasks: list[Task]) -> Iterator[list[Task]]:
    """Return those that read, in such portions."""
    return _portions([(task, task.reads(), 0) for task in tasks if task.looking], MOST_AT_ONCE)


def only_up_to(tasks: list[Task], last: int) -> list[Task]:
    """Let those wait that come after one that writes about others of its family: they may be about one of these."""
    for task in tasks[last + 1 :]:
        if task.looking:
            task.loaded = None
    return tasks[: last + 1]


def _portions(tasks: list[tuple[Task, int, int]], heaviest: int) -> Iterator[list[Task]]:
    """Cut by what all of a portion weigh, by their number, and by what that leaves for the longest one among them."""
    part: list[Task] = []
    taken = longest = 0
    for task, weighs, length in tasks:
        taken += weighs
        longest = max(longest, length)
        full = len(part) >= min(MOST_AT_ONCE, MOST - longest) or taken > heaviest
        if part and (full or task.alone or part[0].alone):
            yield part
            part, taken, longest = [], weighs, length
        part.append(task)
    if part:
        yield part


def _longest_of(task: Task) -> int:
    """Return the length of the longest list in its transaction, with a look should it be refused."""
    return max(task.reads(), task.plan.longest if task.plan is not None else 0)


def _bytes_of(task: Task) -> int:
    """Return about how much more than a usual one a transaction has to carry."""
    if isinstance(task.op, Release):
        return len(task.op.state)
    inherited = len(task.planned.state) if isinstance(task.planned, Granted) else 0
    return 2 * (len(task.op.metadata) + inherited) if isinstance(task.op, Acquire) else 0


def _names(op: Op) -> list[str]:
    parent = op.parent if isinstance(op, Acquire) else None
    return [op.resource, parent[0]] if parent is not None and parent[0] != op.resource else [op.resource]
