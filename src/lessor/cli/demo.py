"""``lessor demo``: three workers contend for one job; one is killed, one is stopped for longer than its lease lasts.

Real processes, real signals, the embedded store in a temporary folder. About 20 seconds, then what is to be said for
sure: the tokens rose, nobody overlapped, and the write of the one that overslept was refused.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lessor.cli import demo_drawing
from lessor.cli.demo_screen import (
    BOLD,
    GREEN,
    RED,
    SECOND,
    YELLOW,
    Caption,
    Claim,
    Line,
    Mark,
    Phase,
    Picture,
    Track,
    default_screen,
)
from lessor.cli.demo_worker import STEP_SECONDS, TTL, Ledger, store_url
from lessor.client.sync import Client
from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from lessor.cli.demo_screen import PlainLines, Timeline

NAMES = {"ada": 75, "bob": 215, "cleo": 114}
LENGTH = 20.0
FRAME = 0.1
PATIENCE = 45.0
"""Seconds after which a story that does not go on is given up."""
LATEST = TTL + 1.0
"""Seconds after the kill within which somebody must have taken over, on a busy computer too."""


@dataclass
class Turn:
    """One grant, as its worker saw it, on the clock that all processes of the host share."""

    number: int
    worker: str
    token: int
    start_ns: int
    until_ns: int
    """Until when the worker believed in it, as of the last time that it could say."""
    end_ns: int | None = None
    """Just before it was released; None where the worker never came to that."""


@dataclass
class Actor:
    """A worker: its row, its process, and what it has not finished saying."""

    track: Track
    process: subprocess.Popen[bytes] | None = None
    heard: bytes = b""
    works_at: int = 0
    """When it last looked that the job is its own, and went to work; 0 when it isn't at work."""
    steps: int = 0


