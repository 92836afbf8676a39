"""Runs COMMAND while the lease is held, and not longer. It can't kill a process of another user's.

::

    granted                        TERM at                KILL at     deadline      freed by the store
      ├──────────────────────────────┼───────── grace ───────┼── slack ──┼── margin ──────┤

Every renewal moves all of it to the right, and tells the guardian. A definite loss brings TERM forward to now.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lessor.cli import codes
from lessor.cli.group import Ended, Stopped
from lessor.cli.guardian import DEADLINE, GRACE, STOPPING
from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.holder import State
from lessor.core.ops import Loss
from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from lessor.cli.foreground import Foreground
    from lessor.cli.guardian import Guardian
    from lessor.cli.report import Report
    from lessor.cli.signals import Bell
    from lessor.client.lease import Lease
    from lessor.core.timing import Timing

LONGEST_SLEEP_NS: Final = 250 * MILLISECOND
"""Timers stand still during suspend; this bounds how late a look is after waking up."""
LOOK_NS: Final = 10 * MILLISECOND
"""How often to look for what no signal tells, and to kill what was forked since the last SIGKILL."""
SLACK_NS: Final = 250 * MILLISECOND
"""How long a signal may take to end processes on a busy machine."""
SAME_NS: Final = MILLISECOND
"""Deadlines closer than this are the same one, read at two moments."""
UNKILLABLE_NS: Final = 2 * SECOND
"""How long we wait for processes that SIGKILL has not ended yet: in the kernel, or not ours to kill."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to end COMMAND, counted back from the deadline."""

    grace_ns: int
    slack_ns: int
    every_ns: int
    """How often to look whether a renewal has moved the deadline."""

    @classmethod
    def of(cls, timing: Timing, grace: float) -> Limits:
        """Fit the grace into the lease's safe time."""
        # The guardian counts on one clock, the holder on the faster of two: the drift between them is slack too.
        slack = min(SLACK_NS, timing.safe_ns // 10) + int(timing.safe_ns * timing.drift)
        return cls(min(int(grace * SECOND), timing.safe_ns // 3), slack, min(timing.ttl_ns // 10, LONGEST_SLEEP_NS))


class Supervisor:
    """Watches the lease, COMMAND, the guardian and the signals, all from one loop."""

    def __init__(
        self,
        lease: Lease,
        guardian: Guardian,
        *,
        foreground: Foreground,
        bell: Bell,
        report: Report,
        grace: float,
        on_lost: str,
        drain: float | None,
        leave_daemons: bool,
    ) -> None:
        self._lease, self._guardian = lease, guardian
        self._foreground, self._bell, self._report = foreground, bell, report
        self._limits = Limits.of(lease.timing, grace)
        self._on_lost = on_lost
        self._drain = drain
        self._leave_daemons = leave_daemons
        self._drained_by: int | None = None
        """When COMMAND, which was asked to end, must have done so."""
        self._state = State.HELD
        self._kill_at = self._told = 0
        self._stopping = self._killed = self._told_unkillable = False
        self._verdict: int | None = None
        """The exit code, where it is not COMMAND's own."""
        self._ended: Ended | None = None
        self._leaving = False
        """COMMAND has ended by itself, and its daemons are to go on."""
        guardian.tell(GRACE, self._limits.grace_ns)
        bell.also(guardian.fileno())
        lease.on_lost(lambda _: bell.ring())
        lease.on_jeopardy(lambda _: bell.ring())
        self._observe(SYSTEM.host_ns())

    def run(self) -> int:
        """Return the exit code when nothing that descends from COMMAND is left."""
        while True:
            now = SYSTEM.host_ns()
            self._observe(now)
            self._enforce(now)
            self._guardian.listen()
            self._take_news()
            self._check_guardian(now)
            if self._is_over(SYSTEM.host_ns()):
                break
            for signum in self._bell.wait(self._sleep_ns(SYSTEM.host_ns()) / SECOND):
                self._pass_on(signum)
        ended = self._ended or Ended(codes.INTERNAL)  # it can't be ended: then there is a verdict
        self._foreground.take_back(restore=ended.signum is not None or self._verdict is not None)
        if self._ended is not None:
            self._report.exited(ended.code, ended.signum)
        return ended.code if self._verdict is None else self._verdict

    # --- the lease ------------------------------------------------------------------------------------------------

    def _observe(self, now: int) -> None:
        """See how the lease is, and tell the guardian how long it lasts."""
        state, left = self._lease.state, self._lease.remaining
        if state is not State.LOST and not self._stopping:
            self._kill_at = now + int(left * SECOND) - self._limits.slack_ns
            if abs(self._kill_at - self._told) > SAME_NS:
                if self._told and self._kill_at - self._told > self._limits.every_ns // 2:
                    self._report.renewed(left)
                self._told = self._kill_at
                self._guardian.tell(DEADLINE, self._kill_at)
        if state is self._state:
            return
        self._state = state
        if state is State.JEOPARDY:
            self._report.jeopardy(left, revoked=self._lease.ending is Loss.REVOKED)
        elif state is State.HELD:
            self._report.safe(left)
        else:
            self._lost(self._lease.loss or Loss.EXPIRED, now)

    def _lost(self, reason: Loss, now: int) -> None:
        if self._on_lost == "warn":
            self._report.lost(reason, "COMMAND goes on, as --on-lost warn asks")
            return
        self._report.lost(reason, "COMMAND is stopped")
        if self._ended is None:
            self._stop(now, codes.LOST, f"the lease is lost ({reason})")

    def _enforce(self, now: int) -> None:
        """Send what is due."""
        limits = self._limits
        if self._drained_by is not None and now >= self._drained_by and not self._killed:
            self._kill_at = min(self._kill_at, now)
            self._stop(now, None, "it has not ended within the time that --drain gives it")
        if not self._stopping and self._on_lost != "warn" and self._state is not State.LOST:
            ahead = 0 if self._on_lost == "kill" else limits.grace_ns
            if now >= self._kill_at - ahead:
                self._stop(now, codes.LOST, "the lease is about to end")
        if self._stopping and now >= self._kill_at:
            self._killed = True
            self._end(signal.SIGKILL)  # again and again, for what was forked meanwhile

    def _stop(self, now: int, verdict: int | None, why: str) -> None:
        """Begin to end COMMAND: SIGKILL at the end of the grace, but never later than the deadline that was held."""
        if self._stopping:
            return
        self._stopping = True
        if self._verdict is None:
            self._verdict = verdict
        hard = self._on_lost == "kill"
        self._kill_at = min(self._kill_at, now if hard else now + self._limits.grace_ns)
        if not self._leaving:
            self._guardian.tell(STOPPING, self._kill_at)
        self._killed = hard or now >= self._kill_at
        self._end(signal.SIGKILL if self._killed else signal.SIGTERM)
        self._report.stopping("SIGKILL" if self._killed else "SIGTERM", why)

    def _end(self, signum: int) -> None:
        self._guardian.group.end(signum, daemons=not self._leaving)

    def _check_guardian(self, now: int) -> None:
        if self._guardian.acted and not self._stopping:
            self._stopping = True
            self._verdict = codes.LOST
            self._report.stopping("SIGTERM", "lessor itself was held up, and the lease is about to end")
        if self._guardian.dead:
            self._bell.not_any_more(self._guardian.fileno())
            if self._ended is None:
                self._stop(now, codes.INTERNAL, "its guardian died, and nothing would end it if lessor died too")

    # --- COMMAND --------------------------------------------------------------------------------------------------

    def _take_news(self) -> None:
        while (news := self._guardian.news()) is not None:
            if isinstance(news, Ended):
                self._ended = news
                self._leaving = self._leave_daemons and not self._stopping
                return
            self._stopped(news)

    def _is_over(self, now: int) -> bool:
        """Whether nothing is left of COMMAND; what is left is ended, since it must not go on without the lease."""
        if self._ended is not None and self._guardian.left is False:
            return True
        if self._leaving and not any(self._guardian.group.members(daemons=False)):
            self._guardian.leaves_daemons = True
            return True
        if self._ended is not None and self._guardian.left and not self._stopping:
            self._stop(now, None, "it has ended, and the processes that it left behind end with it")
        overdue = self._killed and now >= self._kill_at + UNKILLABLE_NS
        return overdue and self._cant_be_killed()

    def _cant_be_killed(self) -> bool:
        """Say that SIGKILL doesn't help. The lease is kept while it can be: COMMAND may still be at work."""
        if not self._guardian.dead:
            self._guardian.replace()  # perhaps it is stopped, and only can't tell
            return False
        lost = self._state is State.LOST
        if not self._told_unkillable:
            self._told_unkillable = True
            pids = ", ".join(str(pid) for pid, _ in self._guardian.group.members(daemons=not self._leaving))
            then = "the next holder may start while they run" if lost else "the lease is kept until they end"
            self._report.warn(f"SIGKILL has not ended part of COMMAND (processes {pids}): {then}")
        return lost

    def _sleep_ns(self, now: int) -> int:
        soon = self._limits.every_ns
        if self._leaving:
            return LOOK_NS
        if self._killed:
            return min(soon, max(LOOK_NS, (now - self._kill_at) // 10))
        if self._stopping or self._on_lost != "warn":
            gentle = not self._stopping and self._on_lost == "stop"
            soon = min(soon, self._kill_at - (self._limits.grace_ns if gentle else 0) - now)
        if self._drained_by is not None:
            soon = min(soon, self._drained_by - now)
        return max(soon, MILLISECOND)

    # --- signals and the terminal ---------------------------------------------------------------------------------

    def _pass_on(self, signum: int) -> None:
        if signum == signal.SIGCHLD:
            return
        if signum == signal.SIGCONT:
            if self._lease.remaining <= 0 and self._on_lost != "warn":
                return  # it must not go on; the loop ends it now
            self._foreground.give_if_interactive()
        if signum == signal.SIGTERM and self._drain is not None and self._drained_by is None:
            self._drained_by = SYSTEM.host_ns() + int(self._drain * SECOND)
            self._report.draining(self._drain)
        self._guardian.group.signal(signum)

    def _stopped(self, news: Stopped) -> None:
        """COMMAND was stopped: hand it the terminal if that is what it wants, else stop as the shell's job that we are."""
        foreground = self._foreground
        wants_terminal = news.signum in (signal.SIGTTIN, signal.SIGTTOU)
        if not foreground.exists:
            return
        if wants_terminal and foreground.give():
            self._guardian.group.signal(signal.SIGCONT)
            return
        if news.signum == signal.SIGSTOP and not foreground.given:
            return  # somebody stopped just COMMAND
        self._report.suspended(max(0.0, (self._kill_at - SYSTEM.host_ns()) / SECOND))
        foreground.take_back()
        if not _stop_ourselves(news.signum) and not wants_terminal:
            # There is no shell that could continue us, so nobody could continue COMMAND either.
            foreground.give()
            self._guardian.group.signal(signal.SIGCONT)


def _stop_ourselves(signum: int) -> bool:
    """Stop our own group, as the terminal would have. False: the kernel doesn't let a group without a shell stop."""
    continued = []
    before = signal.signal(signal.SIGCONT, lambda *_: continued.append(True))
    handler = signal.signal(signum, signal.SIG_DFL) if signum != signal.SIGSTOP else None
    os.killpg(os.getpgrp(), signum)
    # Here we stand still until somebody continues us; that signal is in the bell, too, which continues COMMAND.
    signal.signal(signal.SIGCONT, before)
    if handler is not None:
        signal.signal(signum, handler)
    return bool(continued)
