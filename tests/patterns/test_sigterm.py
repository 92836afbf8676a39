from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lessor import AsyncClient, Client, ConfigError, drain_on_sigterm
from lessor.testing.conformance.base import Thread

ROOT = Path(__file__).parents[2]


def start(url: str, face: str, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.patterns.sigterm_program", url, face, mode]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_the_work_in_flight_ends_then_the_lease_is_handed_over_and_then_the_program_ends(
    face: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    with start(url, face, "works") as process, Client(url, holder="heir") as heir:
        assert process.stdout
        assert process.stdout.readline() == "working\n"
        waiting = Thread(lambda: heir.acquire("one", 2))
        process.terminate()
        process.terminate()
        assert process.stdout.readline() == "done\n"
        lease = waiting.result()
        assert lease.inherited == b"from one"
        assert heir.acquire("two", 2, 0).inherited == b"from one"
        assert process.stdout.readline() == "ended\n"
        assert process.wait(60) == 0


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_body_that_waits_for_something_else_is_told(face: str, tmp_path: Path) -> None:
    with start(f"sqlite:///{tmp_path}/leases.db", face, "waits") as process:
        assert process.stdout
        assert process.stdout.readline() == "working\n"
        process.terminate()
        assert process.stdout.readline() == "ended\n"
        assert process.wait(60) == 0


def test_a_campaign_is_stopped_and_handed_over_although_its_body_ends_as_soon_as_it_is_told() -> None:
    with Client("memory://told") as client, Client("memory://told", holder="heir") as heir:
        campaign = client.campaign("x")
        stopped: list[bool] = []
        with drain_on_sigterm(campaign, to="heir", state=b"state") as sigterm:
            tell = sigterm.begun.set

            def look_and_tell() -> None:
                stopped.append(campaign.stopped)
                tell()

            sigterm.begun.set = look_and_tell
            for term in campaign:
                with term:
                    os.kill(os.getpid(), signal.SIGTERM)
                    assert sigterm.begun.wait(60)
        assert stopped == [True]
        assert heir.acquire("x", 30, 0).inherited == b"state"


def test_an_async_campaign_is_stopped_and_handed_over_although_its_body_ends_as_soon_as_it_is_told() -> None:
    async def main() -> None:
        async with AsyncClient("memory://told") as client, AsyncClient("memory://told", holder="heir") as heir:
            campaign, terms = client.campaign("y"), 0
            async with drain_on_sigterm(campaign, to="heir", state=b"state") as sigterm, asyncio.timeout(60):
                async for term in campaign:
                    async with term:
                        terms += 1
                        os.kill(os.getpid(), signal.SIGTERM)
                        await sigterm.begun.wait()
            assert terms == 1
            async with heir.acquire("y", 30, 0) as lease:
                assert lease.inherited == b"state"

    asyncio.run(main())


def test_without_a_signal_nothing_happens_and_the_handler_is_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Client("memory://sigterm") as client, client.acquire("x", 30) as lease:
        with drain_on_sigterm(lease):
            assert signal.getsignal(signal.SIGTERM) is not before
        assert signal.getsignal(signal.SIGTERM) is before
        assert lease.held
        with lease.work():
            pass


def test_it_is_for_the_main_thread_and_for_some_lease() -> None:
    with pytest.raises(ConfigError, match="at least one lease or campaign"):
        drain_on_sigterm()
    with Client("memory://sigterm") as client, client.acquire("x", 30) as lease:

        def enter() -> None:
            with drain_on_sigterm(lease):
                pass

        with pytest.raises(ConfigError, match="main thread"):
            Thread(enter).result()