class Stage:
    """The processes, what they report, and the picture of it."""

    def __init__(self, folder: str, screen: Timeline | PlainLines) -> None:
        self._folder = folder
        self._screen = screen
        self._selector = selectors.DefaultSelector()
        self._frame_at = 0
        self.actors = {name: Actor(Track(name, colour)) for name, colour in NAMES.items()}
        self.turns: list[Turn] = []
        self.refused: list[int] = []
        self.losses: list[str] = []
        now = SYSTEM.host_ns()
        self.picture = Picture(now, int(LENGTH * SECOND), [actor.track for actor in self.actors.values()])

    def begin(self) -> None:
        """Start the clock and the workers, one shortly after the other, so that their order is theirs."""
        self.picture.start_ns = SYSTEM.host_ns()
        for actor in self.actors.values():
            self.start(actor)

    def start(self, actor: Actor) -> None:
        """Start the worker's process, in a session of its own: the terminal's Ctrl-C is for us alone."""
        command = [sys.executable, "-m", "lessor.cli.demo_worker", actor.track.name, self._folder]
        with open(os.path.join(self._folder, "errors.log"), "ab") as errors:
            actor.process = subprocess.Popen(  # noqa: S603 - our own module
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        assert actor.process.stdout is not None
        self._selector.register(actor.process.stdout, selectors.EVENT_READ, actor)

    def signal(self, actor: Actor, number: signal.Signals) -> int:
        """Send it, and return when."""
        assert actor.process is not None
        os.kill(actor.process.pid, number)
        return SYSTEM.host_ns()

    def listen(self) -> None:
        """Hear what the workers say until the next frame is due, and draw it."""
        left = (self._frame_at - SYSTEM.host_ns()) / SECOND
        for key, _ in self._selector.select(max(0.0, min(left, FRAME))):
            self._hear(key.data, key.fd)
        now = SYSTEM.host_ns()
        if now >= self._frame_at:
            self._frame_at = now + int(FRAME * SECOND)
            self._screen.show(self.picture, now)

    def say(self, text: str, actor: Actor, style: str = "", at_ns: int | None = None) -> None:
        """Add a line to the log."""
        self.picture.log.append(Line(at_ns or SYSTEM.host_ns(), actor.track, text, style))

    def caption(self, text: str) -> None:
        """Change the caption."""
        self.picture.captions.append(Caption(SYSTEM.host_ns(), text))

    def turn_of(self, actor: Actor) -> Turn:
        """Return the worker's latest turn."""
        return next(turn for turn in reversed(self.turns) if turn.worker == actor.track.name)

    def close(self) -> None:
        """End all processes: kindly, then not. The stopped ones wake up first, or they could not obey."""
        for actor in self.actors.values():
            if actor.process is not None and actor.process.poll() is None:
                self.signal(actor, signal.SIGTERM)
                self.signal(actor, signal.SIGCONT)
        for actor in self.actors.values():
            if actor.process is not None:
                try:
                    actor.process.wait(3.0)
                except subprocess.TimeoutExpired:
                    actor.process.kill()
                    actor.process.wait()
                if actor.process.stdout is not None:
                    actor.process.stdout.close()
        self._selector.close()
        self._screen.close()

    # --- what the workers say -------------------------------------------------------------------------------------

    def _hear(self, actor: Actor, descriptor: int) -> None:
        data = os.read(descriptor, 65536)
        if not data:
            assert actor.process is not None
            if actor.process.stdout is not None:
                self._selector.unregister(actor.process.stdout)
                actor.process.stdout.close()
            if actor.process.wait() != -signal.SIGKILL:
                raise RuntimeError(f"{actor.track.name} ended by itself:\n{self._errors()}")
            return
        *lines, actor.heard = (actor.heard + data).split(b"\n")
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            getattr(self, "_on_" + message["what"])(actor, message)

    def _errors(self) -> str:
        with open(os.path.join(self._folder, "errors.log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:]

    def _on_waits(self, actor: Actor, message: dict[str, Any]) -> None:
        actor.track.enter(Phase.WAITS, message["at"])

    def _on_holds(self, actor: Actor, message: dict[str, Any]) -> None:
        at, token = message["at"], message["token"]
        number = len(self.turns) + 1
        last = self.turns[-1] if self.turns else None
        self.turns.append(Turn(number, actor.track.name, token, at, message["until"]))
        for other in self.actors.values():
            if other.track.phase is Phase.LEFT_OVER:
                other.track.enter(Phase.ASLEEP if other.process and other.process.poll() is None else None, at)
        actor.track.enter(Phase.HOLDS, at, f"#{number}")
        actor.steps = 0
        after = ""
        if last is not None and last.end_ns is not None:
            after = f", {(at - last.end_ns) / 1e6:.1f} ms after {last.worker} let go"
        elif last is not None:
            after = f", now that {last.worker}'s ran out"
        self.say(f"holds #{number}, token {token}{after}", actor, at_ns=at)

    def _on_works(self, actor: Actor, message: dict[str, Any]) -> None:
        actor.works_at = message["at"]
        self.turn_of(actor).until_ns = message["until"]

    def _on_wrote(self, actor: Actor, message: dict[str, Any]) -> None:
        actor.steps += 1
        actor.works_at = 0
        self.picture.ledger.append(Mark(message["at"], "•", f"\033[38;5;{actor.track.colour}m"))

    def _on_ends(self, actor: Actor, message: dict[str, Any]) -> None:
        actor.works_at = 0
        turn = self.turn_of(actor)
        turn.until_ns, turn.end_ns = message["until"], message["at"]
        actor.track.enter(None, message["at"])

    def _on_refused(self, actor: Actor, message: dict[str, Any]) -> None:
        at = message["at"]
        actor.works_at = 0
        self.refused.append(message["token"])
        self.picture.ledger.append(Mark(at, "⊘", BOLD + RED))
        actor.track.marks.append(Mark(at, "⊘", RED))
        self.say(f"writes as {message['token']}: refused, behind {message['newest']}", actor, RED, at)

    def _on_lost(self, actor: Actor, message: dict[str, Any]) -> None:
        self.losses.append(message["reason"])
        self.say(f"check() raises LeaseLost: {message['reason']}", actor, YELLOW, message["at"])
        actor.track.enter(None, message["at"])


class Story:
    """What befalls the workers. A generator: it yields what it waits for, and goes on when that is so."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.killed_ns = 0
        self.gap_ns: int | None = None
        self.finished = False

    def run(self) -> None:
        """Play it to the end, or give up."""
        stage = self._stage
        script = self._script()
        ready = next(script)
        stage.begin()
        while stage.picture.seconds(SYSTEM.host_ns()) < PATIENCE:
            stage.listen()
            while ready():
                following = next(script, None)
                if following is None:
                    self.finished = True
                    return
                ready = following

    def _script(self) -> Iterator[Callable[[], bool]]:
        stage = self._stage
        turns = stage.turns
        stage.caption("The workers take turns, first come, first served. A release hands over within milliseconds.")
        yield lambda: len(turns) >= 5 and self._at_work()
        yield from self._kill(stage.actors[turns[-1].worker])
        yield lambda: len(turns) >= 7 and self._at_work()
        yield from self._stop(stage.actors[turns[-1].worker])
        again = len(turns)
        yield lambda: len(turns) >= again + 1
        stage.caption("The work goes on: no two workers overlapped, and nothing stale was written.")
        yield lambda: len(turns) >= again + 3 and stage.picture.seconds(SYSTEM.host_ns()) >= LENGTH - 1

    def _kill(self, victim: Actor) -> Iterator[Callable[[], bool]]:
        stage, name = self._stage, victim.track.name
        turns = len(stage.turns)
        self.killed_ns = stage.signal(victim, signal.SIGKILL)
        victim.track.enter(Phase.LEFT_OVER, self.killed_ns)
        victim.track.marks.append(Mark(self.killed_ns, "✖", RED))
        stage.say("is killed with SIGKILL while it holds the job", victim, RED)
        stage.caption(f"{name} was killed and can't release. The others wait until its lease expires.")
        yield lambda: len(stage.turns) > turns
        heir = stage.turns[-1]
        self.gap_ns = heir.start_ns - self.killed_ns
        seconds = self.gap_ns / SECOND
        stage.caption(f"{heir.worker}, first in the queue, took over {seconds:.2f} s after the kill.")
        back = heir.start_ns + int(0.7 * SECOND)
        yield lambda: SYSTEM.host_ns() >= back
        stage.start(victim)
        victim.track.marks.append(Mark(SYSTEM.host_ns(), "▸", GREEN))
        stage.say("is started again", victim, GREEN)

    def _stop(self, victim: Actor) -> Iterator[Callable[[], bool]]:
        stage, name = self._stage, victim.track.name
        turns = len(stage.turns)
        at = stage.signal(victim, signal.SIGSTOP)
        victim.track.enter(Phase.LEFT_OVER, at)
        victim.track.marks.append(Mark(at, "‖", YELLOW))
        stage.say("is stopped with SIGSTOP, after its check and before its write", victim, YELLOW)
        stage.caption(f"{name} checked its lease and was paused just before its write.")
        yield lambda: len(stage.turns) > turns
        heir = stage.actors[stage.turns[-1].worker]
        stage.caption(f"The lease expired and {heir.track.name} holds the job now. {name} doesn't know yet.")
        yield lambda: heir.steps >= 3 and heir.track.phase is Phase.HOLDS
        at = stage.signal(victim, signal.SIGCONT)
        victim.track.enter(None, at)
        victim.track.marks.append(Mark(at, "▸", YELLOW))
        stage.say("wakes up (SIGCONT) and goes on as if nothing had been", victim, YELLOW)
        yield lambda: bool(stage.refused and stage.losses)
        stage.caption(f"{name} woke up and wrote before checking again. Its token is out of date: refused.")

    def _at_work(self) -> bool:
        """Whether the holder is in the middle of its turn, went to work just now, and has not come to write yet."""
        holder = self._stage.actors[self._stage.turns[-1].worker]
        just_now = SYSTEM.host_ns() - int(STEP_SECONDS / 2 * SECOND)
        return holder.works_at > just_now and holder.steps >= 2 and holder.track.phase is Phase.HOLDS


def run(drawing: str | None = None) -> int:
    """Play the demo; 0 if all that must hold did. With a path, draw the run there as an animated SVG."""
    previous = None
    if threading.current_thread() is threading.main_thread():
        previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with tempfile.TemporaryDirectory(prefix="lessor-demo-", ignore_cleanup_errors=True) as folder:
            return _play(folder, drawing)
    except KeyboardInterrupt:
        print("\nstopped; the workers have gone home")
        return 128 + signal.SIGINT
    except RuntimeError as error:  # a worker could not work: its own words say why
        print(error, file=sys.stderr)
        return 1
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _play(folder: str, drawing: str | None) -> int:
    screen = default_screen()
    stage = Stage(folder, screen)
    story = Story(stage)
    try:
        story.run()
        screen.show(stage.picture, SYSTEM.host_ns())
    finally:
        stage.close()
    claims = _judge(stage, story, folder)
    held = story.finished and all(claim.holds for claim in claims)
    verdict = "All invariants held." if held else "An invariant did NOT hold."
    if not story.finished:
        verdict = "The story did not come to its end in time."
    screen.conclude(claims, verdict, held=held)
    if drawing is not None:
        for path in demo_drawing.write(stage.picture, claims, drawing):
            print(f" drawn: {path}")
    return 0 if held else 1


def _judge(stage: Stage, story: Story, folder: str) -> list[Claim]:
    """Return what must be so, and what was found."""
    turns = sorted(stage.turns, key=lambda turn: turn.start_ns)
    together = overlaps(turns)
    rising = all(earlier.token < later.token for earlier, later in pairwise(turns))
    clean = [later.start_ns - earlier.end_ns for earlier, later in pairwise(turns) if earlier.end_ns is not None]
    typical = (
        f"{statistics.median(clean) / 1e6:.1f} ms typical, {max(clean) / 1e6:.1f} ms the longest" if clean else "none"
    )
    gap = (story.gap_ns or 0) / SECOND
    ledger = Ledger(folder)
    written = ledger.tokens()
    ledger.close()
    stale = sum(later < earlier for earlier, later in pairwise(written))
    refused = len(stage.refused)
    with Client(store_url(folder)) as client:
        left = len(client.list())
    return [
        Claim("grants", f"{len(turns)}, to {len({turn.worker for turn in turns})} workers in turn", len(turns) > 0),
        Claim("tokens strictly increasing", "yes" if rising else "no", rising),
        Claim("overlaps on the host's clock", str(together or "none"), together == 0),
        Claim("handovers after a release", typical, bool(clean)),
        Claim("takeover after the kill", f"{gap:.2f} s, of a lease of {TTL:g} s", 0 < gap <= LATEST),
        Claim("stale writes", f"{refused + stale} tried, {refused} refused by the token", refused > 0 and stale == 0),
        Claim("the one that overslept", f"check() raised LeaseLost ({', '.join(stage.losses)})", bool(stage.losses)),
        Claim("the ledger", f"{len(written)} lines, {stale or 'none'} out of order", stale == 0),
        Claim("left behind", f"{left} leases" if left else "nothing", left == 0),
    ]


def overlaps(turns: Sequence[Turn]) -> int:
    """Count the turns that began while one before still believed; a belief ends with the release or the deadline."""
    count = latest = 0
    for turn in turns:
        count += turn.start_ns < latest
        latest = max(latest, turn.until_ns if turn.end_ns is None else turn.end_ns)
    return count
