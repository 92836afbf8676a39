"""Sends what calls ask to all nodes at once, and lets each call go as soon as a majority has settled it.

There is no thread of its own on the way: of those who wait, one reads for all. Whoever comes while others send joins
their frame. A node that is dead, slow or silent is not waited for; a thread that lasts as long as it is away tries to
reach it again.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import threading
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.ops import Unknown
from lessor.core.paxos.ballots import Ballots, majority
from lessor.core.paxos.messages import Ack, Dropped, Nothing, Promised
from lessor.core.paxos.steps import BackOff, Send
from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.locks import new_lock
from lessor.stores.paxos import frames
from lessor.stores.paxos.calls import Call, Flight
from lessor.stores.paxos.frames import ITEMS, encode
from lessor.stores.paxos.link import connect
from lessor.stores.paxos.tasks import LONGEST_PAUSE_NS, SHORTEST_PAUSE_NS, LeaseTask, RenewTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lessor.core.clock import Clock
    from lessor.core.paxos.proposer import Proposer
    from lessor.core.paxos.steps import Step
    from lessor.stores.paxos.address import PaxosAddress, Place
    from lessor.stores.paxos.calls import Entry
    from lessor.stores.paxos.link import Link
    from lessor.stores.paxos.tasks import Task

ATTEMPT_NS: Final = 100 * MILLISECOND
"""How long a minority is waited for that could still tip the scales."""
CONNECT_SECONDS: Final = 2.0
THE_LAST_SECONDS: Final = 0.1
"""How long a new client waits for the last nodes: those who queue up right away do so at all of them."""
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 1.0
DEAD_NS: Final = 5 * SECOND
"""A node that has left requests unanswered for so long is connected to anew."""
LANES: Final = 2
"""So many frames are under way at once. Whoever comes meanwhile joins the next one."""
LANE_NS: Final = 10 * MILLISECOND
"""A frame that has been under way for longer holds nobody up."""
CROWD: Final = 4
"""With so many that wait, a thread of its own reads for them."""
IDLE: Final = 0.05
"""Seconds after which that one looks whether there is still a crowd."""
MOST_FLIGHTS: Final = 4096
"""Frames that are remembered for the sake of nodes that haven't answered them yet."""
NO_NEWS: Final = frozenset({Ack, Promised, Dropped, Nothing})
"""Verdicts that mean nothing any more to whoever has its answer."""


class Node:
    """One of the cluster: how to reach it, and the connection while there is one."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.link: Link | None = None
        self.error: LessorError | None = None
        """Why it can't be reached."""
        self.cluster: tuple[str, ...] = ()
        """Who belongs to it, as this node has said."""
        self.failures = 0
        """How often that was tried in vain since the last success."""
        self.trying = False
        self.heard_ns = 0
        self.silent_until_ns = 0
        """Until when it says that it won't answer."""


