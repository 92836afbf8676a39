from __future__ import annotations

import json
import os
import re
import select
import signal
from typing import TYPE_CHECKING

import pytest

from tests.cli.processes import events, finish, until

if TYPE_CHECKING:
    import subprocess

    from tests.cli.processes import Cli


def test_ls_lists_what_is_held(cli: Cli) -> None:
    with cli.client(holder="me") as client, client.acquire("a/1") as lease, client.acquire("b/2", metadata={"k": "v"}):
        plain = cli("ls")
        assert plain.stdout.startswith(f"a/1\tme\t{lease.token}\t")
        assert "\033" not in plain.stdout
        assert cli("ls", "--names", "b").stdout == "b/2\n"
        records = json.loads(cli("ls", "--json").stdout)
        assert [record["resource"] for record in records] == ["a/1", "b/2"]
        assert records[1]["metadata"] == {"k": "v"}
        assert lease.id not in json.dumps(records)
    assert cli("ls").stdout == ""
    assert json.loads(cli("ls", "--json").stdout) == []


def test_the_url_may_stand_before_or_after_the_subcommand(cli: Cli) -> None:
    with cli.client() as client, client.acquire("x"):
        nowhere = {"LESSOR_URL": "nowhere://"}
        assert cli("--url", cli.url, "ls", "--names", env=nowhere).stdout == "x\n"
        assert cli("ls", "--names", "--url", cli.url, env=nowhere).stdout == "x\n"
        assert cli("ls", env=nowhere).returncode == 78


def test_show_tells_who_holds_and_who_waits(cli: Cli) -> None:
    with cli.client(holder="me") as client, client.acquire("x") as lease:
        waiter = cli.start("run", "x", "--holder", "next", "--", "true")
        until(lambda: (record := client.get("x")) and record.queue, "somebody waits")
        found = json.loads(cli("show", "x", "--json").stdout)
        assert (found["held"], found["holder"], found["token"]) == (True, "me", lease.token)
        assert [w["holder"] for w in found["queue"]] == ["next"]
        text = cli("show", "x").stdout
        assert "holder\tme\n" in text
        assert "waiting 1\tnext" in text
        waiter.send_signal(signal.SIGTERM)
        finish(waiter)
    done = cli("show", "x")
    assert (done.returncode, done.stdout) == (1, "x is free\n")
    assert json.loads(cli("show", "x", "--json").stdout) == {"resource": "x", "held": False}


def test_what_is_closed_after_a_release_is_shown_and_can_be_opened(cli: Cli) -> None:
    with cli.client(holder="me") as client:
        lease = client.acquire("x", ttl=30, hold_at_least=60)
        lease.release()
        done = cli("show", "x")
        assert done.returncode == 1  # nobody holds it
        assert f"\nlast holder\tme\ntoken\t{lease.token}\n" in done.stdout
        assert re.search(
            r"^closed\tuntil .* \(in .*\): released within its hold_at_least of 1m00s$", done.stdout, re.MULTILINE
        )
        found = json.loads(cli("show", "x", "--json").stdout)
        assert (found["held"], found["closed"], found["holder"]) == (False, "hold_at_least", "me")
        assert cli("ls").stdout.endswith("closed: hold_at_least\n")
        refused = cli("run", "-n", "x", "--", "true")
        assert refused.returncode == 75
        assert "'x' is closed for another" in refused.stderr
        assert "unless renewed" not in refused.stderr
        assert cli("revoke", "x").stdout == "x is free now: it was closed\n"
        assert cli("run", "-n", "x", "--", "true").returncode == 0


def test_only_force_opens_what_is_closed_by_a_lock_delay_and_it_warns(cli: Cli) -> None:
    with cli.client(holder="me") as client:
        lease = client.acquire("x", ttl=0.2, max_hold=0.2, lock_delay=60)
        until(lambda: (record := client.get("x")) and record.closed, "the lock delay")
        assert "expired, and its lock_delay of 1m00s follows" in cli("show", "x").stdout
        refused = cli("revoke", "x")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "lock_delay" in refused.stderr
        assert "--force opens it" in refused.stderr
        assert json.loads(cli("revoke", "x", "--json").stdout)["closed"] == "lock_delay"
        forced = cli("revoke", "--force", "x")
        assert forced.stdout == "x is free now: it was closed\n"
        assert f"lock_delay of me's lease (token {lease.token})" in forced.stderr
        assert client.get("x") is None


def test_contenders_are_shown_in_the_order_of_their_turns(cli: Cli) -> None:
    assert cli("contenders", "x").stdout == ""
    with cli.client(holder="me") as client, cli.client(holder="late") as late, client.acquire("x"):
        place, first = client.enqueue("x"), late.enqueue("x", priority=7)
        plain = cli("contenders", "x")
        assert [line.split("\t")[:3] for line in plain.stdout.splitlines()] == [["1", "late", "7"], ["2", "me", "0"]]
        found = json.loads(cli("contenders", "x", "--json").stdout)
        assert [(w["holder"], w["priority"]) for w in found] == [("late", 7), ("me", 0)]
        assert all(w["since"] for w in found)
        place.leave()
        first.leave()
    assert json.loads(cli("contenders", "x", "--json").stdout) == []


