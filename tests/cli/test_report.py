"""What ``run`` says: events, lines, and which store it doesn't work with."""

from __future__ import annotations

import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lessor import AsyncClient, Client, ConfigError
from lessor.stores.base import Capability
from tests.cli.processes import events, finish, until
from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from tests.cli.processes import Cli

REFUSED = "redis://127.0.0.1:1"
"""Nothing listens there."""


def told(cli: Cli, *words: str, **options: Any) -> tuple[int, list[dict[str, Any]]]:
    done = cli("run", "--json", *words, **options)
    return done.returncode, events(done.stderr)


def test_json_tells_that_the_lease_was_not_acquired(cli: Cli) -> None:
    with cli.client(holder="me") as client, client.acquire("x") as lease:
        code, (event,) = told(cli, "-n", "x", "--", "true")
        assert (code, event["event"], event["code"]) == (75, "not_acquired", 75)
        assert (event["holder"], event["token"]) == ("me", lease.token)
        assert 0 < event["remaining"] <= 30
        code, (first, last) = told(cli, "--wait", "100ms", "x", "--", "true")
        assert (code, first["event"], last["event"]) == (75, "waiting", "not_acquired")


def test_it_is_told_that_the_resource_is_closed_and_how_to_open_it(cli: Cli) -> None:
    with cli.client(holder="me") as client:
        lease = client.acquire("x", ttl=30, hold_at_least=60)
        lease.release()
        code, (first, last) = told(cli, "--wait", "100ms", "x", "--", "true")
        assert (code, first["event"], last["event"]) == (75, "waiting", "not_acquired")
        for event in (first, last):
            assert (event["closed"], event["holder"], event["token"]) == ("hold_at_least", "me", lease.token)
            assert 0 < event["remaining"] <= 60
        lines = cli("run", "--wait", "100ms", "x", "--", "true").stderr.splitlines()
        assert [line.split(":")[0] for line in lines] == ["lessor", "lessor"]
        assert re.match(r"lessor: waiting until \d\d:\d\d:\d\d: 'x' is closed for another .* hold_at_least$", lines[0])
        assert lines[1].endswith("(wait longer with --wait, or open it: lessor revoke)")
        assert "unless renewed" not in "".join(lines)


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["--url", REFUSED, "x", "--", "true"], 69, "StoreUnavailable"),
        (["--url", "nope://", "x", "--", "true"], 78, "ConfigError"),
        (["--url", "memory://", "x", "--", "true"], 78, "ConfigError"),
        (["/x", "--", "true"], 64, "InvalidResource"),
        (["x", "--ttl", "1ms", "--", "true"], 78, "ConfigError"),
    ],
)
def test_json_tells_errors(cli: Cli, words: list[str], code: int, kind: str) -> None:
    got, found = told(cli, *words)
    event = found[-1]  # a store that didn't answer may be warned of before
    assert (got, event["event"], event["code"], event["kind"]) == (code, "error", code, kind)
    assert event["message"]


def test_json_tells_that_the_command_cannot_be_executed(cli: Cli) -> None:
    code, found = told(cli, "x", "--", "no-such-command")
    assert code == 127
    assert [event["event"] for event in found] == ["acquired", "error", "released"]
    assert (found[1]["code"], found[1]["kind"]) == (127, "FileNotFoundError")


def test_json_tells_which_signal_ended_the_waiting(cli: Cli) -> None:
    with cli.client() as client, client.acquire("x"):
        process = cli.start("run", "--json", "x", "--", "true")
        until(lambda: (record := client.get("x")) and record.queue, "it waits")
        process.send_signal(signal.SIGTERM)
        code, _, err = finish(process)
    assert code == 128 + signal.SIGTERM
    assert [(event["event"], event.get("signal")) for event in events(err)] == [("waiting", None), ("interrupted", 15)]


def test_json_makes_events_of_what_the_library_logs(cli: Cli) -> None:
    program = (
        "import sys, logging, lessor.cli.run as run\n"
        "hold = run._hold\n"
        "def logging_hold(*a, **k):\n"
        "    logging.getLogger('lessor').warning('odd')\n"
        "    return hold(*a, **k)\n"
        "run._hold = logging_hold\n"
        "from lessor.cli.main import main\n"
        "sys.exit(main())"
    )
    cli.lessor = [sys.executable, "-c", program]
    _, found = told(cli, "x", "--", "true")
    assert [event.get("message") for event in found if event["event"] == "warning"] == ["odd"]


def test_verbose_tells_each_step(cli: Cli) -> None:
    words = ["run", "-v", "--ttl", "3s", "x", "--", "sh", "-c", "echo; read line; exit 3"]
    process = cli.start(*words, stdin=-1)
    assert process.stderr
    assert process.stdin
    lines: list[str] = []
    while "renewed x" not in "".join(lines):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    process.stdin.write("\n")
    code, _, err = finish(process)
    lines += err.splitlines(keepends=True)
    assert code == 3
    assert lines[0].startswith("lessor: holding x as ")
    assert f"in {cli.url}" in lines[0]
    assert lines[1].startswith("lessor: COMMAND runs as process ")
    assert lines[-2:] == ["lessor: COMMAND ended with exit code 3\n", "lessor: released x\n"]
    assert cli("run", "x", "--", "true").stderr == ""


def test_without_a_terminal_the_default_store_is_warned_of(cli: Cli) -> None:
    environment = {"LESSOR_URL": "", "XDG_STATE_HOME": str(cli.folder)}
    done = cli("run", "x", "--", "echo", "ran", env=environment)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.startswith(
        f"lessor: no store was named: the leases are in sqlite:///{cli.folder}/lessor/leases.db"
    )
    assert len(done.stderr.splitlines()) == 1
    for words in (["--url", cli.url], []):
        done = cli("run", *words, "x", "--", "true", env={} if not words else environment)
        assert done.stderr == ""


def test_a_store_of_one_host_is_refused_where_several_are_meant(cli: Cli) -> None:
    done = cli("run", "--require", "cross-host", "x", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (78, "")
    assert "sqlite:// can't be used" in done.stderr
    assert "other hosts don't see its leases" in done.stderr
    with redis_server() as server:
        assert cli("run", "--require", "cross-host", "--url", server.url, "x", "--", "true").returncode == 0


def test_a_store_of_one_process_is_refused(cli: Cli) -> None:
    done = cli("run", "--url", "memory://", "x", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (78, "")
    assert "other processes don't see its leases" in done.stderr


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_client_may_require_capabilities(cli: Cli, make: type[Client | AsyncClient]) -> None:
    for required in ("cross-host", Capability.CROSS_HOST, Capability.CROSS_HOST | Capability.DURABLE):
        with pytest.raises(ConfigError, match=r"sqlite:// can't be used where cross-host.* other hosts don't see"):
            make(cli.url, require=required)
    with pytest.raises(ConfigError, match="other processes"):
        make("memory://", require="cross-process")
    with pytest.raises(ConfigError, match="it doesn't declare durable"):
        make("memory://", require="durable")
    for wrong in ("crosshost", None, 3):
        with pytest.raises(ConfigError, match="require one of: cross-process, cross-host, durable"):
            make(cli.url, require=wrong)  # type: ignore[arg-type]
    Client(cli.url, require="durable").close()
