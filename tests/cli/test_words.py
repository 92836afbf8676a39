"""What is typed: bad arguments, durations, help, completion."""

from __future__ import annotations

import os
import subprocess
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

import pytest

from lessor import __version__
from lessor.cli.durations import duration, shown
from lessor.cli.parser import split

if TYPE_CHECKING:
    from tests.cli.processes import Cli


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("1.5", 1.5), ("500ms", 0.5), ("2m", 120), ("1h", 3600), ("30s", 30), (".5s", 0.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1", "1d", "inf", "nan", "1e3", "1 0", "s", "٣"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="duration"):
        duration(text)


def test_durations_for_people() -> None:
    assert [shown(s) for s in (0.4, 12.34, 59.99, 245, 7620, 200000)] == [
        "0.40s",
        "12.3s",
        "1m00s",
        "4m05s",
        "2h07m",
        "2d07h",
    ]


def test_the_command_is_all_that_follows_the_first_dashes() -> None:
    assert split(["run", "x", "--", "a", "--", "b"]) == (["run", "x"], ["a", "--", "b"])
    assert split(["--url", "run", "show", "--", "-x"]) == (["--url", "run", "show", "--", "-x"], None)
    assert split(["--url", "u", "run", "x"]) == (["--url", "u", "run", "x"], None)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 64),
        (["nonsense"], 64),
        (["run", "x"], 64),
        (["run", "x", "--"], 64),
        (["run", "x", "true"], 64),
        (["run", "--", "true"], 64),
        (["run", "x", "--ttl", "soon", "--", "true"], 64),
        (["run", "x", "-n", "--wait", "3", "--", "true"], 64),
        (["run", "x", "--on-lost", "cry", "--", "true"], 64),
        (["run", "/x", "--", "true"], 64),
        (["run", "x", "--holder", "", "--", "true"], 64),
        (["run", "x", "--holder", "a\nb", "--", "true"], 78),
        (["run", "x", "--ttl", "1ms", "--", "true"], 78),
        (["show", "a//b"], 64),
        (["show"], 64),
        (["ls", b"\xff"], 64),
        (["--url", "", "ls"], 64),
        (["--url", "nonsense", "ls"], 78),
        (["--url", "nope://", "ls"], 78),
        (["--url", "sqlite:////no/such/folder/x.db", "ls"], 78),
        (["completion", "tcsh"], 64),
        (["cluster", "start", "--data", "/dev/null"], 78),
        (["sim", "replay", "3", "--timeline", "/dev/null/x.svg"], 78),
    ],
)
def test_bad_arguments_give_one_line_and_a_code(cli: Cli, words: list[str], code: int) -> None:
    done = cli(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("lessor: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_hint_says_where_the_command_goes(cli: Cli) -> None:
    assert "after --" in cli("run", "x", "true").stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["cluster"], "arguments are required: start|status"),
        (["completion"], "arguments are required: bash|zsh|fish"),
        (["sim", "run", "--seeds", "many"], "--seeds: 'many' is no number from 1 on"),
        (["sim", "run", "--jobs", "0"], "--jobs: '0' is no number from 1 on"),
    ],
)
def test_what_is_missing_or_wrong_is_named_as_the_help_names_it(cli: Cli, words: list[str], what: str) -> None:
    assert what in cli(*words).stderr


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout == f"lessor {__version__}\n"
    assert "79  the lease was lost" in cli("run", "--help").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_complete(cli: Cli, shell: str) -> None:
    script = cli("completion", shell).stdout
    assert "@" not in script.replace('"$@"', "").replace("[@]", "").replace("(@f)", "")
    for word in ("run", "revoke", "on-lost", "ls --names", "warn"):
        assert word in script


def test_the_bash_script_completes(cli: Cli) -> None:
    script = cli.folder / "completion.bash"
    script.write_text(cli("completion", "bash").stdout)
    subprocess.run(["bash", "-n", str(script)], check=True)

    def complete(line: str) -> list[str]:
        code = f"source {script}; COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}; _lessor; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        where = os.path.dirname(os.sys.executable)  # type: ignore[attr-defined]
        environment = {**cli.environment, "PATH": f"{where}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, env=environment, check=True)
        return done.stdout.split()

    assert complete("lessor re") == ["revoke"]
    assert complete("lessor run --on-lost ") == ["stop", "kill", "warn"]
    assert "--grace" in complete("lessor run x --")
    assert complete("lessor completion z") == ["zsh"]
    with cli.client() as client, client.acquire("jobs/a:1"), client.acquire("other"):
        assert complete("lessor show jo") == ["jobs/a:1"]
        assert complete("lessor show jobs/a:") == ["1"]
        assert complete(f"lessor --url {cli.url} show o") == ["other"]
    assert "true" in complete("lessor run x -- tru")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["shwo", "x"], "lessor: there is no subcommand 'shwo', did you mean show? (see: lessor --help)"),
        (["xyz"], "lessor: there is no subcommand 'xyz': choose from run, ls, show, "),
        (["run", "--tll", "3", "x", "--", "true"], "lessor: run: there is no option --tll, did you mean --ttl? (see: "),
        (
            ["run", "--hold-atleast=3", "x", "--", "true"],
            "lessor: run: there is no option --hold-atleast, did you mean --hold-at-least?",
        ),
        (["show", "--jsn"], "lessor: show: there is no option --jsn, did you mean --json? (see: lessor show --help)"),
        (["ls", "--ttl", "3"], "lessor: ls: there is no option --ttl (see: lessor ls --help)"),
        (["run", "--pasword=qzsecret", "x", "--", "true"], "lessor: run: there is no option --pasword"),
        (
            ["run", "x", "--on-lost", "stpo", "--", "true"],
            "lessor: run: argument --on-lost: invalid choice: 'stpo', did you mean stop?",
        ),
        (["cluster", "stat"], "lessor: cluster: argument start|status: invalid choice: 'stat', did you mean "),
        (["sim", "runn"], "lessor: sim: there is no subcommand 'runn', did you mean run?"),
        (["sim", "run", "--seed", "3"], "lessor: sim: there is no option --seed, did you mean --seeds?"),
    ],
)
def test_what_was_probably_meant_is_named(cli: Cli, words: list[str], says: str) -> None:
    done = cli(*words)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith(says)
    assert len(done.stderr.splitlines()) == 1
    assert "qzsecret" not in done.stderr


def test_options_of_the_command_are_its_own(cli: Cli) -> None:
    assert cli("run", "x", "--", "echo", "--tll").stdout == "--tll\n"
    assert cli("ls", "--", "--tll").returncode == 0