def test_revoke_says_when_it_is_free(cli: Cli) -> None:
    with cli.client() as client:
        client.acquire("x", ttl=120)
        answer = json.loads(cli("revoke", "x", "--json").stdout)
        assert 0 < answer["free_in"] <= 120
        assert cli("ls").stdout.endswith("revoked\n")
        assert "free now" in cli("revoke", "--force", "x").stdout
        assert client.get("x") is None
        done = cli("revoke", "x")
        assert done.returncode == 1
        assert done.stderr.startswith("lessor: nobody holds x")


def test_watch_prints_events_as_they_happen(cli: Cli) -> None:
    process = cli.start("watch", "--json", "a/")
    with cli.client(holder="me") as client:
        lines = [_first_event(cli, process)]
        with client.acquire("b/1"), client.acquire("a/1") as lease:
            pass
        assert process.stdout
        lines += [process.stdout.readline(), process.stdout.readline()]
    told = [event for event in events("".join(lines)) if event["resource"] == "a/1"]
    assert [(e["event"], e["token"], e["holder"]) for e in told] == [
        ("granted", lease.token, "me"),
        ("released", lease.token, "me"),
    ]
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "", "")


def _first_event(cli: Cli, process: subprocess.Popen[str]) -> str:
    """Wait until the watcher listens: it tells of leases that begin after it does, so try until one is told."""
    stream = process.stdout
    assert stream
    with cli.client() as client:

        def told() -> bool:
            client.acquire("a/0", ttl=60)
            client.revoke("a/0", force=True)
            return bool(select.select([stream], [], [], 0.05)[0])

        until(told, "the watcher listens")
        client.acquire("a/end").release()
    line = ""
    while '"a/end"' not in line or "released" not in line:
        line = stream.readline()
    return line


def test_a_closed_pipe_ends_watch_quietly_even_when_nothing_happens(cli: Cli) -> None:
    process = cli.start("watch", "--json", "a/")
    _first_event(cli, process)
    assert process.stdout
    process.stdout.close()
    process.stdout = None
    code, _, err = finish(process)
    assert code == 141
    assert err == ""


def test_a_closed_pipe_ends_ls_quietly(cli: Cli) -> None:
    read, write = os.pipe()
    os.close(read)
    with cli.client() as client, client.acquire("x"):
        process = cli.start("ls", stdout=write)
        os.close(write)
        code, _, err = finish(process)
    assert (code, err) == (141, "")


def test_stores_prints_the_guarantees(cli: Cli) -> None:
    stores = {store["store"]: store for store in json.loads(cli("stores", "--json").stdout)}
    assert {"memory", "sqlite"} <= set(stores)
    assert "durable" in stores["sqlite"]["capabilities"]
    assert "sqlite\tnot promised\t" in cli("stores").stdout


def test_names_cannot_move_the_cursor(cli: Cli) -> None:
    with cli.client() as client, client.acquire("x\u202ey", metadata={"k": "\033[2J"}):
        assert "x\\u202ey" in cli("ls").stdout
        assert "\033" not in cli("show", "x\u202ey").stdout


def test_a_child_has_no_ttl_of_zero(cli: Cli) -> None:
    with cli.client() as client, client.acquire("up") as parent:
        client.acquire("up/down", ttl=None, parent=parent)
        assert cli("ls", "up/").stdout.split("\t")[4] == "parent's"
        assert "ttl\tparent's\n" in cli("show", "up/down").stdout


@pytest.mark.parametrize(
    "words", [["ls"], ["ls", "--json"], ["show", "x"], ["stores"], ["completion", "bash"], ["--help"]]
)
def test_a_full_disk_is_told_in_one_line(cli: Cli, words: list[str]) -> None:
    with cli.client() as client, client.acquire("x"), open("/dev/full", "w", encoding="utf-8") as full:
        code, _, err = finish(cli.start(*words, stdout=full))
    assert (code, err) == (74, "lessor: the output can't be written: No space left on device\n")


def test_a_full_disk_changes_no_exit_code_of_a_command_that_writes_nothing(cli: Cli) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        code, _, err = finish(cli.start("run", "x", "--", "true", stdout=full))
    assert (code, err) == (0, "")


def test_a_full_disk_for_messages_changes_no_exit_code(cli: Cli) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        assert finish(cli.start("shwo", stderr=full))[0] == 64
        assert finish(cli.start("run", "x", "--", "sh", "-c", "exit 3", stderr=full))[0] == 3
        assert finish(cli.start("run", "-v", "x", "--", "sh", "-c", "exit 3", stderr=full))[0] == 3
