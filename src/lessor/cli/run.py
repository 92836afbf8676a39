"""``lessor run``: a command that runs only while a lease is held. It can't undo a write that is under way."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from lessor.cli import codes
from lessor.cli.cgroup import ControlGroup
from lessor.cli.command import Command
from lessor.cli.complaints import Complaint
from lessor.cli.foreground import Foreground
from lessor.cli.guardian import Guardian
from lessor.cli.report import Report
from lessor.cli.signals import Bell, Interrupted, WhileWaiting
from lessor.cli.supervisor import Supervisor
from lessor.client.sync import Client
from lessor.core.clock import SECOND
from lessor.core.lease import check_resource
from lessor.errors import LeaseHeld, LessorError
from lessor.runtime.log import log
from lessor.stores.base import Capability

if TYPE_CHECKING:
    import argparse

    from lessor.client.lease import Lease


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Wait for the lease, run COMMAND, release; return the exit code."""
    report = Report(args.resource, as_json=args.json, verbose=args.verbose)
    if args.json:
        report.take_over(log())
    try:
        return _run(args, words, report)
    except Interrupted as interrupted:
        report.interrupted(interrupted.signum)
        return codes.SIGNAL + interrupted.signum
    except LeaseHeld as held:
        complaint = Complaint.about(held)
        report.not_acquired(held, complaint)
    except Exception as error:
        if os.environ.get("LESSOR_DEBUG"):
            raise
        complaint = Complaint.about(error)
        report.error(complaint, type(error).__name__)
    return complaint.code


def _run(args: argparse.Namespace, words: list[str], report: Report) -> int:
    check_resource(args.resource)
    sys.stdout.flush()
    sys.stderr.flush()
    # Both processes are forked before there is a thread or an open store: forking later would copy locks and connections.
    cgroup = ControlGroup.make()
    try:
        command = Command(words)
        guardian = Guardian(command.become, cgroup, gentle=args.on_lost != "kill", enforce=args.on_lost != "warn")
    except OSError as error:
        if cgroup is not None:
            cgroup.remove()
        complaint = Complaint(f"no process can be started for COMMAND: {error.strerror or error}", "", codes.SYSTEM)
        report.error(complaint, type(error).__name__)
        return complaint.code
    if not guardian.follows:
        report.warn("processes that detach themselves from COMMAND can't be followed on this host")
    # A store that only this process sees would exclude nobody.
    needed = Capability.CROSS_HOST | Capability.CROSS_PROCESS if args.require else Capability.CROSS_PROCESS
    try:
        with Client(args.url, holder=args.holder, require=needed) as client:
            if args.url is None and not os.environ.get("LESSOR_URL") and not _at_a_terminal():
                report.warn(
                    f"no store was named: the leases are in {client.url}, which other hosts don't see "
                    "(name a store with --url or LESSOR_URL)"
                )
            with WhileWaiting() as waiting:
                lease = _acquire(client, args, report)
            report.acquired(lease.token, lease.holder, client.url)
            try:
                return _hold(client, lease, command, guardian, report=report, args=args, waiting=waiting)
            finally:
                guardian.dismiss()  # before the lease goes, whatever went wrong
                _release(lease, report)
    finally:
        guardian.dismiss()
        if cgroup is not None:
            cgroup.remove()


def _at_a_terminal() -> bool:
    """Whether a person is there, as opposed to cron or a service manager."""
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            if os.isatty(fd):
                return True
    return False


def _acquire(client: Client, args: argparse.Namespace, report: Report) -> Lease:
    wait = 0.0 if args.no_wait else args.wait
    try:
        return client.acquire(args.resource, args.ttl, 0, hold_at_least=args.hold_at_least)
    except LeaseHeld as held:
        if wait == 0:
            raise
        report.waiting(held)
    return client.acquire(args.resource, args.ttl, wait, hold_at_least=args.hold_at_least)


def _hold(
    client: Client,
    lease: Lease,
    command: Command,
    guardian: Guardian,
    *,
    report: Report,
    args: argparse.Namespace,
    waiting: WhileWaiting,
) -> int:
    """Run COMMAND under the lease."""
    bell = Bell()
    if waiting.signum is not None:  # it came too late to end the waiting, and must not be lost
        raise Interrupted(waiting.signum)
    foreground = Foreground(guardian.leader)
    supervisor = Supervisor(
        lease,
        guardian,
        foreground=foreground,
        bell=bell,
        report=report,
        grace=args.grace,
        on_lost=args.on_lost,
        drain=args.drain,
        leave_daemons=args.leave_daemons,
    )
    lease.check()
    foreground.give_if_interactive()
    failure = command.start(
        {
            "LESSOR_RESOURCE": lease.resource,
            "LESSOR_TOKEN": str(lease.token),
            "LESSOR_HOLDER": lease.holder,
            "LESSOR_URL": _url_for_command(client, args.url),
        }
    )
    if failure is not None:
        foreground.take_back()
        return _cant_execute(command.words[0], failure, report)
    report.started(guardian.leader)
    return supervisor.run()


def _url_for_command(client: Client, given: str | None) -> str:
    """Return how COMMAND opens the same store: a client's own URL has no password, so one that has is handed on."""
    given = given or os.environ.get("LESSOR_URL") or ""
    _, separator, rest = given.partition("://")
    return given if separator and "@" in rest.partition("/")[0] else client.url


def _cant_execute(name: str, failure: OSError, report: Report) -> int:
    if isinstance(failure, (FileNotFoundError, NotADirectoryError)):
        complaint = Complaint(f"{name}: not found: check the name and PATH", "", codes.NOT_FOUND)
    else:
        text = f"{name} can't be executed: {failure.strerror}: check its permissions and format"
        complaint = Complaint(text, "", codes.NOT_EXECUTABLE)
    report.error(complaint, type(failure).__name__)
    return complaint.code


def _release(lease: Lease, report: Report) -> None:
    try:
        if lease.release():
            report.released()
    except LessorError as error:
        report.not_released(error, lease.timing.ttl_ns / SECOND)
