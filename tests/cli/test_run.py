from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lessor.runtime.clock import SYSTEM
from tests.cli.processes import alive, children_of, events, finish, guardian_of, held_to_the_end, until
from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from tests.cli.processes import Cli

STUBBORN = 'trap "" TERM; (exec sleep 60) & echo $$ $! > pids; wait; sleep 60'
"""A command and a grandchild, neither of which minds SIGTERM."""
MEEK = "(exec sleep 60) & echo $$ $! > pids; wait"


def test_the_exit_code_is_the_commands(cli: Cli) -> None:
    assert cli("run", "x", "--", "true").returncode == 0
    assert cli("run", "x", "--", "sh", "-c", "exit 37").returncode == 37
    assert cli("run", "x", "--", "sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


def test_the_command_gets_its_words_its_input_and_the_lease(cli: Cli) -> None:
    script = 'cat; printf "%s|" "$@" "$LESSOR_RESOURCE" "$LESSOR_TOKEN" "$LESSOR_HOLDER" "$LESSOR_URL"'
    done = cli("run", "a/b", "--holder", "me", "--", "sh", "-c", script, "sh", "--", "-n", "", input="in\n", stdin=None)
    assert done.returncode == 0
    assert done.stderr == ""
    first, _, rest = done.stdout.partition("\n")
    words = rest.split("|")
    assert first == "in"
    assert words[:4] == ["--", "-n", "", "a/b"]
    assert int(words[4]) > 0
    assert words[5] == "me"
    with cli.client() as client:
        assert words[6] == client.url


def test_the_command_can_open_a_store_with_a_password(cli: Cli) -> None:
    with redis_server("--requirepass", "open sesame") as server:
        url = server.url.replace("redis://", "redis://:open%20sesame@")
        inner = [sys.executable, "-m", "lessor", "ls"]
        for words, environment in ((["--url", url], {}), ([], {"LESSOR_URL": url})):
            done = cli("run", *words, "job", "--", *inner, env=environment)
            assert done.returncode == 0, done.stderr
            assert "job" in done.stdout


def test_it_is_held_while_the_command_runs_and_released_after(cli: Cli) -> None:
    process = cli.start("run", "x", "--", "sh", "-c", "echo $$; read line", stdin=-1)
    assert process.stdout
    pid = int(process.stdout.readline())
    with cli.client() as client:
        assert client.get("x")
        assert os.getpgid(pid) == pid
        assert process.stdin
        process.stdin.write("go\n")
        assert finish(process)[0] == 0
        assert client.get("x") is None
        assert client.try_acquire("x")


def test_without_waiting(cli: Cli) -> None:
    with cli.client(holder="somebody") as client, client.acquire("x"):
        for words in (["-n"], ["--wait", "0"], ["--wait", "200ms"]):
            done = cli("run", "x", *words, "--", "touch", str(cli.folder / "ran"))
            assert done.returncode == 75
            *waiting, last = done.stderr.splitlines()
            assert last.startswith("lessor: 'x' is held by somebody")
            assert len(waiting) == (words[-1] == "200ms")
    assert not (cli.folder / "ran").exists()
    assert cli("run", "-n", "x", "--", "true").returncode == 0


def test_it_waits_for_its_turn(cli: Cli) -> None:
    with cli.client() as client:
        lease = client.acquire("x")
        process = cli.start("run", "--json", "x", "--", "echo", "ran")
        until(lambda: (record := client.get("x")) and record.queue, "it waits")
        lease.release()
        code, out, err = finish(process)
    assert (code, out) == (0, "ran\n")
    assert [event["event"] for event in events(err)] == ["waiting", "acquired", "started", "exited", "released"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_waiting_ends_it_and_leaves_no_place_in_the_queue(cli: Cli, signum: signal.Signals) -> None:
    with cli.client() as client, client.acquire("x"):
        process = cli.start("run", "x", "--", "touch", str(cli.folder / "ran"))
        until(lambda: (record := client.get("x")) and record.queue, "it waits")
        process.send_signal(signum)
        code, out, err = finish(process)
        assert (code, out) == (128 + signum, "")
        assert err.startswith("lessor: waiting for x, held by ")
        assert len(err.splitlines()) == 1
        record = client.get("x")
        assert record
        assert not record.queue
    assert not (cli.folder / "ran").exists()


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"])
def test_signals_are_passed_on_to_the_group(cli: Cli, name: str) -> None:
    # Not a shell's trap: bash has a use of its own for SIGWINCH, and runs a trap of it when it pleases.
    program = f"import os, signal; signal.signal(signal.SIG{name}, lambda *_: os._exit(9)); print(1, flush=True); signal.pause()"
    process = cli.start("run", "x", "--", sys.executable, "-c", program)
    assert process.stdout
    process.stdout.readline()
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert finish(process)[0] == 9


def test_a_signal_that_ends_the_command_shows_in_the_code(cli: Cli) -> None:
    process = cli.start("run", "x", "--", "sh", "-c", "echo $$; exec sleep 60")
    assert process.stdout
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (143, "", "")


def test_what_cannot_be_executed_is_told_and_the_lease_is_given_back(cli: Cli) -> None:
    script = cli.folder / "script"
    script.write_text("no header")
    for word, code in (("no-such-command", 127), (str(script), 126), (str(cli.folder), 126), ("/no/such", 127)):
        done = cli("run", "x", "--", word)
        assert done.returncode == code
        assert done.stderr.startswith(f"lessor: {word}")
        assert len(done.stderr.splitlines()) == 1
    with cli.client() as client:
        assert client.list() == []


def test_ignored_signals_of_python_are_not_the_commands(cli: Cli) -> None:
    done = cli("run", "x", "--", "grep", "SigIgn", "/proc/self/status")
    assert int(done.stdout.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_the_command_inherits_no_descriptors_of_ours(cli: Cli) -> None:
    done = cli("run", "x", "--", "sh", "-c", "exec ls /proc/self/fd")
    assert set(done.stdout.split()) <= {"0", "1", "2", "3"}  # the last one is the folder that it lists


def test_a_revocation_by_force_ends_the_whole_group(cli: Cli) -> None:
    process = cli.start(
        "run", "--json", "--ttl", "3s", "--grace", "200ms", "x", "--", "sh", "-c", STUBBORN, cwd=cli.folder
    )
    pids = cli.group()
    assert cli("revoke", "--force", "x").returncode == 0
    code, _, err = finish(process)
    assert code == 79
    assert not any(alive(pid) for pid in pids)
    told = events(err)
    assert [e["event"] for e in told][-4:] == ["started", "lost", "stopping", "exited"]
    assert next(e for e in told if e["event"] == "lost")["reason"] == "revoked"
    assert told[-1]["signal"] == signal.SIGKILL


def test_a_command_that_ends_at_sigterm_is_not_killed(cli: Cli) -> None:
    script = "trap 'echo bye; exit 3' TERM; echo $$ > pids; while :; do sleep 0.01; done"
    process = cli.start("run", "--ttl", "3s", "x", "--", "sh", "-c", script, cwd=cli.folder)
    cli.group()
    cli("revoke", "--force", "x")
    code, out, err = finish(process)
    assert (code, out) == (79, "bye\n")
    assert err.startswith("lessor: the lease on x is lost: revoked; COMMAND is stopped\n")


def test_a_revocation_ends_the_group_before_the_expiry_that_was_promised(cli: Cli) -> None:
    process = cli.start("run", "--json", "--ttl", "1500ms", "x", "--", "sh", "-c", STUBBORN, cwd=cli.folder)
    pids = cli.group()
    with cli.client() as client:
        assert client.revoke("x")
        held_to_the_end(client, pids)
    code, _, err = finish(process)
    assert code == 79
    names = [event["event"] for event in events(err)]
    assert names.index("jeopardy") < names.index("stopping") < names.index("exited")


def test_on_lost_kill_sends_no_sigterm(cli: Cli) -> None:
    script = "trap 'echo termed' TERM; echo $$ > pids; while :; do sleep 0.01; done"
    process = cli.start("run", "--ttl", "3s", "--on-lost", "kill", "x", "--", "sh", "-c", script, cwd=cli.folder)
    cli.group()
    cli("revoke", "--force", "x")
    code, out, _ = finish(process)
    assert (code, out) == (79, "")


def test_on_lost_warn_only_says_so(cli: Cli) -> None:
    process = cli.start(
        "run", "--json", "--on-lost", "warn", "--ttl", "1s", "x", "--", "sh", "-c", "echo; read x; exit 5", stdin=-1
    )
    assert process.stdout
    process.stdout.readline()
    cli("revoke", "--force", "x")
    assert process.stderr
    lines: list[str] = []
    while not lines or json.loads(lines[-1])["event"] != "lost":
        lines.append(process.stderr.readline())
    with cli.client() as client, client.acquire("x", wait=3):
        assert process.poll() is None
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
        assert finish(process)[0] == 5


def test_what_the_command_leaves_behind_in_its_group_ends_with_it(cli: Cli) -> None:
    script = '(trap "" TERM; sleep 60) > /dev/null 2>&1 & echo $! > pids; exit 4'
    done = cli("run", "--grace", "200ms", "x", "--", "sh", "-c", script, cwd=cli.folder)
    assert done.returncode == 4
    assert not alive(cli.group()[0])
    with cli.client() as client:
        assert client.get("x") is None


def test_a_job_in_a_group_of_its_own_is_ended_too(cli: Cli) -> None:
    # What an interactive shell does with its jobs.
    script = "set -m; sleep 60 & echo $! > pids; wait"
    process = cli.start("run", "--ttl", "2s", "x", "--", "bash", "-c", script, cwd=cli.folder)
    (job,) = cli.group()
    assert os.getpgid(job) == job
    process.kill()
    until(lambda: not alive(job), "the guardian ended it")


def test_a_stopped_command_is_ended_too(cli: Cli) -> None:
    process = cli.start("run", "--ttl", "3s", "--grace", "100ms", "x", "--", "sh", "-c", MEEK, cwd=cli.folder)
    pids = cli.group()
    os.killpg(pids[0], signal.SIGSTOP)
    cli("revoke", "--force", "x")
    assert finish(process)[0] == 79
    assert not any(alive(pid) for pid in pids)


def test_when_renewals_fail_the_command_ends_before_the_deadline(cli: Cli) -> None:
    process = cli.start("run", "--json", "--ttl", "2s", "x", "--", "sh", "-c", STUBBORN, cwd=cli.folder)
    pids = cli.group()
    os.unlink(cli.folder / "leases.db")
    free_at = SYSTEM.now() + int(2e9)  # at the latest: no renewal succeeds from here on
    until(lambda: not any(alive(pid) for pid in pids), "the group is gone")
    assert SYSTEM.now() < free_at
    code, _, err = finish(process)
    assert code == 79
    names = [event["event"] for event in events(err) if event["event"] != "warning"]  # of the store
    assert names[-4:] == ["jeopardy", "stopping", "exited", "not_released"]


def test_what_is_lost_is_not_said_to_end_later(cli: Cli) -> None:
    words = ["--json", "--on-lost", "warn", "--ttl", "1s", "x", "--", "sh", "-c", "echo $$ > pids; read x"]
    process = cli.start("run", *words, cwd=cli.folder, stdin=-1)
    cli.group()
    os.unlink(cli.folder / "leases.db")
    assert process.stderr
    names: list[str] = []
    while "lost" not in names:
        names.append(json.loads(process.stderr.readline())["event"])
    code, _, err = finish(process)
    assert code == 1
    assert [event["event"] for event in events(err) if event["event"] != "warning"] == ["exited"]


def test_closed_descriptors_do_no_harm(cli: Cli) -> None:
    command = f"exec {sys.executable} -m lessor run x -- sh -c 'exit 6' <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], env=cli.environment, check=False, timeout=60).returncode == 6


def test_the_guardian_ends_with_the_rest(cli: Cli) -> None:
    process = cli.start("run", "x", "--", "sh", "-c", "echo; read x", stdin=-1)
    assert process.stdout
    process.stdout.readline()
    guardian = guardian_of(process.pid)
    assert process.stdin
    process.stdin.close()
    process.stdin = None
    assert finish(process)[0] == 1
    assert not alive(guardian)


def test_without_its_guardian_the_command_is_stopped(cli: Cli) -> None:
    process = cli.start("run", "x", "--", "sh", "-c", MEEK, cwd=cli.folder)
    pids = cli.group()
    os.kill(guardian_of(process.pid), signal.SIGKILL)
    code, _, err = finish(process)
    assert code == 70
    assert "guardian died" in err
    assert not any(alive(pid) for pid in pids)


def test_the_guardian_is_deaf_to_what_service_managers_send_to_all(cli: Cli) -> None:
    process = cli.start("run", "x", "--", "sh", "-c", MEEK, cwd=cli.folder)
    cli.group()
    guardian = guardian_of(process.pid)
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(guardian, signum)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143


@pytest.mark.parametrize("script", [MEEK, STUBBORN])
def test_kill_9_of_lessor_ends_the_group_before_the_deadline(cli: Cli, script: str) -> None:
    process = cli.start("run", "--ttl", "2s", "--grace", "300ms", "x", "--", "sh", "-c", script, cwd=cli.folder)
    pids = cli.group()
    guardian = guardian_of(process.pid)
    with cli.client() as client:
        process.kill()
        held_to_the_end(client, pids)
        until(lambda: not alive(guardian), "the guardian has ended")
        client.acquire("x", wait=4).release()


@pytest.mark.parametrize("script", [MEEK, STUBBORN])
def test_sigstop_of_lessor_ends_the_group_before_the_deadline(cli: Cli, script: str) -> None:
    process = cli.start("run", "--ttl", "1500ms", "--grace", "300ms", "x", "--", "sh", "-c", script, cwd=cli.folder)
    pids = cli.group()
    with cli.client() as client:
        os.kill(process.pid, signal.SIGSTOP)
        held_to_the_end(client, pids)
        os.kill(process.pid, signal.SIGCONT)
        assert finish(process)[0] == 79


def test_kill_9_while_waiting_starts_nothing(cli: Cli) -> None:
    with cli.client() as client:
        lease = client.acquire("x")
        process = cli.start("run", "x", "--", "touch", str(cli.folder / "ran"))
        until(lambda: (record := client.get("x")) and record.queue, "it waits")
        guardian = guardian_of(process.pid)
        (waiting,) = children_of(guardian)
        process.kill()
        until(lambda: not alive(waiting) and not alive(guardian), "both processes have ended")
        lease.release()
        client.acquire("x", wait=4).release()
    assert not (cli.folder / "ran").exists()


def test_renewals_keep_a_long_command_alive(cli: Cli) -> None:
    assert cli("run", "--ttl", "5s", "x", "--", "sleep", "6").returncode == 0


def test_a_store_that_cannot_be_reached_has_its_code(cli: Cli) -> None:
    (cli.folder / "junk.db").write_bytes(b"no database" * 100)
    done = cli("run", "--url", f"sqlite:///{cli.folder}/junk.db", "x", "--", "true")
    assert done.returncode in (69, 78)
    assert done.stderr.startswith("lessor: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_system_that_starts_no_process_is_told(cli: Cli) -> None:
    command = f"ulimit -n 7; exec {sys.executable} -m lessor run x -- true"
    done = subprocess.run(["sh", "-c", command], env=cli.environment, check=False, capture_output=True, text=True)
    assert done.returncode == 71
    assert done.stderr == "lessor: no process can be started for COMMAND: Too many open files\n"
