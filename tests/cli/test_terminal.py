"""On a terminal of its own: colours, tables, and who has the keyboard."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.processes import BOUND, until

if TYPE_CHECKING:
    from tests.cli.processes import Cli

SPAWN = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])) % 256)"
WHO = "read a b c d group e f terminal g < /proc/self/stat; echo who $group $terminal"
"""Prints the shell's process group, and the one that has the terminal."""


def on_terminal(cli: Cli, *words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SPAWN, *words]
    process = subprocess.Popen(
        command,
        env={**cli.environment, "TERM": "xterm", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        bufsize=1,
        text=True,
    )
    return cli.bound(process)


def lessor(cli: Cli, *words: str, **environment: str) -> subprocess.Popen[str]:
    return on_terminal(cli, sys.executable, "-m", "lessor", *words, **environment)


def type_in(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin
    process.stdin.write(text)
    process.stdin.flush()


def read_until(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout
    seen = ""
    while word not in seen:
        line = process.stdout.readline()
        assert line, f"{word!r} never came: {seen!r}"
        seen += line
    return seen


def test_tables_have_a_head_and_colours(cli: Cli) -> None:
    with cli.client() as client, client.acquire("a/1"):
        for words in (["ls"], ["show", "a/1"], ["stores"]):
            out, _ = lessor(cli, *words).communicate(timeout=BOUND)
            assert "\033[" in out
            out, _ = lessor(cli, *words, NO_COLOR="1").communicate(timeout=BOUND)
            assert "\033" not in out
        assert "RESOURCE  HOLDER" in lessor(cli, "ls").communicate(timeout=BOUND)[0]
    assert "nothing is held" in lessor(cli, "ls").communicate(timeout=BOUND)[0]


def test_the_command_has_the_terminal_and_ctrl_c_reaches_it(cli: Cli) -> None:
    process = lessor(cli, "run", "x", "--", "sh", "-c", f"{WHO}; exec sleep 60")
    _, group, terminal = read_until(process, "who").split()
    assert group == terminal
    type_in(process, "\x03")
    process.communicate(timeout=BOUND)
    assert process.returncode == 130


def test_a_shell_gets_the_terminal_back_and_can_stop_and_continue_us(cli: Cli) -> None:
    shell = on_terminal(cli, "bash", "--norc", "--noediting", "-i", PS1="$ ")
    run = f"{sys.executable} -m lessor run x -- "
    type_in(shell, f"{run} sh -c '{WHO}'; {WHO}; echo rc=$?\n")
    words = read_until(shell, "rc=0").split()
    groups = [words[at + 1 : at + 3] for at, word in enumerate(words) if word == "who" and words[at + 1].isdigit()]
    assert len(groups) == 2
    assert all(group == terminal for group, terminal in groups)
    assert groups[0] != groups[1]
    type_in(shell, f"{run} sh -c 'echo start''ed; read line; echo got $line; exit 5'\n")
    read_until(shell, "started")
    type_in(shell, "\x1a")
    read_until(shell, "Stopped")
    type_in(shell, "fg\n")
    with cli.client() as client:
        until(lambda: client.get("x"), "it is held")
    type_in(shell, "words\n")
    read_until(shell, "got words")
    type_in(shell, "echo code=$?\n")
    read_until(shell, "code=5")
    type_in(shell, "exit\n")
    shell.communicate(timeout=BOUND)


def test_a_neighbour_in_the_pipe_keeps_the_terminal(cli: Cli) -> None:
    shell = on_terminal(cli, "bash", "--norc", "--noediting", "-i", PS1="$ ")
    type_in(shell, f"{sys.executable} -m lessor run x -- echo pip''ed | (cat; read key < /dev/tty; echo key $key)\n")
    read_until(shell, "piped")
    type_in(shell, "pressed\n")
    read_until(shell, "key pressed")
    type_in(shell, "exit\n")
    shell.communicate(timeout=BOUND)


def test_a_command_that_asks_for_the_terminal_gets_it(cli: Cli) -> None:
    shell = on_terminal(cli, "bash", "--norc", "--noediting", "-i", PS1="$ ")
    ask = "sh -c 'echo ask''ing; read key < /dev/tty; echo key $key'"
    type_in(shell, f"echo in | {sys.executable} -m lessor run x -- {ask}\n")
    read_until(shell, "asking")
    type_in(shell, "pressed\n")
    read_until(shell, "key pressed")
    type_in(shell, "exit\n")
    shell.communicate(timeout=BOUND)


def test_ctrl_c_ends_a_simulation_in_several_processes_without_a_traceback(cli: Cli) -> None:
    process = lessor(cli, "sim", "run", "--seeds", "1000000", "--jobs", "2")
    assert process.stdout
    seen = ""
    while "worlds" not in seen:
        seen += process.stdout.read(1)
    type_in(process, "\x03")
    out, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 130
    assert "Traceback" not in out


LONG_HOST = "ip-10-132-17-201.eu-central-1.compute.internal:482913"
LONG_NAME = "reports/nightly/a/name/that/goes/on/and/on/2026-11-17"


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_ls_fits_the_terminal(cli: Cli, columns: int) -> None:
    with cli.client(holder=LONG_HOST) as client, client.acquire(LONG_NAME) as lease, client.acquire("short"):
        process = lessor(cli, "ls", NO_COLOR="1", COLUMNS=str(columns))
        out, _ = process.communicate(timeout=BOUND)
        complete = cli("ls").stdout
    head, first, second = out.splitlines()
    assert max(map(len, (head, first, second))) <= columns
    assert head.startswith("RESOURCE ")
    assert "ENDS IN" in head
    assert first.startswith("reports/")
    assert ":482913" in first
    assert second.startswith("short ")
    assert (LONG_NAME in first) is (LONG_HOST in first) is (columns == 200)
    assert complete.startswith(f"{LONG_NAME}\t{LONG_HOST}\t{lease.token}\t")  # in a pipe nothing is cut


def test_a_short_ls_is_complete(cli: Cli) -> None:
    with cli.client(holder="host:1") as client, client.acquire("x") as lease:
        out, _ = lessor(cli, "ls", NO_COLOR="1", COLUMNS="80").communicate(timeout=BOUND)
    assert out.split()[:8] == ["RESOURCE", "HOLDER", "TOKEN", "ENDS", "IN", "TTL", "HELD", "FOR"]
    assert str(lease.token) in out
