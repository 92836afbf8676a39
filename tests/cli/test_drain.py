from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from lessor.runtime.clock import SYSTEM
from tests.cli.processes import alive, events, finish, until

if TYPE_CHECKING:
    from tests.cli.processes import Cli

UNHURRIED = """
import signal, time
from lessor.runtime.clock import SYSTEM
def finish(*_):
    time.sleep(3)
    open("ended", "w").write(str(SYSTEM.host_ns()))
    raise SystemExit(5)
signal.signal(signal.SIGTERM, finish)
print(1, flush=True)
signal.pause()
"""
"""A command that takes longer to end than its lease lasts without a renewal."""
STUBBORN = 'trap "" TERM; echo $$ > pids; echo on; while :; do sleep 0.1; done'


def test_the_lease_is_renewed_until_the_command_has_ended_and_released_only_then(cli: Cli) -> None:
    words = ["run", "--json", "--ttl", "2.5s", "--drain", "30s", "x", "--", sys.executable, "-c", UNHURRIED]
    process = cli.start(*words, cwd=cli.folder)
    assert process.stdout
    process.stdout.readline()
    with cli.client() as client:
        place = client.enqueue("x")
        process.send_signal(signal.SIGTERM)
        lease = place.wait(60)
        got = SYSTEM.host_ns()
        assert lease
        assert int((cli.folder / "ended").read_text()) < got
        code, _, err = finish(process)
        assert code == 5
        told = [event["event"] for event in events(err)]
        assert told == ["acquired", "started", "draining", "exited", "released"]


def test_a_command_that_does_not_end_in_time_is_killed_before_the_release(cli: Cli) -> None:
    words = ["run", "--json", "--ttl", "2s", "--drain", "500ms", "x", "--", "sh", "-c", STUBBORN]
    process = cli.start(*words, cwd=cli.folder)
    assert process.stdout
    process.stdout.readline()
    with cli.client() as client:
        place = client.enqueue("x")
        asked = SYSTEM.host_ns()
        process.send_signal(signal.SIGTERM)
        assert place.wait(60)
        assert SYSTEM.host_ns() - asked >= 500_000_000
        assert not any(alive(pid) for pid in cli.group())
        code, _, err = finish(process)
    assert code == 128 + signal.SIGKILL
    told = [event["event"] for event in events(err)]
    assert told == ["acquired", "started", "draining", "stopping", "exited", "released"]


def test_without_a_bound_the_command_takes_its_time(cli: Cli) -> None:
    process = cli.start("run", "--ttl", "2.5s", "x", "--", sys.executable, "-c", UNHURRIED, cwd=cli.folder)
    assert process.stdout
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    until((cli.folder / "ended").exists, "the end")
    assert finish(process)[0] == 5
