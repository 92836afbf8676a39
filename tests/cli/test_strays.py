"""Descendants of COMMAND that left its session and its parent: they end with the lease, whatever happens."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from lessor.cli.cgroup import ControlGroup
from tests.cli.processes import alive, events, finish, guardian_of, held_to_the_end, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.processes import Cli

WITHOUT_CONTROL_GROUP = """
import sys
from lessor.cli.cgroup import ControlGroup
ControlGroup.make = classmethod(lambda cls: None)
from lessor.cli.main import main
sys.exit(main())
"""
STRAY = """
import os, signal, sys
if os.fork():
    signal.pause()
os.setsid()
if os.fork():
    os._exit(0)
for fd in (0, 1, 2):
    os.close(fd)
def told(signum, frame):
    with open("told", "a") as file:
        file.write(f"{signum} ")
signal.signal(signal.SIGTERM, told)
with open("pids.new", "w") as file:
    file.write(f"{os.getpid()}\\n")
os.rename("pids.new", "pids")
while True:
    signal.pause()
"""
"""COMMAND waits; its grandchild is an orphan in a session of its own, and doesn't mind SIGTERM."""
DAEMON = "import os, time" + STRAY.replace(
    "    signal.pause()\nos.setsid",
    "    while not os.path.exists('pids'):\n        time.sleep(0.01)\n    os._exit(0)\nos.setsid",
    1,
)
"""The same, but COMMAND ends once the daemon is on its own."""
HOPPERS = """
import os, sys, time
limit = time.monotonic() + 30
chains = 3
for _ in range(chains):
    if os.fork() == 0:
        break
else:
    print("on", flush=True)
    while True:
        time.sleep(1)
os.close(1)
os.close(2)
while time.monotonic() < limit:
    if os.fork():
        os._exit(0)
    os.setsid()
"""
"""Chains of processes that fork and exit, each in a session of its own, as fast as they can."""


OTHER_USER = """
import os, signal, sys
if os.fork():
    signal.pause()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setsid()
file = open("pids.new", "w")
os.rename("pids.new", "pids")
os.setuid(65534)
file.write(f"{os.getpid()}\\n")
file.flush()
os.read(int(sys.argv[1]), 1)
"""
"""COMMAND waits; its child has become another user, and ends when it reads the end of a pipe."""


@pytest.fixture(params=["with what there is", "without a control group"])
def means(request: pytest.FixtureRequest, cli: Cli) -> Iterator[Cli]:
    if request.param == "without a control group":
        cli.lessor = [sys.executable, "-c", WITHOUT_CONTROL_GROUP]
    yield cli
    for pid in remains(cli.folder):
        os.kill(pid, signal.SIGKILL)


