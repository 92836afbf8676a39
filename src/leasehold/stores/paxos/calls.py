"""What threads wait for, and what is under way for them. Both belong to the engine, and are used under its lock."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.stores.paxos.engine import Node
    from leasehold.stores.paxos.tasks import Task


class Call:
    """Some tasks that a thread waits for."""

    __slots__ = ("_left", "_queues", "admitted", "bell", "rung", "tasks")

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tasks
        self._left = len(tasks)
        self._queues: dict[str, deque[Task] | None] = {}
        """What has to wait until an earlier task of the same call and resource is done."""
        self.admitted = False
        """Whether it has begun."""
        self.bell = threading.Lock()
        self.bell.acquire()
        self.rung = False

    def settled(self) -> bool:
        """Whether all of it is over."""
        return not self._left

    def first(self) -> list[Task]:
        """Return what may begin at once."""
        if len(self.tasks) == 1:
            return list(self.tasks)
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
        """Take note that a task is done; return the one that may begin now."""
        self._left -= 1
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

    def __init__(
        self, entries: list[tuple[Call, Task, int]], frame: bytearray, sent_ns: int, to: Node | None = None
    ) -> None:
        self.entries = entries
        self.frame = frame
        self.sent_ns = sent_ns
        self.waiting: set[Node] = set()
        self.to = to
        """Whom alone it is for; None: all."""
        self.heard = 0
        """How many have answered."""

    def is_open(self) -> bool:
        """Whether any of its tasks waits for more answers to it."""
        return any(not task.done and number and number == task.number for _, task, number in self.entries)
