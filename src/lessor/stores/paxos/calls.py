"""What threads wait for, and what is under way for them. Both belong to the engine, and are used under its lock."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.paxos.steps import Send
    from lessor.stores.paxos.engine import Node
    from lessor.stores.paxos.tasks import Task

Entry: TypeAlias = "tuple[Call, Task, Send]"
"""Something to send, and whose answer it is that comes back."""


class Call:
    """Some tasks that a thread waits for."""

    __slots__ = ("_queues", "admitted", "bell", "left", "rung", "tasks")

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tasks
        self.left = len(tasks)
        """How many of them are not over."""
        self._queues: dict[str, deque[Task] | None] = {}
        """What has to wait until an earlier task of the same call and resource is done."""
        self.admitted = False
        """Whether it has begun."""
        self.bell = threading.Lock()
        self.bell.acquire()
        self.rung = False

    def first(self) -> Sequence[Task]:
        """Return what may begin at once."""
        if len({task.resource for task in self.tasks}) == len(self.tasks):
            return self.tasks
        ready: list[Task] = []
        for task in self.tasks:
            name = task.resource
            if name not in self._queues or not name:
                self._queues[name] = None
                ready.append(task)
            else:
                queue = self._queues[name]
                if queue is None:
                    queue = self._queues[name] = deque()
                queue.append(task)
        return ready

    def over(self, task: Task) -> Task | None:
        """Take note that a task is done, and wake its thread up if it was the last; return the one that may begin now."""
        self.left -= 1
        if not self.left:
            self.ring()
        queue = self._queues.get(task.resource) if self._queues else None
        return queue.popleft() if queue else None

    def ring(self) -> None:
        """Wake its thread up."""
        if not self.rung:
            self.rung = True
            self.bell.release()


class Flight:
    """A frame that is under way, and who has yet to answer it."""

    __slots__ = ("entries", "frame", "heard", "sent_ns", "to", "waiting")

    def __init__(self, entries: list[Entry], frame: bytearray, sent_ns: int, to: Node | None = None) -> None:
        self.entries = entries
        self.frame = frame
        self.sent_ns = sent_ns
        self.waiting: set[Node] = set()
        self.to = to
        """Whom alone it is for; None: all."""
        self.heard = 0
        """How many have answered."""

    def still_open(self) -> list[Entry]:
        """Return what waits for more answers to it."""
        return [entry for entry in self.entries if not entry[1].done and 0 < entry[2].attempt == entry[1].number]
