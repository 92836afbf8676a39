"""How a node that lost its disk learns how high the numbers may have gone: it asks the others, after its silence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lessor.core.paxos.ballots import DAY_US
from lessor.core.paxos.messages import Seed
from lessor.core.paxos.starting import Seeding
from lessor.errors import LessorError
from lessor.node.log import log
from lessor.stores.paxos import frames
from lessor.stores.paxos.link import ask, connect

if TYPE_CHECKING:
    from lessor.node.service import Service
    from lessor.stores.paxos.address import Place

PATIENCE: Final = 2.0
PAUSE: Final = 1.0
MOST_AHEAD_US: Final = 3 * DAY_US
"""No node whose clock is right promises a number that is further ahead: to take one over would spread what is wrong."""


async def seed(service: Service) -> None:
    """Wait for the end of the silence, ask until enough have answered, and begin to serve."""
    acceptor, clock = service.acceptor, service.clock
    seeding = Seeding(acceptor, service.settings.acceptors)
    log(
        "the data folder is empty: silent, and then the others are asked",
        silence_s=service.silence_left(clock.now()) / 1e9,
    )
    heard: list[str] = []
    while True:
        while not seeding.may_ask(clock.now()):  # noqa: ASYNC110 - this clock and the loop's needn't agree
            await asyncio.sleep(service.silence_left(clock.now()) / 1e9)
        peers, serial = service.settings.peers.items(), seeding.query().serial
        answers = await asyncio.gather(*(asyncio.to_thread(_ask, service, name, place) for name, place in peers))
        for (name, _), answer in zip(peers, answers, strict=True):
            if answer is None:
                continue
            heard.append(name)
            durable = seeding.on_seed(Seed(serial, name, answer.high_water, answer.span_ns), clock.now())
            if durable is not None:
                written = asyncio.Event()
                service.persist(durable, written.set)
                await written.wait()
                seeding.finish(durable)
                log("seeded", by=sorted(set(heard)), high_water=durable.high_water)
                return
        if (left := service.silence_left(clock.now())) > 0:
            log("others have longer leases: silent for as long as these may last", silence_s=left / 1e9)
        await asyncio.sleep(PAUSE)


def _ask(service: Service, name: str, place: Place) -> frames.Seeded | None:
    settings = service.settings
    try:
        link = connect(place, settings.secret, settings.peer_tls, PATIENCE)
    except LessorError:
        return None
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one peer, the others are to be asked
        log("a peer can't be asked", level="error", peer=name, place=str(place), error=type(error).__name__)
        return None
    if link.acceptor != name or link.cluster != settings.cluster:
        link.close()
        log("a peer is not the node that it should be", level="error", peer=name, found=link.acceptor)
        return None
    try:
        answer = ask(link, frames.AskSeed(1), PATIENCE)
    except OSError:
        return None
    finally:
        link.close()
    if not isinstance(answer, frames.Seeded):
        return None
    ahead = answer.high_water - service.wall.wall_us()
    if ahead > MOST_AHEAD_US:
        why = f"a peer's numbers are {ahead / DAY_US:.1f} days ahead, and are not taken over: its clock was wrong, or ours is"
        log(why, level="error", peer=name)
        return None
    return answer