def remains(folder: Path) -> list[int]:
    """Return the living processes that work in the folder."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/cwd") == str(folder) and alive(int(name)):
                found.append(int(name))
        except OSError:
            continue
    return found


def start(cli: Cli, program: str, *options: str, ttl: str = "30s") -> tuple[subprocess.Popen[str], int]:
    words = ["run", "--json", "--ttl", ttl, "--grace", "200ms", *options, "x", "--", sys.executable, "-c", program]
    process = cli.start(*words, cwd=cli.folder)
    (stray,) = cli.group()
    assert os.getsid(stray) != os.getsid(process.pid)
    return process, stray


def test_after_a_loss(means: Cli) -> None:
    process, stray = start(means, STRAY)
    with means.client() as client:
        client.revoke("x", force=True)
        assert finish(process)[0] == 79
    assert not alive(stray)
    assert (means.folder / "told").read_text() == "15 "
    assert remains(means.folder) == []


def test_after_the_supervisor_was_killed(means: Cli) -> None:
    process, stray = start(means, STRAY)
    guardian = guardian_of(process.pid)
    with means.client() as client:
        process.kill()
        held_to_the_end(client, [stray])
    until(lambda: not alive(guardian), "the guardian has ended")
    assert remains(means.folder) == []


def test_after_the_supervisor_was_stopped(cli: Cli) -> None:
    process, stray = start(cli, STRAY, ttl="1500ms")
    with cli.client() as client:
        os.kill(process.pid, signal.SIGSTOP)
        held_to_the_end(client, [stray])
    os.kill(process.pid, signal.SIGCONT)
    assert finish(process)[0] == 79


def test_after_the_guardian_was_killed(means: Cli) -> None:
    process, stray = start(means, STRAY)
    os.kill(guardian_of(process.pid), signal.SIGKILL)
    assert finish(process)[0] == 70
    assert not alive(stray)


def test_a_guardian_that_is_stopped_holds_nothing_up(cli: Cli) -> None:
    process, stray = start(cli, STRAY)
    os.kill(guardian_of(process.pid), signal.SIGSTOP)
    with cli.client() as client:
        client.revoke("x", force=True)
    assert finish(process)[0] == 79
    assert not alive(stray)


def test_sigterm_reaches_it_once_command_has_ended_and_the_lease_is_released_after_it(means: Cli) -> None:
    process, stray = start(means, STRAY)
    with means.client() as client:
        place = client.enqueue("x")
        process.send_signal(signal.SIGTERM)
        assert place.wait(60)
        assert not alive(stray)
        code, _, err = finish(process)
    assert code == 128 + signal.SIGTERM
    assert (means.folder / "told").read_text() == "15 "
    assert [event["event"] for event in events(err)][-3:] == ["stopping", "exited", "released"]


def test_a_daemon_of_a_command_that_succeeds_ends_too(means: Cli) -> None:
    process, daemon = start(means, DAEMON)
    assert finish(process)[0] == 0
    assert not alive(daemon)
    assert remains(means.folder) == []


def test_a_daemon_may_be_left(means: Cli) -> None:
    process, daemon = start(means, DAEMON, "--leave-daemons")
    code, _, err = finish(process)
    assert (code, [event["event"] for event in events(err)]) == (0, ["acquired", "started", "exited", "released"])
    assert alive(daemon)
    assert not (means.folder / "told").exists()
    with open(f"/proc/{daemon}/cgroup", encoding="utf-8") as file:
        assert "lessor-run-" not in file.read()


def test_what_a_command_leaves_in_its_own_session_ends_even_if_daemons_may_stay(means: Cli) -> None:
    program = "import subprocess; print(subprocess.Popen(['sleep', '60'], process_group=0, stdout=2).pid, flush=True)"
    words = ["run", "--leave-daemons", "x", "--", sys.executable, "-c", program]
    process = means.start(*words, cwd=means.folder)
    code, out, _ = finish(process)
    assert code == 0
    assert not alive(int(out))


def test_daemons_that_may_be_left_end_all_the_same_when_the_lease_is_lost(means: Cli) -> None:
    process, stray = start(means, STRAY, "--leave-daemons")
    with means.client() as client:
        client.revoke("x", force=True)
    assert finish(process)[0] == 79
    assert not alive(stray)


@pytest.mark.parametrize("victim", ["nobody", "supervisor"])
def test_processes_that_fork_while_they_are_killed(means: Cli, victim: str) -> None:
    words = ["run", "--on-lost", "kill", "x", "--", sys.executable, "-c", HOPPERS]
    process = means.start(*words, cwd=means.folder)
    guardian = guardian_of(process.pid)
    assert process.stdout
    process.stdout.readline()
    if victim == "supervisor":
        process.kill()
    else:
        with means.client() as client:
            client.revoke("x", force=True)
        assert finish(process)[0] == 79
    until(lambda: not alive(guardian), "the guardian has ended")
    assert remains(means.folder) == []


def test_a_control_group_is_removed_with_its_last_process(cli: Cli) -> None:
    probe = ControlGroup.make()
    if probe is None:
        pytest.skip("no control group can be made here")
    probe.remove()
    done = cli("run", "x", "--", "grep", "^0::", "/proc/self/cgroup")
    name = done.stdout.strip().rpartition("/")[2]
    assert name.startswith("lessor-run-")
    assert name not in os.listdir(os.path.dirname(probe.path))


def test_a_run_within_a_run_leaves_no_control_group(cli: Cli) -> None:
    """The inner one is killed and can't remove its own, which is below that of the outer one."""
    probe = ControlGroup.make()
    if probe is None:
        pytest.skip("no control group can be made here")
    probe.remove()
    inner = [*cli.lessor, "run", "y", "--", sys.executable, "-c", STRAY]
    process = cli.start("run", "--on-lost", "kill", "x", "--", *inner, cwd=cli.folder)
    (stray,) = cli.group()
    with open(f"/proc/{stray}/cgroup", encoding="utf-8") as file:
        outer = next(part for part in file.read().split("/") if part.startswith("lessor-run-"))
    guardian = guardian_of(process.pid)
    process.kill()
    until(lambda: not alive(guardian), "the guardian has ended")
    assert not alive(stray)
    assert outer not in os.listdir(os.path.dirname(probe.path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_that_may_not_be_killed_is_declared_and_the_lease_is_kept_for_it(cli: Cli) -> None:
    read, write = os.pipe()
    command = [sys.executable, "-c", OTHER_USER, str(read)]
    cli.lessor = ["setpriv", "--bounding-set", "-kill", sys.executable, "-c", WITHOUT_CONTROL_GROUP]
    words = ["run", "--json", "--grace", "100ms", "x", "--", *command]
    process = cli.start(*words, cwd=cli.folder, pass_fds=[read])
    os.close(read)
    (stray,) = cli.group()
    process.send_signal(signal.SIGTERM)
    assert process.stderr
    told = ""
    while "kept until they end" not in told:
        told = process.stderr.readline()
    assert str(stray) in told
    with cli.client() as client:
        assert client.get("x")
        os.close(write)  # that is what it waits for
        code, _, err = finish(process)
        assert client.get("x") is None
    assert code == 128 + signal.SIGTERM
    assert [event["event"] for event in events(err)] == ["exited", "released"]