class Engine:
    """The cluster, as one client sees it. Safe for threads."""

    def __init__(self, address: PaxosAddress, clock: Clock) -> None:
        self.address = address
        self.acceptors = len(address.nodes)
        self.majority = majority(self.acceptors)
        self.ballots = Ballots(self.acceptors)
        self._clock = clock
        self._closed = False
        self._start()

    def forget(self) -> None:
        """In a forked child: these connections are the parent's."""
        for node in self.nodes:
            if node.link is not None:
                node.link.close()
        for descriptor in self._pipe:
            os.close(descriptor)
        if not self._closed:
            self._start()

    def _start(self) -> None:
        self.nodes = [Node(place) for place in self.address.nodes]
        self.lock = new_lock()
        self._reached = threading.Condition(self.lock)
        self._arrivals: deque[Call] = deque()
        self._outbox: list[Entry] = []
        self._flights: OrderedDict[int, Flight] = OrderedDict()
        self._asking: dict[Proposer, tuple[Call, LeaseTask]] = {}
        """Whose question about a lease is the latest: what comes of it may come with an answer to an earlier one."""
        self._lanes: dict[int, int] = {}
        """The frames that no majority has answered yet, and when they were sent."""
        self._serial = 0
        self._reader: Call | None = None
        self._followers: dict[Call, None] = {}
        self._crowd = Call(())
        self._crowd_bell: threading.Semaphore | None = None
        self._poll = select.poll()
        self._by_descriptor: dict[int, Node] = {}
        self._pipe: tuple[int, ...] = os.pipe()
        """Its one end is polled, the other one pressed."""
        for descriptor in self._pipe:
            os.set_blocking(descriptor, False)
        self._poll.register(self._pipe[0], select.POLLIN)

    # --- calls ----------------------------------------------------------------------------------------------------

    def run(self, tasks: Sequence[Task], give_up: int) -> None:
        """Take the tasks to their outcomes; those that have none by then are `Unknown`."""
        call = Call(tasks)
        if not self._ready:
            self._wait_for_nodes(give_up)
        if self._closed:
            raise StoreUnavailable("paxos", "the store is closed")
        try:
            self._arrivals.append(call)
            with self.lock:
                if self._reader is None and any(isinstance(task, RenewTask) for task in tasks):
                    self._take_in(self._poll.poll(0))  # who was slow to answer the last renewal may lack something
                self._admit()
            self._await(call, give_up)
        finally:
            if call.left or self._reader is call:  # the latter after an interrupt
                with self.lock:
                    self._give_up(call)
                    self._followers.pop(call, None)
                    if self._reader is None or self._reader is call:
                        self._pass_on()  # it may have been its turn to read

    def heard(self, who: str, floor: int) -> None:
        """Take note of what a node demands of numbers, as those who listen to it hear it."""
        with self.lock:
            self.ballots.heard(who, floor)

    @property
    def _ready(self) -> bool:
        return sum([node.link is not None for node in self.nodes]) >= self.majority

    def _admit(self) -> None:
        """Begin with all calls that have arrived, in one frame; unless enough is under way, and soon back."""
        arrivals, lanes = self._arrivals, self._lanes
        if not arrivals:
            return
        now, wall_us = self._clock.mark(), self._clock.wall_us()
        if len(lanes) >= LANES and now - next(iter(lanes.values())) < LANE_NS:
            return
        while arrivals:
            call = arrivals[0]
            if not call.admitted:  # else an interrupt fell into this loop
                call.admitted = True
                for task in call.first():
                    self._begin(call, task, now, wall_us)
            arrivals.popleft()
        self._flush(now)

    def _begin(self, call: Call, task: Task, now: int, wall_us: int) -> None:
        if isinstance(task, LeaseTask):
            attempt = task.proposer.attempt
            if attempt is not None and attempt.open and task.number == 0:
                self._overtake(task)
            self._asking[task.proposer] = (call, task)
        self._act(call, task, task.start(now, wall_us), now)

    def _overtake(self, task: LeaseTask) -> None:
        """Deal with whoever waits for an earlier question about the same lease, which won't be heard any more.

        Where it asked the same, it shares the answer.
        """
        for flight in list(self._flights.values()):
            for call, other, _ in flight.entries:
                if (
                    isinstance(other, LeaseTask)
                    and other.proposer is task.proposer
                    and not other.done
                    and other is not task
                ):
                    if type(other) is type(task):
                        task.sharing = [*task.sharing, (call, other)]
                    else:
                        self._finish(call, other, Unknown(StoreUnavailable("paxos", "overtaken by a later request")))

    def _act(self, call: Call, task: Task, steps: Iterable[Step], now: int) -> None:
        """Do what a task says."""
        for step in steps:
            if isinstance(step, Send):
                if step.attempt and step.to is None and not step.aside and not task.done:
                    task.number = step.attempt
                    task.due_ns = now + ATTEMPT_NS
                self._outbox.append((call, task, step))
            elif task.done:
                latest = self._asking.get(task.proposer) if isinstance(task, LeaseTask) else None
                if latest is not None and not latest[1].done:
                    self._act(*latest, [step], now)
            else:
                outcome = task.conclude(step, self._trouble)
                if outcome is not None:
                    self._finish(call, task, outcome)
                elif isinstance(step, BackOff):
                    self._back_off(call, task, now)

    def _back_off(self, call: Call, task: Task, now: int) -> None:
        """Let the task begin again after a while, at random: those who are in each other's way don't meet again."""
        task.number = 0
        longest = min(SHORTEST_PAUSE_NS << min(task.tries, 8), LONGEST_PAUSE_NS)
        task.tries += 1
        task.due_ns = now + random.randrange(longest // 8, longest)
        call.ring()  # whoever waits has to look at its watch

    def _finish(self, call: Call, task: Task, outcome: object) -> None:
        task.outcome, task.done = outcome, True
        self._settled(task)
        self._over(call, task)
        for others, sharing in task.sharing:
            if not sharing.done:
                self._finish(others, sharing, outcome)

    def _settled(self, task: Task) -> None:
        if isinstance(task, LeaseTask):
            latest = self._asking.get(task.proposer)
            if latest is not None and latest[1] is task:
                del self._asking[task.proposer]

    def _over(self, call: Call, task: Task) -> None:
        following = call.over(task)
        if following is not None:
            self._begin(call, following, self._clock.mark(), self._clock.wall_us())

    def _give_up(self, call: Call) -> None:
        """Settle what has not been: no more answers are waited for."""
        now = self._clock.now()
        if call in self._arrivals:
            self._arrivals.remove(call)
        for task in call.tasks:
            if not task.done and task.number:
                for step in task.on_timeout(now):
                    if isinstance(step, Send):
                        self._act(call, task, [step], now)
                    elif (outcome := task.conclude(step, self._trouble)) is not None:
                        task.finish(outcome)
            if not task.done:
                task.finish(Unknown(self._trouble()))
            self._settled(task)
        self._flush(now)

    def _trouble(self) -> StoreUnavailable:
        """Say what is wrong with the cluster."""
        now = self._clock.now()
        silent = [node for node in self.nodes if node.link is not None and node.silent_until_ns > now]
        away = [node for node in self.nodes if node.link is None]
        enough = len(silent) + len(away) <= self.acceptors - self.majority
        errors = [node.error or node.place for node in away]
        said = [error.detail if isinstance(error, StoreUnavailable) else str(error) for error in errors]
        if silent:
            left = min(node.silent_until_ns for node in silent) - now
            said.append(f"{len(silent)} silent after a restart, the next one for {left / SECOND:.1f} s yet")
        what = f"no majority of {self.address}{' answered in time' if enough else ''}"
        return StoreUnavailable("paxos", f"{what}: {'; '.join(said)}" if said else what)

    # --- waiting --------------------------------------------------------------------------------------------------

    def _await(self, call: Call, give_up: int) -> None:
        """Read, or wait for somebody who reads, until the call is over."""
        while call.left:
            now = self._clock.now()
            if now >= give_up or self._closed:
                return
            with self.lock:
                if not call.admitted:
                    self._admit()
                due = self._look_at_watch(call, now) if call.admitted else now + LANE_NS
                if not call.left:
                    return
                until = min(give_up, due)
                reading = self._reader is None
                if reading:
                    self._reader = call
                else:
                    self._followers[call] = None
                if call.rung:
                    call.rung = False
                    call.bell.acquire(blocking=False)  # whoever rang may have been interrupted
            if reading:
                try:
                    self._read_until(call, until, now)
                finally:
                    with self.lock:
                        self._pass_on()
            else:
                left = (until - self._clock.now()) / SECOND
                woken = left > 0 and call.bell.acquire(timeout=left)
                with self.lock:
                    self._followers.pop(call, None)
                    if woken:
                        call.rung = False

    def _pass_on(self) -> None:
        """Let another one read that waits; where many do, a thread that does nothing else. Called under the lock."""
        self._reader = None
        if self._closed:
            self._let_go()
            return
        if len(self._followers) >= CROWD:
            if self._crowd_bell is None:
                bell = threading.Semaphore(0)
                args = (self.lock, bell)
                with contextlib.suppress(RuntimeError):  # there is no thread to be had: one of those that wait reads
                    name = "lessor-paxos-reader"
                    threading.Thread(target=self._read_for_all, args=args, name=name, daemon=True).start()
                    self._crowd_bell = bell
            if self._crowd_bell is not None:
                self._reader = self._crowd
                self._crowd_bell.release()
                return
        for other in self._followers:
            if other.left:
                other.ring()
                return

    def _read_for_all(self, lock: threading.Lock, bell: threading.Semaphore) -> None:
        """Read while there is a crowd: to wake one of them up for that, again and again, takes longer than to read."""
        while True:
            bell.acquire()
            if self._closed:
                return
            while self._followers and not self._closed:
                self._read(IDLE)
            with lock:
                self._pass_on()

    def _look_at_watch(self, call: Call, now: int) -> int:
        """Do what is due; return when the next thing is."""
        due = now + 3600 * SECOND
        for task in call.tasks:
            if task.done or not task.due_ns:
                continue
            if task.due_ns <= now:
                if not task.number:
                    self._begin(call, task, self._clock.mark(), self._clock.wall_us())
                elif task.answers() >= self.majority:
                    self._time_out(call, task, now)
                else:
                    self._drop_the_dead(now)
                if task.due_ns <= now:
                    task.due_ns = now + ATTEMPT_NS
            if task.due_ns < due and not task.done:
                due = task.due_ns
        if self._outbox:
            self._flush(now)
        return due

    def _time_out(self, call: Call, task: Task, now: int, *, last: bool = True) -> None:
        steps = task.on_timeout(now, last=last)
        if task.done:
            self._over(call, task)
        self._act(call, task, steps, now)

    def _read_until(self, call: Call, until: int, now: int) -> None:
        """Take in what comes, for all calls, until this one is over or it is time."""
        while now < until and call.left and not call.rung and not self._closed:
            now = self._read((until - now) / SECOND)

    def _read(self, seconds: float) -> int:
        """Take in what is there, or comes within that time; return when that was."""
        ready = self._poll.poll(seconds * 1000)
        with self.lock:
            now = self._take_in(ready)
            if not self._closed:
                self._admit()
        return now

    def _take_in(self, ready: list[tuple[int, int]]) -> int:
        # Once for all of it: each reading may be a call of the system.
        now, wall_us = self._clock.now(), self._clock.wall_us()
        if self._closed:
            return now
        for descriptor, event in ready:
            if descriptor == self._pipe[0]:
                with contextlib.suppress(BlockingIOError):
                    os.read(descriptor, 1024)
                continue
            node = self._by_descriptor.get(descriptor)
            if node is not None:
                self._hear(node, event, now, wall_us)
        if self._outbox:
            self._flush(now)
        return now

    # --- what nodes say -------------------------------------------------------------------------------------------

    def _hear(self, node: Node, event: int, now: int, wall_us: int) -> None:
        link = node.link
        assert link is not None
        try:
            if event & select.POLLOUT:
                link.send_more()
                self._watch(link)
            if event & ~select.POLLOUT:
                node.heard_ns = now
                for message in link.receive():
                    if isinstance(message, frames.Answer):
                        self._answered(node, message, now, wall_us)
                    elif isinstance(message, frames.Silent):
                        self._silent(node, message, now)
                    elif isinstance(message, frames.Refusal):
                        raise ConnectionAbortedError(message.why)
        except OSError as error:
            self._lose(node, error)

    def _answered(self, node: Node, answer: frames.Answer, now: int, wall_us: int) -> None:
        flight = self._flights.get(answer.serial)
        if flight is None or node not in flight.waiting or len(answer.verdicts) != len(flight.entries):
            return
        self._landed(answer.serial, flight, node)
        assert node.link is not None
        who, incarnation = node.link.acceptor, node.link.incarnation
        for (call, task, send), frame in zip(flight.entries, answer.verdicts, strict=True):
            verdict, was_done = frame.body, task.done
            if was_done and type(verdict) in NO_NEWS and not task.heeds_all:
                continue
            steps = task.on_verdict(who, send.attempt, verdict, now, wall_us, incarnation=incarnation)
            if task.done is not was_done:
                self._over(call, task)
            if steps:
                self._act(call, task, steps, now)
        self._enough(flight, now)

    def _landed(self, serial: int, flight: Flight, node: Node) -> None:
        waiting = flight.waiting
        waiting.discard(node)
        flight.heard += 1
        if flight.heard >= self.majority or not waiting:
            self._lanes.pop(serial, None)
            # Where there are too few answers, a node that comes back has yet to be asked.
            if not waiting and (flight.heard >= self.majority or flight.to is not None or not flight.still_open()):
                self._flights.pop(serial, None)

    def _enough(self, flight: Flight, now: int) -> None:
        """Where all that can be reached have answered, wait for nobody else."""
        if flight.waiting:
            return
        for call, task, send in flight.entries:
            if not task.done and send.attempt and task.number == send.attempt and task.answers() >= self.majority:
                self._time_out(call, task, now, last=False)

    def _silent(self, node: Node, message: frames.Silent, now: int) -> None:
        node.silent_until_ns = now + max(message.left_ns, SECOND)
        flight = self._flights.get(message.serial)
        if flight is None:
            return
        self._landed(message.serial, flight, node)
        self._enough(flight, now)
        silent = sum(other.silent_until_ns > now or other.link is None for other in self.nodes)
        if silent > self.acceptors - self.majority:
            for call, task, _ in flight.entries:
                if not task.done:
                    self._finish(call, task, Unknown(self._trouble()))

    # --- sending --------------------------------------------------------------------------------------------------

    def _flush(self, now: int) -> None:
        """Send what is to be sent: the same frame to all, where it is for all."""
        while self._outbox:
            outbox, self._outbox = self._outbox, []
            for start in range(0, len(outbox), frames.MAX_ITEMS):
                part = outbox[start : start + frames.MAX_ITEMS]
                if not [send for _, _, send in part if send.to or send.but]:
                    self._launch(part, None, now)
                    continue
                for node in self.nodes:
                    who = node.link.acceptor if node.link is not None else ""
                    mine = [entry for entry in part if entry[2].to in {None, who} and who not in entry[2].but]
                    if mine and who:
                        self._launch(mine, node, now)

    def _launch(self, part: list[Entry], to: Node | None, now: int) -> None:
        """Send it in one frame, to one node or to all."""
        serial = self._serial = self._serial + 1
        frame = encode(frames.Ask(serial, [ITEMS[type(send.item)](send.item) for _, _, send in part]))
        if len(frame) > frames.MAX_REQUEST and len(part) > 1:
            half = len(part) // 2
            self._launch(part[:half], to, now)
            self._launch(part[half:], to, now)
            return
        flight = Flight(part, frame, now, to)
        self._flights[serial] = flight
        for node in self.nodes if to is None else [to]:
            if node.link is not None:
                flight.waiting.add(node)
                self._send(node, frame)
        if to is None and flight.waiting:
            self._lanes[serial] = now
        while len(self._flights) > MOST_FLIGHTS:
            old, _ = self._flights.popitem(last=False)
            self._lanes.pop(old, None)

    def _send(self, node: Node, frame: bytearray) -> None:
        link = node.link
        assert link is not None
        try:
            link.send(frame)
        except OSError as error:
            node.error = StoreUnavailable("paxos", f"{node.place}: {error.strerror or error}")
            link.shut()  # whoever reads finds it ended, and does the rest
            return
        if link.wants_to_send:
            self._watch(link)
            self._press()

    def _watch(self, link: Link) -> None:
        events = select.POLLIN | (select.POLLOUT if link.wants_to_send else 0)
        self._poll.register(link.descriptor, events)

    # --- connections ----------------------------------------------------------------------------------------------

    def _wait_for_nodes(self, give_up: int) -> None:
        """Wait until a majority is connected, or clearly can't be."""
        with self.lock:
            before = {node: node.failures for node in self.nodes}
            for node in self.nodes:
                if node.link is None:
                    self._try(node)

            def settled() -> bool:
                hopeless = sum(node.link is None and node.failures > before[node] for node in self.nodes)
                return self._ready or self._closed or hopeless > self.acceptors - self.majority

            left = (give_up - self._clock.now()) / SECOND
            self._reached.wait_for(settled, max(0.0, left))
            if self._ready:
                left = min(THE_LAST_SECONDS, (give_up - self._clock.now()) / SECOND)
                self._reached.wait_for(lambda: all(node.link or node.error for node in self.nodes), max(0.0, left))
            else:
                wrong = next((node.error for node in self.nodes if isinstance(node.error, ConfigError)), None)
                raise wrong or self._trouble()

    def _try(self, node: Node) -> None:
        """Have a thread try to reach a node."""
        if not node.trying and not self._closed:
            node.trying = True
            name = f"lessor-paxos-{node.place}"
            try:
                threading.Thread(target=self._reach, args=(node, self.lock), name=name, daemon=True).start()
            except RuntimeError as error:  # there is none to be had; with the next call it is tried again
                node.trying = False
                node.error = StoreUnavailable("paxos", f"{node.place} can't be reached: {error}")
                node.failures += 1

    def _reach(self, node: Node, lock: threading.Lock) -> None:
        """Connect to a node, for as long as it takes."""
        nap = threading.Event()
        pause = FIRST_PAUSE
        address = self.address
        while True:
            link = None
            error: LessorError | None = None
            try:
                link = connect(node.place, address.secret, address.context, CONNECT_SECONDS)
            except LessorError as trouble:
                error = trouble
            except Exception as trouble:  # noqa: BLE001 - whatever it is, this thread is the only one that goes on trying
                error = StoreUnavailable("paxos", f"{node.place} can't be reached: {type(trouble).__name__}")
            with lock:
                if link is not None:
                    error = self._objection(node, link)
                if self._closed:
                    if link is not None:
                        link.close()
                    return
                if link is not None and error is not None:
                    link.close()
                elif link is not None:
                    self._join(node, link)
                    return
                node.error = error
                node.failures += 1
                self._reached.notify_all()
            nap.wait(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _objection(self, node: Node, link: Link) -> ConfigError | None:
        """Say what speaks against this one: what is counted as three nodes must be three, of one cluster."""
        if len(link.cluster) != self.acceptors:
            return ConfigError(
                f"the URL names {self.acceptors} nodes, and the cluster of {node.place} has {len(link.cluster)}"
            )
        for other in self.nodes:
            if other is not node and other.link is not None and other.link.acceptor == link.acceptor:
                return ConfigError(f"{node.place} and {other.place} are both node {link.acceptor!r}")
        return self._other_cluster(node, link)

    def _other_cluster(self, node: Node, link: Link) -> ConfigError | None:
        """Say if a node has others for its cluster than most. Its majorities and theirs need have nobody in common."""
        node.cluster = link.cluster
        said = Counter(each.cluster for each in self.nodes if each.cluster)
        (most, votes), *others = said.most_common()
        if not others:
            return None
        if votes >= self.majority:
            for each in self.nodes:
                if each.link is not None and each.cluster != most:
                    each.link.shut()
            if link.cluster == most:
                return None
        return ConfigError(
            f"{node.place} belongs to a cluster of {', '.join(link.cluster)}, and others to one of "
            f"{', '.join(most if most != link.cluster else others[0][0])}: give each node all the others as --peers"
        )

    def _join(self, node: Node, link: Link) -> None:
        """Take a node in, and tell it what is still open."""
        now = self._clock.now()
        node.link, node.error, node.failures, node.trying = link, None, 0, False
        node.heard_ns, node.silent_until_ns = now, 0
        self._by_descriptor[link.descriptor] = node
        self._watch(link)
        for serial, flight in list(self._flights.items()):
            if flight.to is node or not (flight.waiting or flight.still_open()):
                del self._flights[serial]
            # What was asked and withdrawn, or given back, while this node was away must not reach it: that word won't.
            part = flight.still_open() if flight.to in {None, node} else []
            if part:
                self._launch(part, node, now)
        self._reached.notify_all()
        self._press()

    def _lose(self, node: Node, error: OSError) -> None:
        """Let a connection go, and try to get it back."""
        link, node.link = node.link, None
        assert link is not None
        self._poll.unregister(link.descriptor)
        del self._by_descriptor[link.descriptor]
        link.close()
        node.error = node.error or StoreUnavailable("paxos", f"{node.place}: {error.strerror or error}")
        now = self._clock.now()
        for serial, flight in list(self._flights.items()):
            if node in flight.waiting:
                flight.waiting.discard(node)
                if not flight.waiting:
                    self._lanes.pop(serial, None)
                self._enough(flight, now)
                if not flight.waiting and all(task.done for _, task, _ in flight.entries):
                    self._flights.pop(serial, None)
        self._try(node)

    def _drop_the_dead(self, now: int) -> None:
        """End connections on which nothing has come for long although something should have."""
        for flight in self._flights.values():
            if now - flight.sent_ns < DEAD_NS:
                return
            for node in flight.waiting:
                if node.link is not None and now - node.heard_ns > DEAD_NS:
                    node.link.shut()

    def _press(self) -> None:
        """Let whoever reads look again at what there is to poll."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._pipe[1], b"!")

    def close(self) -> None:
        """Let go of all connections. Whoever waits gets no answer any more."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self._reached.notify_all()
            if self._crowd_bell is not None:
                self._crowd_bell.release()
            for call in self._followers:
                call.ring()
            if self._reader is None:
                self._let_go()
            else:
                self._reader.ring()
                self._press()  # whoever reads lets go of what it polls

    def _let_go(self) -> None:
        """Close what is open, when nobody reads any more."""
        for node in self.nodes:
            if node.link is not None:
                node.link.shut()
                node.link.close()
                node.link = None
        self._by_descriptor.clear()
        for descriptor in self._pipe:
            os.close(descriptor)
        self._pipe = ()
