"""A program that drains on SIGTERM, in threads or with asyncio: ``python -m tests.patterns.sigterm_program URL FACE MODE``."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

from lessor import AsyncClient, Client, drain_on_sigterm


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def in_threads(url: str, mode: str) -> None:
    with (
        Client(url) as client,
        client.acquire("one", 2) as one,
        client.acquire("two", 2) as two,
        drain_on_sigterm(one, two, timeout=20, to="heir", state=b"from one") as sigterm,
    ):
        if mode == "waits":
            say("working")
            sigterm.begun.wait()
            return
        while True:
            with one.work():
                say("working")
                time.sleep(3)  # longer than the TTL
                say("done")


async def in_tasks(url: str, mode: str) -> None:
    async with (
        AsyncClient(url) as client,
        client.acquire("one", 2) as one,
        client.acquire("two", 2) as two,
        drain_on_sigterm(one, two, timeout=20, to="heir", state=b"from one") as sigterm,
    ):
        if mode == "waits":
            say("working")
            await sigterm.begun.wait()
            return
        while True:
            with one.work():
                say("working")
                await asyncio.sleep(3)
                say("done")


if __name__ == "__main__":
    _, its_url, face, its_mode = sys.argv
    if face == "sync":
        in_threads(its_url, its_mode)
    else:
        asyncio.run(in_tasks(its_url, its_mode))
    assert all(thread.name != "lessor-drain" for thread in threading.enumerate())
    say("ended")
