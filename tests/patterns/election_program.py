"""A candidate that ends on SIGTERM: ``python -m tests.patterns.election_program URL FACE MODE``.

The modes are the ways that the how-to pages show: ``campaign`` drains the campaign, ``lease`` each term's lease, ``stop``
stops the campaign in a signal handler, ``lead`` cancels the work that waits to lead.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from typing import Any

from lessor import AsyncClient, AsyncTerm, Cancellation, Cancelled, Client, Term, drain_on_sigterm


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


PAUSE = threading.Event()
HOW: Any = {"timeout": 20, "to": "heir", "state": b"so far"}


def work(term: Term) -> None:
    say("leading")
    while True:
        with term.lease.work():
            PAUSE.wait(0.005)


async def work_async(term: AsyncTerm) -> None:
    say("leading")
    while True:
        with term.lease.work():
            await asyncio.sleep(0.005)


def drain_campaign(client: Client) -> None:
    campaign = client.campaign("scheduler", 30)
    with drain_on_sigterm(campaign, **HOW):
        say("ready")
        for term in campaign:
            with term:
                work(term)


async def drain_campaign_async(client: AsyncClient) -> None:
    campaign = client.campaign("scheduler", 30)
    async with drain_on_sigterm(campaign, **HOW):
        say("ready")
        async for term in campaign:
            async with term:
                await work_async(term)


def drain_lease(client: Client) -> None:
    say("ready")
    for term in client.campaign("scheduler", 30):
        with term, drain_on_sigterm(term.lease, **HOW):
            work(term)


async def drain_lease_async(client: AsyncClient) -> None:
    say("ready")
    async for term in client.campaign("scheduler", 30):
        async with term, drain_on_sigterm(term.lease, **HOW):
            await work_async(term)


def stop(client: Client) -> None:
    campaign = client.campaign("scheduler", 30)
    signal.signal(signal.SIGTERM, lambda *_: campaign.stop())
    say("ready")
    for term in campaign:
        with term:
            say("leading")
            while not campaign.stopped:
                PAUSE.wait(0.005)


async def stop_async(client: AsyncClient) -> None:
    campaign = client.campaign("scheduler", 30)
    signal.signal(signal.SIGTERM, lambda *_: campaign.stop())
    say("ready")
    async for term in campaign:
        async with term:
            say("leading")
            while not campaign.stopped:  # noqa: ASYNC110 - as a body may that does something else meanwhile
                await asyncio.sleep(0.005)


def lead(client: Client) -> None:
    cancel = Cancellation()
    signal.signal(signal.SIGTERM, lambda *_: cancel.cancel())
    say("ready")
    try:
        client.lead("scheduler", work, 30, cancel=cancel)
    except Cancelled as error:
        say(str(error))


async def lead_async(client: AsyncClient) -> None:
    cancel = Cancellation()
    signal.signal(signal.SIGTERM, lambda *_: cancel.cancel())
    say("ready")
    try:
        await client.lead("scheduler", work_async, 30, cancel=cancel)
    except Cancelled as error:
        say(str(error))


MODES = {
    "campaign": (drain_campaign, drain_campaign_async),
    "lease": (drain_lease, drain_lease_async),
    "stop": (stop, stop_async),
    "lead": (lead, lead_async),
}


def main(url: str, face: str, mode: str) -> None:
    in_threads, in_tasks = MODES[mode]

    async def run() -> None:
        async with AsyncClient(url, holder="candidate") as client:
            await in_tasks(client)

    if face == "async":
        asyncio.run(run())
    else:
        with Client(url, holder="candidate") as client:
            in_threads(client)
    say("ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
